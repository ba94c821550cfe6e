"""Every code block of README and docs is executed, or says why it is not (CONTRIBUTING.md: Documentation).

The blocks of a page are executed in their order in one folder: `bash` by a shell, `python` in one namespace in which
logits, labels and what losses may need are there, `yaml` by what reads such a file. `text` is output, and not executed.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lossbench import app, cli, resources
from lossbench.losses import registry
from tests.docs.pages import PAGES, ROOT, Block, blocks, commands, names

LANGUAGES = {"bash", "python", "yaml", "text"}
REASONS = ("needs ", "takes ", "has made-up names", "is run by tests/")  # what follows `not run:` begins so
ELSEWHERE = [ROOT / "README.md"]  # tests/readme runs its blocks in a clean clone
EXECUTED = [
    page
    for page in PAGES
    if page not in ELSEWHERE and any(b.language in ("bash", "python", "yaml") and not b.not_run for b in blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_block_is_executed_or_is_output_or_says_why_it_is_not_executed(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.place} is no {', '.join(sorted(LANGUAGES))}"
        assert block.not_run is None or block.language in ("bash", "python"), f"{block.place} needs no marker"
        assert block.not_run is None or block.not_run.startswith(REASONS), f"{block.place}: {block.not_run}"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_nothing_that_could_be_executed_hides_as_output(page: Path) -> None:
    for block in blocks(page):
        if block.language == "text":
            first = next((line for line in block.text.splitlines() if line.strip()), "")
            assert not re.match(r"(python|pip|lossbench|make|wandb|import|from) [^:]*$", first), block.place


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=names(EXECUTED))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(list(blocks(page)), tmp_path, monkeypatch)


def run(found: list[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute blocks in order; what they import from their folder or register is forgotten afterwards."""
    registry.available()
    monkeypatch.setattr(registry, "_LOSSES", dict(registry._LOSSES))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(folder)
    shutil.copy(ROOT / "train.py", folder)
    namespace = given()
    try:
        for block in found:
            if block.not_run is not None:
                continue
            match block.language:
                case "bash":
                    code = call_all(block, monkeypatch) if is_ours(block) else run_shell(block.text, folder)
                    assert code == block.exits, f"{block.place}: exit code {code}"
                case "python":
                    exec(compile(block.text, block.place, "exec"), namespace)
                case "yaml":
                    read_yaml(block, folder)
    finally:
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or ROOT).is_relative_to(folder):
                del sys.modules[name]


def is_ours(block: Block) -> bool:
    """Nothing but commands of lossbench, which need no shell, and no process of their own that imports torch again."""
    lines = re.sub(r"\\\n", " ", block.text).splitlines()
    found = [command for command in commands(block) if not command.startswith("make")]
    return len(found) == len(lines) and not re.search(r"[|<>`]|\$\(", block.text)


def call_all(block: Block, monkeypatch: pytest.MonkeyPatch) -> int:
    for command in commands(block):
        words = [path for word in shlex.split(command) for path in (sorted(glob.glob(word)) or [word])]
        program, words = (app.main, words[1:]) if words[0] == "python" else (cli.main, words)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", words)
            try:
                program()
            except SystemExit as end:
                if end.code:
                    return int(end.code)
    return 0


def run_shell(text: str, folder: Path) -> int:
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=env, timeout=300)
    return done.returncode


def read_yaml(block: Block, folder: Path) -> None:
    """A file of `conf/` composes (and is part of ours of that name, if there is one), a study is planned."""
    content = yaml.safe_load(block.text)
    assert isinstance(content, dict), f"{block.place} is no mapping"
    if named := re.match(r"# conf/(.+)/(\w+)\.yaml\n", block.text):
        group, name = named.groups()
        ours = resources.folder("conf") / group / f"{name}.yaml"
        if ours.is_file():
            assert is_part(content, yaml.safe_load(ours.read_text(encoding="utf-8"))), f"{block.place}: {ours.name}"
        file = folder / "conf" / group / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
        app.compose(f"{group}={name}")
    if "sweep" in content:
        (folder / "sweeps").mkdir(exist_ok=True)
        (folder / "sweeps" / "shown.yaml").write_text(block.text, encoding="utf-8")
        assert run_shell("python train.py -m sweep=shown sweep.dry_run=true", folder) == 0


def is_part(shown: Any, whole: Any) -> bool:
    """Whether a file says all that is shown of it."""
    if isinstance(shown, dict):
        return isinstance(whole, dict) and all(key in whole and is_part(shown[key], whole[key]) for key in shown)
    return bool(shown == whole)


def given() -> dict[str, Any]:
    """Two sequences of six tokens over eleven entries of a vocabulary, a head of width eight, and every context."""
    torch.manual_seed(0)
    labels = torch.randint(11, (2, 6))
    labels[0, :2] = -100
    return {
        "torch": torch,
        "logits": torch.randn(2, 6, 11, requires_grad=True),
        "labels": labels,
        "answer_labels": labels.masked_fill(torch.arange(6) < 3, -100),
        "hidden": torch.randn(2, 6, 8, requires_grad=True),
        "weight": torch.randn(11, 8, requires_grad=True),
        "bias": torch.randn(11, requires_grad=True),
        "embedding": torch.randn(11, 8),
        "token_values": torch.arange(11.0).masked_fill(torch.arange(11) < 3, torch.nan),
        "class_counts": torch.arange(1, 12),
        "token_frequencies": torch.arange(1, 12) / 66,
        "tokens": labels.clamp(min=0),
        "sequence_ids": torch.tensor([[0] * 6, [1] * 6]),
        "ref_logits": torch.randn(2, 6, 11),
        "old_log_probs": -torch.rand(2, 6),
        "head_logits": torch.randn(2, 6, 11),
    }


@pytest.mark.parametrize(
    ("language", "text", "why"),
    [
        ("bash", "false", AssertionError),
        ("bash", "lossbench no-such-command", AssertionError),
        ("python", "assert not logits.shape", AssertionError),
        ("yaml", "just a sentence", AssertionError),
        ("yaml", "# conf/loss/ce_focal.yaml\nname: other\n", AssertionError),
    ],
)
def test_a_block_that_does_not_work_is_found(
    language: str, text: str, why: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(why):
        run([Block(ROOT / "README.md", 1, language, text)], tmp_path, monkeypatch)


def test_markers_and_blocks_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: needs a GPU -->\n```bash\na\n```\n\n<!-- exits 2 -->\n```bash\nb\n```\n\n"
        "1. In a list\n\n   ```python\n   c = 1\n   if c:\n       d = 2\n   ```\n\n    still the item\n\n"
        "    <!-- not run: takes an hour -->\n    ```bash\n    e\n    ```\n\nA paragraph.\n\n    indented\n"
    )
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    found = [(b.language, b.text, b.not_run, b.exits) for b in blocks(page)]
    assert found == [
        ("bash", "a", "needs a GPU", 0),
        ("bash", "b", None, 2),
        ("python", "c = 1\nif c:\n    d = 2", None, 0),
        ("bash", "e", "takes an hour", 0),
        ("indented", "indented", None, 0),
    ]
