import pytest
import torch

from lossbench import app
from lossbench.training.optimization import adamw, rate_factor, schedule
from tests.models_at_hand import tiny_llama


def factors(name: str, steps: int, *more: str) -> list[float]:
    config = app.compose(f"scheduler={name}", *more).scheduler
    return [rate_factor(config, step, steps) for step in range(steps)]


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
def test_the_rate_warms_up_peaks_once_and_never_leaves_its_range(name: str):
    found = factors(name, 50)
    assert found[:6] == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1])
    assert all(0 < value <= 1 for value in found)
    assert found[5:] == sorted(found[5:], reverse=True)


def test_linear_decay_is_a_straight_line_to_its_end():
    found = factors("linear", 10, "scheduler.warmup_fraction=0", "scheduler.final_fraction=0.5")
    assert found == pytest.approx([1 - 0.05 * step for step in range(10)])


def test_a_single_step_has_a_rate():
    assert factors("linear", 1)[0] > 0


def test_norms_are_not_decayed_and_frozen_weights_are_left_out():
    model = tiny_llama()
    model.model.embed_tokens.weight.requires_grad_(False)
    decayed, free = adamw(model, app.compose().optimizer).param_groups
    assert {weight.dim() for weight in decayed["params"]} == {2}
    assert {weight.dim() for weight in free["params"]} == {1}
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.01, 0.0)
    assert not any(weight is model.model.embed_tokens.weight for weight in decayed["params"])


def test_the_schedule_starts_with_the_first_step():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=1.0)
    schedule(optimizer, app.compose().scheduler, 50)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / 6)
