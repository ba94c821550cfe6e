from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from lossbench import app
from lossbench.errors import ConfigError
from lossbench.models.load import add_peft
from lossbench.training.optimization import create_optimizer, rate_factor, schedule
from tests.models.architectures import ARCHITECTURES, model_of
from tests.models_at_hand import tiny_llama


def factors(name: str, steps: int, *more: str) -> list[float]:
    config = app.compose(f"scheduler={name}", *more).scheduler
    return [rate_factor(config, step, steps) for step in range(steps)]


def optimizer_of(model: nn.Module, *overrides: str) -> torch.optim.Optimizer:
    return create_optimizer(model, app.compose(*overrides).optimizer)


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
def test_the_rate_warms_up_peaks_once_and_never_leaves_its_range(name: str):
    found = factors(name, 50)
    assert found[:6] == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1])
    assert all(0 < value <= 1 for value in found)
    assert found[5:] == sorted(found[5:], reverse=True)


def test_linear_decay_is_a_straight_line_to_its_end():
    found = factors("linear", 10, "scheduler.warmup_fraction=0", "scheduler.final_fraction=0.5")
    assert found == pytest.approx([1 - 0.05 * step for step in range(10)])


def test_cosine_decay_is_half_way_down_in_the_middle():
    found = factors("cosine", 10, "scheduler.warmup_fraction=0", "scheduler.final_fraction=0.2")
    assert found[5] == pytest.approx(0.6)


def test_a_single_step_has_a_rate():
    assert factors("linear", 1)[0] > 0


def test_the_schedule_starts_with_the_first_step():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=1.0)
    schedule(optimizer, app.compose().scheduler, 50)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / 6)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_norms_and_biases_of_every_architecture_are_not_decayed(kind: str, name: str):
    model = model_of(kind)
    decayed, free = optimizer_of(model, f"optimizer={name}").param_groups
    found = {id(weight): group["weight_decay"] for group in (decayed, free) for weight in group["params"]}
    kept = {
        id(weight)
        for module in model.modules()
        for own, weight in module.named_parameters(recurse=False)
        if "norm" in type(module).__name__.lower() or own == "bias"
    }
    assert kept
    for owner, weight in model.named_parameters():
        assert found.pop(id(weight)) == (0.0 if id(weight) in kept else 0.01), owner
    assert not found
    embedding = model.get_input_embeddings().weight
    assert any(weight is embedding for weight in decayed["params"]), "embeddings are matrices as others are"


def test_frozen_weights_are_left_out():
    tuned = add_peft(tiny_llama(), app.compose("peft=lora").peft)
    groups = optimizer_of(tuned).param_groups
    assert {id(weight) for group in groups for weight in group["params"]} == {
        id(weight) for name, weight in tuned.named_parameters() if "lora_" in name
    }


def test_sgd_keeps_its_momentum():
    weight = nn.Parameter(torch.ones(1))
    model = nn.Module()
    model.weight = weight
    optimizer = optimizer_of(model, "optimizer=sgd", "optimizer.lr=0.1", "optimizer.momentum=0.5")
    moved = []
    for _ in range(3):
        before = weight.item()
        weight.grad = torch.ones(1)
        optimizer.step()
        moved.append(before - weight.item())
    assert moved == pytest.approx([0.1, 0.15, 0.175])


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["optimizer=sgd", "optimizer.betas=[0.9,0.99]"], "optimizer.betas must be null for optimizer=sgd"),
        (["optimizer.momentum=0.9"], "optimizer.momentum must be null for optimizer=adamw"),
        (["optimizer.eps=null"], "optimizer.eps needs a value for optimizer=adamw"),
        (["optimizer.ema_decay=1.0"], "optimizer.ema_decay=1.0 cannot be used"),
    ],
)
def test_keys_of_another_optimizer_are_refused(overrides: list[str], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        app.compose(*overrides)


def test_adamw_of_eight_bits_goes_where_adamw_goes():
    pytest.importorskip("bitsandbytes")  # its code for CPUs
    ends = []
    for name in ("adamw", "adamw_8bit"):
        torch.manual_seed(0)
        model = nn.Linear(128, 128)
        start = model.weight.detach().clone()
        optimizer = optimizer_of(model, f"optimizer={name}", "optimizer.lr=1e-3")
        for _ in range(5):
            model(torch.randn(16, 128)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        ends.append(model.weight.detach() - start)
    assert ends[0].norm() > 0.1
    assert nn.functional.cosine_similarity(ends[0].flatten(), ends[1].flatten(), dim=0) > 0.98


def test_states_of_eight_bits_leave_embeddings_in_thirty_two():
    bitsandbytes = pytest.importorskip("bitsandbytes")
    model = tiny_llama()
    optimizer: Any = optimizer_of(model, "optimizer=adamw_8bit")
    assert isinstance(optimizer, bitsandbytes.optim.AdamW8bit)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert (optimizer.param_groups[0]["betas"], optimizer.param_groups[0]["eps"]) == ((0.9, 0.999), 1e-8)
    optimizer.check_overrides()
    bits = {
        name: optimizer.get_config(group, place, optimizer.param_groups[group])["optim_bits"]
        for group, entry in enumerate(optimizer.param_groups)
        for place, weight in enumerate(entry["params"])
        for name, own in model.named_parameters()
        if own is weight
    }
    assert bits.pop("model.embed_tokens.weight") == 32
    assert set(bits.values()) == {8}
