from pathlib import Path

import torch
from safetensors.torch import load_file

from lossbench import app
from lossbench.models.load import add_peft
from lossbench.training.checkpoint import BestCheckpoint
from tests.models_at_hand import tiny_llama


def test_the_best_weights_come_back_bit_for_bit(tmp_path: Path):
    model, best = tiny_llama(), BestCheckpoint(tmp_path)
    kept = {name: weight.clone() for name, weight in model.named_parameters()}
    assert best.offer(model, 5, 2.0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1.0)
    assert not best.offer(model, 6, 2.0)
    assert not best.offer(model, 7, float("nan"))
    best.restore(model)
    assert (best.step, best.value) == (5, 2.0)
    assert all(torch.equal(weight, kept[name]) for name, weight in model.named_parameters())


def test_only_trained_weights_are_saved(tmp_path: Path):
    model, best = add_peft(tiny_llama(), app.compose("peft=lora").peft), BestCheckpoint(tmp_path)
    best.offer(model, 1, 1.0)
    names = set(load_file(best.file))
    assert names == {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert all("lora_" in name for name in names)
    best.restore(model)


def test_nothing_half_written_is_left(tmp_path: Path):
    BestCheckpoint(tmp_path / "checkpoints").offer(tiny_llama(), 1, 1.0)
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == ["best.safetensors"]
