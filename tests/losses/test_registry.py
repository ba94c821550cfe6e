"""Names, parameters and the three places where losses are found."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from lossbench import losses
from lossbench.losses import BadParameter, LossError, UnknownLoss
from lossbench.losses.registry import parameters

# The defaults of the papers or their code; a change here changes published numbers.
DEFAULTS = {
    "cross_entropy": {},
    "focal": {"gamma": 2.0, "class_weights": None, "detach_weight": False},
    "poly1": {"epsilon": 1.0},
    "generalized_cross_entropy": {"q": 0.7, "truncation_k": None},
    "mae": {"scale": 1.0},
    "reverse_cross_entropy": {"scale": 1.0},
    "symmetric_cross_entropy": {"alpha": 0.1, "beta": 1.0},
    "dft": {},
    "mixce": {"eta": 0.5},
    "tailr": {"gamma": 1.0, "min_weight": 0.0},
    "dco": {"n_samples": 16, "level": "token"},
    "tldr": {},
    "self_adjusting_dice": {"alpha": 1.0, "gamma": 1.0},
    "deft": {"variant": "deft"},
    "label_smoothing": {"smoothing": 0.1, "mode": "uniform"},
    "z_loss": {"coefficient": 1e-4},
    "confidence_penalty": {"beta": 0.1},
    "squentropy": {"center": False},
    "brier": {},
    "gem": {"beta": 0.7, "h": "logsigmoid"},
    "eaft": {"alpha": 1.0, "top_k": 20, "normalizer": 3.0},
    "mile": {"gamma": 1.0},
    "entmax": {"alpha": 1.5},
    "asymmetric": {"gamma_pos": 0.0, "gamma_neg": 4.0, "smoothing": 0.1},
    "bi_tempered": {"t1": 0.8, "t2": 1.2},
    "stablemax": {},
    "spherical_z_loss": {"a": 0.1, "b": 10.0},
    "lovasz_softmax": {"classes": "present", "per_sequence": False},
    "generalized_dice": {"absent": "zero", "smooth_nr": 1e-5, "smooth_dr": 1e-5},
    "jaccard_metric": {"alpha": 1.0, "beta": 1.0, "smooth": 1e-3, "gamma": 1.0, "log": False},
    "emo": {"mode": "emo1", "detach_target": True, "ratio_cap": 3.0, "scale": 0.5, "cost_embedding": "fixed"},
    "number_token_loss": {"variant": "wasserstein", "reweigh": False},
    "goldfish": {"strategy": "hash-table", "k": 4, "start_position": 0, "context_width": 4},
    "loss_truncation": {"drop_fraction": 0.4, "min_count": 10_000, "recompute": 10_000},
    "unlikelihood": {"alpha": 1.0, "candidates": "previous_context"},
    "contrastive_token": {"ct_length": 0.25, "preceding_m": 0.5},
    "ldam": {"max_margin": 0.5, "scale": 1.0},
    "logit_adjustment": {"tau": 1.0},
    "power_law_decay": {"alpha": 1.0, "epsilon": 1e-7},
    "asft": {"kl_weight": 0.1},
    "psft": {"clip_low": 0.2, "clip_high": 0.28, "snapshot_every": 8},
}


def test_fifty_one_losses_are_registered() -> None:
    names = losses.available()
    assert names == sorted(names)
    assert len(names) == 51


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_defaults_are_those_of_the_papers(name: str) -> None:
    assert losses.info(name).defaults == DEFAULTS[name]


@pytest.mark.parametrize("name", losses.available())
def test_every_loss_has_defaults_for_all_parameters_and_keeps_them_as_attributes(name: str) -> None:
    loss = losses.create(name)
    for parameter, default in parameters(type(loss)).items():
        assert default is not inspect.Parameter.empty
        kept = getattr(loss, parameter)
        assert kept == default or (kept is None and default is None)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownLoss, match=r"there is no loss 'focall'. Did you mean 'focal'"):
        losses.create("focall")


def test_an_unknown_parameter_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadParameter, match=r"loss 'focal' has no parameter 'gama'. Did you mean 'gamma'"):
        losses.create("focal", gama=2.0)


@pytest.mark.parametrize(
    ("name", "params", "sentence"),
    [
        ("focal", {"gamma": -1}, "loss 'focal': gamma must be >= 0, got -1"),
        ("focal", {"gamma": "2"}, "gamma must be a number, got '2' .str"),
        ("focal", {"gamma": float("nan")}, "gamma must be finite"),
        ("focal", {"gamma": True}, "gamma must be a number, got True"),
        ("focal", {"detach_weight": "yes"}, "detach_weight must be true or false, got 'yes'"),
        ("focal", {"class_weights": [1.0]}, "one weight a vocabulary entry, got 1"),
        ("focal", {"class_weights": [1.0, -2.0]}, "class_weights must be >= 0, got -2"),
        ("mixce", {"eta": 1.5}, "eta must be >= 0 and <= 1, got 1.5"),
        ("dco", {"n_samples": 2.5}, "n_samples must be a whole number, got 2.5"),
        ("dco", {"n_samples": 0}, "n_samples must be >= 1, got 0"),
        ("emo", {"mode": "emo3"}, "mode is 'emo3', .* Did you mean 'emo1' or 'emo2'|Did you mean 'emo2' or 'emo1'"),
        ("emo", {"cost_embedding": 3}, "cost_embedding must be fixed, adaptive or a model's path, got 3"),
        ("entmax", {"alpha": 1.0}, "alpha must be > 1, got 1.0"),
        ("bi_tempered", {"t1": 1.5, "t2": 1.2}, "t2 must be >= t1"),
        ("lovasz_softmax", {"classes": "presents"}, "Did you mean 'present'"),
        ("lovasz_softmax", {"classes": []}, "classes is an empty list"),
        ("eisl", {"ngrams": 2}, "ngrams must be a list of lengths"),
        ("contrastive_token", {"ct_length": 2.5}, "a share in .0, 1. or a whole number of tokens, got 2.5"),
    ],
)
def test_a_value_out_of_range_is_a_sentence(name: str, params: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadParameter, match=sentence):
        losses.create(name, **params)


def test_errors_are_value_errors_for_callers_that_know_nothing_of_lossbench() -> None:
    assert issubclass(LossError, ValueError)


def test_a_taken_name_cannot_be_registered_again() -> None:
    with pytest.raises(
        LossError, match=r"the loss name 'focal' is taken by lossbench.losses.families.distribution.Focal"
    ):

        @losses.register("focal")
        class Other(losses.TargetLoss):
            pass


def test_only_losses_can_be_registered() -> None:
    with pytest.raises(LossError, match=r"no subclass of lossbench.losses.Loss"):
        losses.register("module")(torch.nn.Linear)  # type: ignore[type-var]
    with pytest.raises(LossError, match="lower-case identifier"):
        losses.register("My Loss")(losses.TargetLoss)


def test_a_class_can_be_named_by_module_and_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_losses.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    loss = losses.create("my_losses:Doubled", factor=3.0)
    logits, labels = torch.zeros(1, 2), torch.tensor([0])
    assert loss(logits, labels).item() == pytest.approx(3 * torch.log(torch.tensor(2.0)).item())
    with pytest.raises(UnknownLoss, match="'my_losses:Missing' cannot be imported"):
        losses.create("my_losses:Missing")
    with pytest.raises(UnknownLoss, match=r"not a subclass of lossbench.losses.Loss"):
        losses.create("my_losses:number")


PLUGIN = textwrap.dedent(
    '''
    from lossbench import losses
    from lossbench.losses.parameters import number


    class Doubled(losses.TargetLoss):
        """Cross-entropy times a factor.

            f = -factor log p_t
        """

        def __init__(self, factor: float = 2.0) -> None:
            super().__init__()
            self.factor = number("factor", factor, above=0)

        def value(self, log_p, batch):
            return -self.factor * log_p
    '''
)


@pytest.mark.slow
def test_an_installed_package_adds_its_losses(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "my_plugin_losses.py").write_text(PLUGIN)
    (project / "pyproject.toml").write_text(
        textwrap.dedent(
            """
            [build-system]
            requires = ["hatchling"]
            build-backend = "hatchling.build"
            [project]
            name = "my-plugin-losses"
            version = "1.0"
            [project.entry-points."lossbench.losses"]
            doubled = "my_plugin_losses:Doubled"
            broken = "my_plugin_losses:Nothing"
            [tool.hatch.build.targets.wheel]
            include = ["my_plugin_losses.py"]
            """
        )
    )
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(site), str(project)], check=True, timeout=120)
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from lossbench import losses
    assert "doubled" in losses.available() and "broken" not in losses.available()
assert any("entry point 'broken'" in str(w.message) for w in caught), caught
assert losses.create("doubled").factor == 2.0
assert losses.info("doubled").summary == "Cross-entropy times a factor."
assert losses.check("doubled").ok
"""
    paths = f"{site}:{Path(losses.__file__).parents[2]}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env={"PYTHONPATH": paths, "PATH": ""})
