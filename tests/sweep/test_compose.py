"""Composing many runs gives what Hydra gives for each of them."""

import itertools
from collections.abc import Iterator

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from lossbench import app, resources
from lossbench.errors import ConfigError
from lossbench.sweep import compose
from lossbench.sweep.compose import Composer


@pytest.fixture
def loader() -> Iterator:
    app._register_sweeps()
    with hydra.initialize_config_dir(str(resources.folder("conf")), version_base="1.3"):
        yield GlobalHydra.instance().hydra.config_loader


def both(loader, runs: list[list[str]]) -> tuple[list[dict], list[dict], int]:
    """(composed together, each by Hydra, how often Hydra was asked for the first)."""
    master = loader.load_configuration("config", [], run_mode=RunMode.MULTIRUN)
    count = 0
    original = loader.load_sweep_config

    def counted(*arguments):
        nonlocal count
        count += 1
        return original(*arguments)

    loader.load_sweep_config = counted
    together = Composer(loader, master, app.plain).compose(runs)
    asked = count
    return together, [app.plain(original(master, run)) for run in runs], asked


def test_values_are_set_on_one_composition(loader):
    runs = [[f"seed={seed}", f"trainer.max_steps={steps}"] for seed in range(4) for steps in (1, 2)]
    together, one_by_one, asked = both(loader, runs)
    assert together == one_by_one
    assert asked == 1


def test_a_value_that_others_follow_is_followed(loader):
    runs = [["model.learning_rate=0.5"], ["optimizer.lr=0.25"], ["model.learning_rate=0.5", "optimizer.lr=1e-3"]]
    together, one_by_one, _ = both(loader, runs)
    assert together == one_by_one
    assert [run["optimizer"]["lr"] for run in together] == [0.5, 0.25, 1e-3]


def test_a_grid_of_groups_is_composed_from_its_options(loader):
    axes = (["loss=emo", "loss=focal", "loss=ce_lovasz"], ["model=tiny", "model=llama2_7b"],
            ["dataset=gsm8k", "dataset=arithmetic"], ["seed=1", "seed=2"])  # fmt: skip
    together, one_by_one, asked = both(loader, [list(run) for run in itertools.product(*axes)])
    assert together == one_by_one
    assert asked < 12 / 1.5


def test_axes_that_touch_the_same_keys_are_left_to_hydra(loader):
    axes = (["model=tiny", "model=gpt2", "model=opt_125m"], ["peft=none", "peft=lora"], ["loss=emo", "loss=focal"])
    together, one_by_one, _ = both(loader, [list(run) for run in itertools.product(*axes)])
    assert together == one_by_one


@pytest.mark.parametrize(
    "run",
    [
        ["+loss.terms.cross_entropy.extra=3"],
        ["~peft.dropout"],
        ["optimizer.betas=[0.5,0.6]"],
        ["loss=emo", "loss.terms.emo={weight: 2.0, scope: answer}"],
        ["trainer.max_steps=null"],
        ["study='with space'"],
    ],
)
def test_what_is_no_plain_value_is_set_by_hydra_itself(loader, run: list[str]):
    together, one_by_one, _ = both(loader, [run])
    assert together == one_by_one


def test_a_key_without_a_value_can_be_given_as_one(loader):
    together, one_by_one, asked = both(loader, [["model=hf", "model.path=a/b", f"seed={seed}"] for seed in range(3)])
    assert together == one_by_one
    assert asked == 1
    with pytest.raises(ConfigError, match=r"model\.path has no value"):
        both(loader, [["model=hf"]])


def test_an_unknown_key_is_hydras_complaint(loader):
    with pytest.raises(Exception, match=r"Could not override 'trainer\.max_stepz'"):
        both(loader, [["trainer.max_stepz=3"]])


def test_every_file_is_read_once(loader, monkeypatch: pytest.MonkeyPatch):
    from hydra._internal.core_plugins.file_config_source import FileConfigSource

    read: list[str] = []
    original = FileConfigSource.load_config

    def load_config(self, config_path: str):
        read.append(config_path)
        return original(self, config_path=config_path)

    master = loader.load_configuration("config", [], run_mode=RunMode.MULTIRUN)
    before = loader.repository
    monkeypatch.setattr(FileConfigSource, "load_config", load_config)
    runs = [[f"loss={loss}", f"model={model}"] for loss in ("emo", "focal", "mae") for model in ("tiny", "gpt2")]
    Composer(loader, master, app.plain).compose(runs)
    assert {"config", "loss/emo", "model/gpt2"} <= set(read)
    assert len(read) == len(set(read))
    assert loader.repository is before


def test_a_resolver_may_look_at_anything():
    leaves = {("a",): "${b.c}", ("d",): ["${e}"], ("f",): "${oc.env:HOME}"}
    assert set(compose._referred(leaves)) == {("b", "c"), ("e",), ()}
    assert not compose._may_be_set({"a": {"b": 1}}, [()], ("a", "b"))
    assert not compose._may_be_set({"a": {"b": 1}}, [("a",)], ("a", "b"))
    assert compose._may_be_set({"a": {"b": 1}}, [("c",)], ("a", "b"))
    assert not compose._may_be_set({"a": {"b": 1}}, [], ("a",))
