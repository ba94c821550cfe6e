"""The README as a newcomer follows it: a clean clone, and its commands one after another in one shell, word for word.

Blocks marked `<!-- not run: ... -->` need what is not here; their commands are composed by tests/docs. Two things are
shortened unless the environment asks for them: LOSSBENCH_README_SETUP=1 lets make install everything from the package
index into an environment of its own (else the clone's environment borrows the packages of the present one), and
LOSSBENCH_README_DEMO=1 runs the demo's twelve runs in full (else four runs of a few steps).
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pictures
from tests.docs.test_blocks import run as run_blocks

README = ROOT / "README.md"
SETUP, DEMO = "LOSSBENCH_README_SETUP", "LOSSBENCH_README_DEMO"
SHORT_DEMO = "seed=0 trainer.max_steps=5 evaluation.limit=5 evaluation.validation_limit=5"
MARK = "@@ block of line "


@dataclass(frozen=True)
class Step:
    """A block that is run, and the output that the README shows below it."""

    block: Block
    shown: str | None

    @property
    def shows_the_demo(self) -> bool:
        return "make demo" in self.block.text or "runs/demo" in self.block.text


def steps() -> list[Step]:
    found = blocks(README)
    following = {block: after for block, after in itertools.pairwise(found) if after.language == "text"}
    return [
        Step(block, following[block].text if block in following else None)
        for block in found
        if block.language == "bash" and block.not_run is None
    ]


def clone(place: Path) -> Path:
    """HEAD, and above it what the working tree has differently."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(place)], check=True, timeout=60)
    listed = ["git", "ls-files", "--modified", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)
        elif name:
            (place / name).unlink(missing_ok=True)
    return place


def borrow_environment(place: Path) -> None:
    """A .venv whose lossbench is the clone's and whose other packages are those of this environment, as `make setup`
    would make it."""
    environment = place / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=60)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{place / 'src'}\n{sysconfig.get_path('purelib')}\n")
    script = environment / "bin" / "lossbench"
    script.write_text(f"#!{environment / 'bin' / 'python'}\nfrom lossbench.cli import main\n\nmain()\n")
    script.chmod(0o755)
    for ready in (".ready", ".ready-dev"):  # newer than pyproject.toml, so that make installs nothing
        (environment / ready).touch()


def script() -> str:
    """All blocks for one shell, each with a mark before its output."""
    parts = ["set -euo pipefail"]
    for step in steps():
        text = step.block.text
        if DEMO not in os.environ:
            text = re.sub(r"^make demo$", f"make demo DEMO='{SHORT_DEMO}'", text, flags=re.M)
        parts += [f"echo '{MARK}{step.block.line}'", text]
    return "\n".join(parts)


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The output of every block, by its line in the README."""
    place = clone(tmp_path_factory.mktemp("newcomer") / "lossbench")
    if SETUP not in os.environ:
        borrow_environment(place)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "COLUMNS": "100", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        ["bash", "-c", script()], cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=7200 if {SETUP, DEMO} & os.environ.keys() else 1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    pieces = re.split(rf"^{MARK}(\d+)\n", done.stdout, flags=re.M)
    return {int(line): output for line, output in zip(pieces[1::2], pieces[2::2], strict=True)}


def kind(line: str) -> str:
    """A line of output without what another machine or another run may have differently."""
    line = re.sub(r"-[0-9a-f]{16}\b", "-ID", line)
    line = re.sub(r"\d[\d,]*(\.\d+)?", "0", line)
    return " ".join(line.split())


@pytest.mark.slow
def test_the_commands_of_the_readme_work_word_for_word_in_a_clean_clone(transcript: dict[int, str]) -> None:
    assert list(transcript) == [step.block.line for step in steps()]


@pytest.mark.slow
@pytest.mark.parametrize("step", steps(), ids=lambda step: f"line{step.block.line}")
def test_the_output_that_the_readme_shows_is_what_a_newcomer_sees(step: Step, transcript: dict[int, str]) -> None:
    if step.shown is None:
        pytest.skip("The README shows no output of this block.")
    if step.shows_the_demo and DEMO not in os.environ:
        pytest.skip(f"The demo was shortened; {DEMO}=1 runs it in full.")
    printed = [kind(line) for line in transcript[step.block.line].splitlines()]
    for line in step.shown.splitlines():
        if line.strip() not in ("", "..."):
            assert kind(line) in printed, f"{step.block.place}: {line!r} is not printed"


def test_the_python_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [block for block in blocks(README) if block.language == "python"]
    assert found
    run_blocks(found, tmp_path, monkeypatch)


def test_every_block_is_run_or_says_why_not() -> None:
    for block in blocks(README):
        assert block.language in ("bash", "python", "text"), block.place
    assert len(steps()) >= 6


def test_the_picture_is_there_and_small() -> None:
    (picture,) = [ROOT / address for address in pictures(README)]
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) < 300_000
    assert int.from_bytes(content[16:20]) == 1280  # pixels wide


def test_a_reader_decides_in_a_minute() -> None:
    """A limit to hold on to: what is longer belongs into docs/."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200
