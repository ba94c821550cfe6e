from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lossbench.app import compose
from lossbench.models.load import add_peft
from lossbench.run import run
from lossbench.training.ema import WeightAverage
from tests.models.architectures import model_of
from tests.models.test_architectures import LORA, curve, tuning


class One(nn.Module):
    def __init__(self, value: float, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([value], dtype=dtype))


def move(model: One, value: float) -> None:
    with torch.no_grad():
        model.weight.fill_(value)


def test_it_is_the_average_that_its_formula_says():
    model = One(1.0)
    average, expected = WeightAverage(model, decay=0.3), 1.0
    for update, value in enumerate([2.0, -1.0, 4.0, 0.5, 3.0]):
        move(model, value)
        average.update()
        decay = min(0.3, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * value
    with average.applied():
        assert model.weight.item() == pytest.approx(expected, rel=1e-12)
    assert model.weight.item() == 3.0


def test_small_changes_of_bfloat16_weights_are_not_lost():
    model = One(1.0, torch.bfloat16)
    average = WeightAverage(model, decay=0.999)
    for _ in range(50):
        move(model, 1.0078125)  # the next number of bfloat16
        average.update()
    assert average.state_dict()["weight"].dtype == torch.float32
    assert 1.0 < average.state_dict()["weight"].item() < 1.0078125


def test_only_what_is_trained_is_kept():
    tuned = add_peft(model_of("Llama"), LORA)
    names = set(WeightAverage(tuned, 0.9).state_dict()) - {"updates"}
    assert names == {name for name, weight in tuned.named_parameters() if weight.requires_grad}


def test_continuing_from_its_state_is_as_if_it_had_not_stopped():
    model = One(1.0)
    average = WeightAverage(model, decay=0.9)
    move(model, 2.0)
    average.update()
    state = {name: value.clone() for name, value in average.state_dict().items()}
    again = WeightAverage(model, decay=0.9)
    again.load_state_dict(state)
    for value in (3.0, -1.0):
        move(model, value)
        average.update()
        again.update()
    assert torch.equal(average.state_dict()["weight"], again.state_dict()["weight"])
    assert average.state_dict()["updates"] == again.state_dict()["updates"] == 3


def test_the_state_of_another_model_is_refused():
    average = WeightAverage(One(1.0), 0.9)
    with pytest.raises(KeyError, match="averaged weights of another model: bias"):
        average.load_state_dict({**average.state_dict(), "bias": torch.ones(1)})


def test_an_error_inside_gives_the_weights_back():
    model = One(1.0)
    average = WeightAverage(model, decay=0.5)
    move(model, 5.0)
    with pytest.raises(RuntimeError), average.applied():
        raise RuntimeError
    assert model.weight.item() == 5.0


@pytest.mark.parametrize("peft", [(), ("peft=lora",)])
def test_training_itself_does_not_notice(peft: tuple[str, ...]):
    plain, averaged = tuning(model_of("Llama"), *peft), tuning(model_of("Llama"), "optimizer.ema_decay=0.9", *peft)
    assert curve(plain) == curve(averaged)
    own = [weight.detach().clone() for weight in averaged.parameters()]
    with averaged.averaged():
        assert not all(torch.equal(a, b) for a, b in zip(own, averaged.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(own, averaged.parameters(), strict=True))
    with plain.averaged():
        assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), own, strict=True))


def test_the_average_is_what_a_run_keeps_and_evaluates(tmp_path: Path):
    quick = ("evaluation.limit=4", "evaluation.generate=false", "trainer.accelerator=cpu", "trainer.progress=false")
    more = ("trainer.max_steps=3", "dataset.train_examples=20", "evaluation.validation_limit=4", "optimizer.lr=1e-3")
    kept = {}
    for decay in ("null", "0.5"):
        folder = run(
            compose(f"paths.runs={tmp_path}", "tracking.mode=disabled", f"optimizer.ema_decay={decay}", *quick, *more)
        )
        kept[decay] = load_file(folder / "checkpoints" / "best.safetensors")
    assert kept["null"].keys() == kept["0.5"].keys()
    assert not all(torch.equal(kept["null"][name], kept["0.5"][name]) for name in kept["null"])
