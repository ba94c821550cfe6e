import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer
from transformers import AutoTokenizer
from typer.testing import CliRunner

from lossbench import __version__, app, losses
from lossbench.cli import app as cli
from lossbench.cli import application
from lossbench.errors import ConfigError
from lossbench.identity import identify
from lossbench.models.locate import folder_of
from lossbench.tracking.record import open_record


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def study(tmp_path: Path) -> Path:
    for loss in ("cross_entropy", "focal"):
        for seed in (0, 1):
            config = app.compose(
                f"loss={loss}", f"seed={seed}", f"paths.runs={tmp_path}", "study=s", "tracking.mode=disabled"
            )
            with open_record(config, identify(config)) as record:
                record.log(1, {"val/nll": 1.0})
                metrics = {"test/em": 0.5 + seed / 10, "test/ppl": 2.0, "test/nll": 0.69, "val/nll": 1.0}
                record.finish(metrics, {"step": 1, "criterion": "val/nll", "value": 1.0})
    return tmp_path


def test_every_command_says_what_it_is_for():
    overview = invoke("--help")
    for command in ("train", "report", "runs", "losses", "prepare"):
        assert command in overview
    assert "lossbench report runs/demo" in invoke("report", "--help")


def test_the_overview_lists_every_command_in_the_order_of_their_use():
    command = typer.main.get_command(cli)
    listed = command.list_commands(typer.Context(command))
    assert tuple(listed) == application.ORDER
    shown = invoke("--help")
    places = [re.search(rf"^. {name} ", shown, flags=re.M) for name in listed]
    assert all(places) and [p.start() for p in places if p] == sorted(p.start() for p in places if p)


def commands(command: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", {})
    return [(words, command)] + [found for name, one in inner.items() for found in commands(one, (*words, name))]


COMMANDS = commands(typer.main.get_command(cli))


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(words) or "lossbench" for words, _ in COMMANDS])
def test_every_command_shows_examples_of_itself(words: tuple[str, ...], command: Any):
    examples = command.help.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    name = " ".join(("lossbench", *words)).removesuffix(" list")
    assert examples and any(example.strip().startswith(name) for example in examples)
    assert all(example.strip().startswith("lossbench ") for example in examples)


def test_a_mistyped_command_is_told_the_nearest():
    done = CliRunner().invoke(cli, ["reprot", "runs"])
    assert done.exit_code == 2 and "Did you mean 'report'" in " ".join(done.output.split())


def test_the_version_is_that_of_the_package():
    assert invoke("--version").strip() == __version__


def test_losses_are_listed_with_their_kind(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "300")
    found = {entry["name"]: entry for entry in json.loads(invoke("losses", "list", "--json"))}
    assert sorted(found) == losses.available()
    assert found["focal"]["kind"] == "TargetLoss"
    assert found["emo"]["needs"] == ["embedding"]
    listed = invoke("losses", "list")
    for part in ("focal", "TargetLoss", "gamma=2.0", "embedding", "Lin"):
        assert part in listed


def test_runs_are_listed_with_their_state(study: Path):
    found = json.loads(invoke("runs", "s", "--runs", str(study), "--json"))
    assert {(run["loss"], run["seed"], run["state"]) for run in found} == {
        (loss, seed, "finished") for loss in ("cross_entropy", "focal") for seed in (0, 1)
    }
    assert invoke("runs", "s", "--runs", str(study)).count("finished") == 4


def test_a_report_is_written_and_printed(study: Path, tmp_path: Path):
    printed = invoke("report", str(study / "s"), "--out", str(tmp_path / "out"))
    assert "55.0" in printed
    assert {file.name for file in (tmp_path / "out").iterdir()} >= {
        "report.html",
        "report.md",
        "report.csv",
        "report.json",
    }


def test_a_script_reads_which_files_a_report_wrote_and_what_it_lacks(study: Path, tmp_path: Path):
    out = tmp_path / "out"
    made = json.loads(invoke("report", str(study / "s"), "--out", str(out), "--format", "json", "--json"))
    assert made["lacks"] == [] and made["new"] is True
    assert str(out / "report.json") in made["files"] and all(Path(file).is_file() for file in made["files"])


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["report", "nowhere"], 2, "nowhere"),
        (["runs", "nowhere"], 2, "nowhere"),
        (["losses", "lisst"], 2, "No such command"),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(arguments: list[str], code: int, sentence: str, tmp_path: Path):
    command = [sys.executable, "-c", "from lossbench.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr, sentence in done.stderr) == (code, False, True)


def test_a_loss_is_shown_with_its_formula_hazards_and_twins():
    shown = invoke("losses", "show", "dft")
    for part in ("-sg(p_t) log p_t", "Hazards:", "Same gradient:", "https://arxiv.org/abs/2508.05629"):
        assert part in shown


def test_a_dataset_is_prepared_in_the_papers_schema(tmp_path: Path):
    row = json.dumps({"question": "How many are three and four?", "answer": "3+4=<<3+4=7>>7\n#### 7"})
    for split, count in (("train", 20), ("test", 3)):
        (tmp_path / f"{split}.jsonl").write_text(f"{row}\n" * count)
    out = tmp_path / "out"
    printed = invoke(
        "prepare", "dataset=gsm8k", f"dataset.path={tmp_path}", "model.path=lossbench:tiny", f"out={out}",
        "positions=exact",
    )  # fmt: skip
    assert f"{out / 'test.parquet'}: 3 rows" in printed
    rows = pq.read_table(out / "test.parquet").to_pylist()
    assert len(rows) == 3
    assert {len(row["input_ids"]) for row in rows} == {128}
    tokenizer = AutoTokenizer.from_pretrained(folder_of("lossbench:tiny"))
    position = rows[0]["labels_position_id"][0]
    assert tokenizer.decode(rows[0]["input_ids"][position:-1]).strip() == "<<3+4=7>> #### 7"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["dataset=gsm8k"], "Where to? Pass out=FOLDER."),
        (["out=o", "dataset=gsm8"], "dataset=gsm8 is no configuration. Did you mean 'gsm8k'"),
        (["out=o", "positions=both"], "positions='both' cannot be used"),
        (["out=o"], "The paper prepared no rows of Arithmetic"),
    ],
)
def test_what_cannot_be_prepared_is_a_sentence(arguments: list[str], sentence: str):
    done = CliRunner().invoke(cli, ["prepare", *arguments])
    assert isinstance(done.exception, ConfigError)
    assert sentence in str(done.exception)


def test_conformance_of_registered_losses_is_a_table_and_an_exit_code():
    assert "ignored tokens change nothing" in invoke("losses", "check", "focal")


def test_a_users_own_class_that_breaks_a_rule_is_told_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "careless.py").write_text(
        "import torch\n\n\nclass Careless(torch.nn.Module):\n"
        "    def forward(self, logits, labels, *, reduction='mean', normalizer=None, **context):\n"
        "        return logits.log_softmax(-1).mean()\n"
    )
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["losses", "check", "careless:Careless"])
    assert done.exit_code == 1
    assert "ignored tokens change nothing              failed" in done.output


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_curves_of_losses_are_drawn(tmp_path: Path, suffix: str):
    file = tmp_path / f"curves.{suffix}"
    invoke("losses", "plot", "cross_entropy", "focal", "--out", str(file))
    assert file.read_bytes()[:4] == (b"\x89PNG" if suffix == "png" else b"<?xm")
    if suffix == "svg":
        first = file.read_bytes()
        invoke("losses", "plot", "cross_entropy", "focal", "--out", str(file))
        assert file.read_bytes() == first


def test_an_unknown_loss_is_a_sentence_on_the_command_line(tmp_path: Path):
    command = [sys.executable, "-c", "from lossbench.cli import main; main()", "losses", "show", "foca"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ, timeout=60)
    assert (done.returncode, done.stderr.startswith("lossbench: there is no loss 'foca'. Did you mean 'focal'")) == (
        2,
        True,
    )
