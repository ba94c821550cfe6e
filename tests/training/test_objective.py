import sys
from pathlib import Path

import pytest
import torch

from lossbench import app
from lossbench.errors import ConfigError
from lossbench.training.objective import create_objective, twins

OWN = """
from lossbench.losses import TargetLoss

class MyLoss(TargetLoss):
    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.power = power

    def value(self, log_p, batch):
        return (-log_p) ** self.power
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_losses_for_a_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("my_losses_for_a_test", None)
    return "my_losses_for_a_test.MyLoss"


def test_a_class_of_ones_own_is_trained_by_its_dotted_name(own_module: str):
    config = app.compose("loss=custom", f"loss._target_={own_module}", "+loss.power=2").loss
    assert config.name == "MyLoss"
    objective = create_objective(config)
    logits, labels = torch.randn(5, 7), torch.arange(5)
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none").square().mean()
    torch.testing.assert_close(objective(logits, labels), expected)


def test_a_class_that_cannot_be_imported_is_a_sentence():
    with pytest.raises(ConfigError, match=r"'no_such_module:MyLoss' cannot be imported"):
        create_objective(app.compose("loss=custom", "loss._target_=no_such_module.MyLoss").loss)


def test_a_scheduled_weight_moves_with_the_step():
    config = app.compose(
        "loss=ce_focal", "loss.terms.focal.weight={schedule: linear, start: 0.0, end: 1.0, steps: 10}"
    ).loss
    objective = create_objective(config)
    assert [objective.weight("focal", step) for step in (0, 5, 10, 99)] == [0.0, 0.5, 1.0, 1.0]


def test_two_losses_with_one_gradient_are_named_before_a_sweep():
    configs = [app.compose(f"loss={name}") for name in ("mae", "dft", "focal")]
    assert twins(configs) == ["mae and dft have the same gradient: report them as one method."]
