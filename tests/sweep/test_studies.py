"""The studies of sweeps/: each can be planned, and each small one has a report that was made of it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import hydra
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from lossbench import app, resources
from lossbench.config import RunConfig
from lossbench.run import check
from lossbench.sweep.compose import Composer
from lossbench.sweep.plan import plan
from lossbench.sweep.start import parse_all
from lossbench.sweep.study import expand, parse_sweep

ROOT = Path(__file__).parents[2]
FILES = {file.stem: file for file in sorted((ROOT / "sweeps").glob("*.yaml"))}
TINY = [name for name in FILES if name.endswith("_tiny")]
FULL = [name for name in FILES if name not in TINY and not name.startswith("demo")]


@pytest.fixture(scope="module")
def loader() -> Iterator:
    app._register_sweeps()
    with hydra.initialize_config_dir(str(resources.folder("conf")), version_base="1.3"):
        yield GlobalHydra.instance().hydra.config_loader


def configs_of(loader, name: str, folder: Path) -> list[RunConfig]:
    typed = {"sweep": name, "paths.runs": str(folder)}
    command = [f"{key}={value}" for key, value in typed.items()]
    master = loader.load_configuration("config", command, run_mode=RunMode.MULTIRUN)
    block = parse_sweep(OmegaConf.to_container(master.sweep, resolve=True))
    runs = expand(block, {key: [value] for key, value in typed.items()})
    return parse_all(Composer(loader, master, app.plain).compose(runs))


@pytest.mark.parametrize("name", FILES)
def test_a_study_can_be_planned_and_each_of_its_runs_can_work(loader, tmp_path: Path, name: str):
    configs = configs_of(loader, name, tmp_path)
    block = yaml.safe_load(FILES[name].read_text())["sweep"]
    assert len(plan(configs)) == len(configs) >= 2 * len(block["seeds"])  # no two of them are one run
    assert {config.study for config in configs} == {name}
    assert block["baseline"] in {config.loss.name for config in configs}
    seen = {json.dumps(config.model_dump(mode="json", exclude={"seed", "paths"})): config for config in configs}
    for config in seen.values():
        check(config)


@pytest.mark.parametrize("name", [*TINY, *FULL])
def test_a_study_says_how_it_is_run_and_has_seeds_for_an_interval(name: str):
    text = FILES[name].read_text()
    assert f"sweep={name}" in text
    assert len(yaml.safe_load(text)["sweep"]["seeds"]) >= 3
    assert ("Question:" in text or "https://arxiv.org" in text) or name in TINY


def test_every_study_has_a_small_one_and_the_other_way_round():
    assert {f"{name}_tiny" for name in FULL} == set(TINY)
    assert len(FULL) == 8


def test_make_studies_runs_every_small_one():
    line = re.search(r"^STUDIES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line is not None
    assert sorted(f"{name}_tiny" for name in line[1].split()) == TINY


@pytest.mark.parametrize("name", TINY)
def test_a_small_study_has_a_report_of_all_of_its_runs(loader, tmp_path: Path, name: str):
    folder = ROOT / "results" / name
    text = (folder / "report.md").read_text()
    configs = configs_of(loader, name, tmp_path)
    assert f"{len(configs)} runs expected: {len(configs)} finished" in text
    for loss in {config.loss.name for config in configs}:
        assert loss.replace("_", r"\_") in text
    version = re.search(r"<dt>git commit</dt><dd>([^<]+)</dd>", (folder / "report.html").read_text())
    assert version is not None
    assert re.fullmatch(r"[0-9a-f]{12}", version[1])  # one version of the code, and without local changes
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 1_000_000


NUMBER = r"[-+]?[\d.,]+(?:e[-+]\d+)?"
INTERVAL = re.compile(rf"\[{NUMBER}, {NUMBER}\]")


def report_of(name: str) -> str:
    return (ROOT / "results" / name / "report.md").read_text().replace("\\", "")


def test_every_interval_on_the_page_of_studies_is_one_of_the_study():
    _, *parts = re.split(r"^### `(\w+)`$", (ROOT / "docs" / "studies.md").read_text(), flags=re.MULTILINE)
    assert sorted(parts[::2]) == sorted(FULL)
    for study, text in zip(parts[::2], parts[1::2], strict=True):
        stated = INTERVAL.findall(text)
        assert stated  # no study without an interval
        assert not [interval for interval in stated if interval not in report_of(f"{study}_tiny")], study


def test_every_interval_of_the_advice_is_one_of_a_report():
    reports = "\n".join(report_of(name) for name in ["demo", *TINY])
    stated = INTERVAL.findall((ROOT / "docs" / "howto" / "choosing-a-loss.md").read_text())
    assert len(stated) >= 6
    assert not [interval for interval in stated if interval not in reports]


def test_the_list_of_results_and_the_page_of_studies_name_every_study():
    listed = (ROOT / "results" / "README.md").read_text()
    page = (ROOT / "docs" / "studies.md").read_text()
    for name in TINY:
        assert f"{name}/report.md" in listed
        assert f"results/{name}/report.md" in page
        assert f"sweep={name.removesuffix('_tiny')}" in page
