"""Every command in README and docs, run or not, is one that the programs understand: its configurations, keys, options
and targets exist."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer
from hydra.core.override_parser.overrides_parser import OverridesParser

from lossbench import app, resources
from lossbench.cli import app as cli
from tests.docs.pages import PAGES, ROOT, Block, blocks, commands

EXAMPLES = ("my_loss", "mine", "mysite", "my_study")  # options that the reader makes
MISTAKES = ("loss=focall",)  # shown for the sentence that they get
HYDRA_FLAGS = {"-m", "--multirun", "--cfg", "job", "-sc", "install=bash", "--help", "--config-dir", "FOLDER"}
WRITTEN = [page for page in PAGES if page.parent.name != "losses"]  # those of losses are composed by tests/test_app.py
COMMANDS = sorted({(command, block.place) for page in WRITTEN for block in blocks(page) for command in commands(block)})
UNIQUE = sorted({command for command, _ in COMMANDS})


@pytest.mark.parametrize("command", UNIQUE)
def test_a_command_is_understood(command: str) -> None:
    understand(command)


def understand(command: str) -> None:
    """Raise for what the program would refuse as wrong usage; `[--option]` is one that may be left out."""
    command = re.sub(r"\[(-[^\]]*)\]", r"\1", command)
    first, *words = shlex.split(re.split(r" [>|] ", command)[0])
    if first == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
        assert targets >= {word for word in words if "=" not in word}
    elif first == "python" or words[:1] == ["train"]:
        compose(words[1:])
    elif words[:1] and words[0].startswith("--"):
        assert any(words[0] in option.opts for option in typer.main.get_command(cli).params)
    else:
        parse(typer.main.get_command(cli), "lossbench", words)


def compose(words: list[str]) -> None:
    """Every value of every axis, the others at their first."""
    words = [word for word in words if word not in HYDRA_FLAGS and word not in MISTAKES]
    words = [word for word in words if not word.startswith("hydra/launcher=mysite")]
    own = {word.partition("=")[2] for word in words} & set(EXAMPLES)
    words = [w for w in words if w.partition("=")[2] not in EXAMPLES and not any(f".{name}." in w for name in own)]
    if any(word.startswith("loss._target_=") for word in words):
        words.append("loss=custom")
    axes = []
    for override, word in zip(OverridesParser.create().parse_overrides(words), words, strict=True):
        if override.is_sweep_override() and (resources.folder("conf") / override.key_or_group).is_dir():
            axes.append([f"{override.key_or_group}={value}" for value in override.sweep_string_iterator()])
        else:  # of numbers the first one is enough
            axes.append([word.split(",")[0] if override.is_sweep_override() else word])
    first = [axis[0] for axis in axes]
    chosen = {(*first[:k], value, *first[k + 1 :]) for k, axis in enumerate(axes) for value in axis} or {()}
    for overrides in chosen:
        app.compose(*overrides)


def parse(command: Any, name: str, words: list[str], parent: Any = None) -> None:
    """What typer does before it calls a function."""
    context = command.make_context(name, list(words), parent=parent, resilient_parsing=not words)
    if hasattr(command, "commands") and words and "-h" not in words:
        rest = [*getattr(context, "_protected_args", []), *context.args]
        if rest:
            inner_name, inner, arguments = command.resolve_command(context, rest)
            parse(inner, inner_name, arguments, context)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py loss=no_such_loss",
        "python train.py trainer.no_such_key=1",
        "python train.py -m loss=focal,no_such_loss",
        "lossbench report runs --no-such-option",
        "lossbench no-such-command",
        "lossbench losses no-such-command",
        "make no-such-target",
    ],
)
def test_a_command_that_no_program_has_is_found(command: str) -> None:
    with pytest.raises((Exception, SystemExit)):
        understand(command)


def test_commands_are_found_in_blocks() -> None:
    text = "python train.py loss=emo \\\n    seed=1    # a comment\n  lossbench runs demo  # another\nsbatch job\n"
    block = Block(ROOT / "README.md", 1, "bash", text)
    assert commands(block) == ["python train.py loss=emo seed=1", "lossbench runs demo"]
    assert len(UNIQUE) > 60
