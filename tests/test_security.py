"""What comes from outside is data: nothing in it is run, and it names no place outside of the folders that were named
(docs/explanation/security.md). That the report escapes what runs say is shown in tests/report and tests/browser."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lossbench import app, config, resources
from lossbench.errors import LossbenchError
from lossbench.models.load import load
from lossbench.models.locate import folder_of
from lossbench.sweep.status import study_folder

SOURCE = Path(__file__).parents[1] / "src"
MODULES = sorted(SOURCE.rglob("*.py"))
RUN_WHAT_THEY_READ = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
SEPARATE = ("../outside", "a/../../outside", "/tmp/outside", "..", ".hidden", "a/b", "a\\b", "a\0b", "")


def calls(tree: ast.AST) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`torch.load`, its literal keyword arguments) of every call in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = {word.arg: getattr(word.value, "value", ...) for word in node.keywords if word.arg}
            yield ast.unparse(node.func), given


def runs_what_it_reads(source: str) -> list[str]:
    """What in a module could execute something that it reads."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if name.partition(".")[0] in RUN_WHAT_THEY_READ]
    for name, given in calls(tree):
        last = name.rpartition(".")[2]
        if (
            name in ("eval", "exec", "compile", "__import__", "os.system", "os.popen")
            or (name == "torch.load" and given.get("weights_only") is not True)
            or (last == "load" and name.startswith(("np.", "numpy.")) and given.get("allow_pickle") is not False)
            or (name in ("yaml.load", "yaml.unsafe_load", "yaml.full_load") and given.get("Loader") is None)
            or last == "read_pickle"
            or given.get("shell") is True
            or given.get("trust_remote_code") is True
        ):
            found.append(name)
    return found


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_module_runs_what_it_reads(file: Path) -> None:
    assert runs_what_it_reads(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from joblib import load", "torch.load(file)", "torch.load(file, weights_only=False)",
        "np.load(file)", "np.load(file, allow_pickle=True)", "yaml.load(text)", "pd.read_pickle(file)", "eval(text)",
        "subprocess.run(line, shell=True)", "AutoModel.from_pretrained(path, trust_remote_code=True)",
    ],
)  # fmt: skip
def test_a_module_that_does_is_found(source: str) -> None:
    assert runs_what_it_reads(source)


def test_no_configuration_lets_code_of_a_repository_run() -> None:
    for file in sorted((resources.folder("conf") / "model").glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert not content.get("model", content).get("trust_remote_code", False), file.name


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["LOSSBENCH_TRAP"],)  # read when it is pickled


def test_weights_that_are_a_pickle_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = tmp_path / "the trap was run"
    ours = folder_of("lossbench:tiny")
    assert ours is not None
    folder = shutil.copytree(ours, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    monkeypatch.setenv("LOSSBENCH_TRAP", str(trap))
    torch.save({"model.embed_tokens.weight": Trap()}, folder / "pytorch_model.bin")
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    trap.rmdir()  # it works
    chosen = app.compose("model=hf", f"model.path={folder}", "tracking=none").model
    with pytest.raises((LossbenchError, pickle.UnpicklingError), match=r"(?i)weights.only|safe|unpick"):
        load(chosen)
    assert not trap.exists()


@pytest.mark.parametrize("name", SEPARATE)
@pytest.mark.parametrize("key", ["study", "loss.name", "model.name", "dataset.name"])
def test_a_name_that_becomes_a_folder_leads_nowhere_else(key: str, name: str) -> None:
    given = app.compose().model_dump()
    *path, last = key.split(".")
    place = given
    for part in path:
        place = place[part]
    place[last] = name
    with pytest.raises(LossbenchError, match=key.replace(".", r"\.")) as error:
        config.parse(given)
    assert error.value.exit_code == 2


def test_the_name_of_a_run_in_a_foreign_folder_leads_nowhere_else(tmp_path: Path) -> None:
    """`run.json` of a run folder that somebody sent: a report writes where it was told to, and nowhere else."""
    from lossbench.report import build
    from tests.report.factory import write_run

    study = tmp_path / "runs" / "s"
    for seed in (0, 1):
        folder = write_run(study, "cross_entropy", seed, metrics={"test/em": 0.5, "val/nll": 1.0})
        told = json.loads((folder / "run.json").read_text())
        told |= {"study": "../../../outside", "name": "../../outside", "id": told["id"]}
        (folder / "run.json").write_text(json.dumps(told))
    before = {file for file in tmp_path.rglob("*") if "out" not in file.parts}
    build([study], tmp_path / "out", now=1_800_000_000.0)
    assert {file for file in tmp_path.rglob("*") if "out" not in file.parts} == before
    assert not (tmp_path.parent / "outside").exists()


def test_a_study_is_looked_for_below_the_folder_of_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(LossbenchError, match="no study"):
        study_folder(tmp_path / "runs", "../elsewhere")
