import copy

import pytest
import torch

from lossbench import losses
from lossbench.data.batches import IGNORED
from lossbench.training.gate import gate_sum, has_gate

LABELS = torch.tensor([[IGNORED, 3, 1, IGNORED], [2, 2, 0, 4]])
ANSWER = torch.tensor([[IGNORED, IGNORED, 1, IGNORED], [IGNORED, 2, 0, 4]])
BY_SCOPE = {"answer": ANSWER, "sequence": LABELS}


def mean_gate(terms: dict, logits: torch.Tensor) -> float:
    def log_p_of(labels: torch.Tensor) -> torch.Tensor:
        return logits.log_softmax(-1).gather(-1, labels.clamp_min(0)[..., None])[..., 0]

    return float(gate_sum(losses.mixture(terms), log_p_of, BY_SCOPE, 6, 0, {})) / 4


def gate_by_gradients(terms: dict, logits: torch.Tensor) -> float:
    """The same from whole gradients: that of a `TargetLoss` is cross-entropy's times the gate, token by token."""
    logits = logits.clone().requires_grad_()
    count = {scope: 1 for scope in BY_SCOPE}
    mixture = losses.mixture(terms).eval()
    (ours,) = torch.autograd.grad(mixture(logits, BY_SCOPE, normalizer=count), logits)
    cross_entropy = losses.create("cross_entropy")(logits, LABELS, reduction="sum")
    (theirs,) = torch.autograd.grad(cross_entropy, logits)
    return float((ours.norm(dim=-1) / theirs.norm(dim=-1))[ANSWER != IGNORED].mean())


@pytest.mark.parametrize(
    "terms",
    [
        {"cross_entropy": 1.0},
        {"focal": {"gamma": 2.0}},
        {"mae": 1.0},
        {"cross_entropy": {"weight": 0.6, "scope": "sequence"}, "focal": {"weight": 0.4}},
        {"goldfish": {"strategy": "static", "k": 2}},
        {"loss_truncation": {"drop_fraction": 0.5}},
    ],
)
def test_it_is_the_share_of_cross_entropys_gradient(terms: dict):
    torch.manual_seed(0)
    logits = torch.randn(2, 4, 6, dtype=torch.float64)
    assert mean_gate(terms, logits) == pytest.approx(gate_by_gradients(terms, logits), rel=1e-9)


def test_cross_entropy_lets_everything_through():
    assert mean_gate({"cross_entropy": 1.0}, torch.randn(2, 4, 6)) == pytest.approx(1.0)


def test_measuring_does_not_move_a_state():
    mixture = losses.mixture({"loss_truncation": 1.0}).train()
    before = copy.deepcopy(mixture.state_dict())
    gate_sum(mixture, lambda labels: torch.full(labels.shape, -1.0), BY_SCOPE, 6, 0, {})
    assert all(torch.equal(value, before[name]) for name, value in mixture.state_dict().items())
    assert mixture.losses["loss_truncation"].training


def test_it_is_defined_for_functions_of_the_targets_probability_alone():
    assert has_gate(losses.mixture({"focal": 1.0, "cross_entropy": 1.0}))
    assert not has_gate(losses.mixture({"cross_entropy": 1.0, "emo": 1.0}))
