"""The exit codes, streams, colours and completion that docs/reference/cli.md promises."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lossbench import cli
from lossbench.cli import application
from lossbench.errors import refused
from tests.docs.pages import ROOT


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `lossbench ARGUMENTS`, in this process."""
    monkeypatch.setattr(sys, "argv", ["lossbench", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
        raise SystemExit(0)
    return int(end.value.code or 0)


def documented() -> dict[str, str]:
    text = (ROOT / "docs/reference/cli.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (\d) \| (.+) \|$", text, flags=re.M))


def test_help_and_page_name_the_same_codes() -> None:
    assert re.findall(r"^(\d)  ", application.HELP, flags=re.M) == sorted(documented()) == list("012345")


def test_0_fine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "losses", "show", "focal", "--json") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "TargetLoss"


def test_1_a_check_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken_example.py").write_text(
        "from lossbench.losses import TargetLoss\n\n\nclass Broken(TargetLoss):\n    'Wrong.'\n\n"
        "    def value(self, log_p, batch):\n        return -log_p.detach()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert call(monkeypatch, "losses", "check", "broken_example:Broken", "--json") == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert not report["ok"] and any(rule["status"] == "failed" for rule in report["results"])


def test_2_wrong_usage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "report", "--no-such-option") == 2
    assert call(monkeypatch, "losses", "show", "focall") == 2
    assert call(monkeypatch, "report", str(tmp_path), "--out", str(tmp_path / "out")) == 2
    assert "focal" in capsys.readouterr().err


def test_3_the_report_is_not_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from lossbench import app
    from lossbench.identity import identify
    from lossbench.tracking.record import open_record

    made = app.compose("loss=focal", f"paths.runs={tmp_path}/runs", "study=s", "tracking.mode=disabled")
    with pytest.raises(RuntimeError, match="stop"), open_record(made, identify(made)):
        raise RuntimeError("stop")
    arguments = ["report", f"{tmp_path}/runs", "--out", f"{tmp_path}/out", "--format", "md"]
    assert call(monkeypatch, *arguments) == 0
    assert call(monkeypatch, *arguments, "--strict") == 3


def test_4_the_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    from lossbench import hub
    from lossbench.errors import ModelError

    class Unreachable:
        def repo_info(self, *_: object, **__: object) -> None:
            raise ConnectionError

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr("huggingface_hub.HfApi", Unreachable)
    with pytest.raises(ModelError, match="cannot be reached") as error:
        hub.check_reachable("nobody/nothing", "model", None, "or pass a folder")
    assert error.value.exit_code == 4


def test_5_the_output_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "losses", "plot", "focal", "--out", "/dev/null/losses.svg") == 5
    assert capsys.readouterr().err == (
        "lossbench: /dev/null/losses.svg: Not a directory. Choose another place, or make this one writable.\n"
    )
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", "paths.runs=/dev/null/runs", "tracking=none", "trainer.max_steps=1"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr.startswith("lossbench: /dev/null/runs")) == (5, True), done.stderr


def test_only_a_file_system_that_refuses_is_a_sentence() -> None:
    assert refused(OSError(errno.ENOSPC, "No space left on device", "runs/x")) is not None
    assert refused(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) is None
    assert refused(ConnectionResetError(errno.ECONNRESET, "reset")) is None


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete "), ("zsh", "#compdef"), ("fish", "complete --command")]
)
def test_completion_has_a_script_for_each_shell(shell: str, word: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lossbench"],
        env=os.environ | {"_LOSSBENCH_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and word in done.stdout and "lossbench" in done.stdout


def test_names_of_losses_are_completed_without_torch() -> None:
    from lossbench import losses

    code = """import sys; from lossbench.cli.losses import _registered as names
print(*names('')); sys.exit('torch' in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, "torch was imported"
    assert done.stdout.split() == losses.available(), done.stderr
    env = os.environ | {
        "_LOSSBENCH_COMPLETE": "complete_bash",
        "COMP_WORDS": "lossbench losses show foc",
        "COMP_CWORD": "3",
    }
    done = subprocess.run(
        [Path(sys.executable).parent / "lossbench"], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["focal"]


@pytest.mark.parametrize("no_color", [False, True])
def test_colours_are_for_terminals_and_no_color_turns_them_off(no_color: bool) -> None:
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm-256color", "COLUMNS": "100"} | ({"NO_COLOR": "1"} if no_color else {})
    command = [sys.executable, "-m", "lossbench", "report", "--help"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=env)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0
    coloured = re.search(rb"\x1b\[(?:\d+;)*(?:3[0-7]|38|9[0-7])[;m]", shown)
    assert (coloured is not None) is not no_color
    piped = subprocess.run(command, capture_output=True, env=env, timeout=60)
    assert piped.returncode == 0 and b"\x1b" not in piped.stdout
