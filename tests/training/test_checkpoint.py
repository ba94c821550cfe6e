from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lossbench import app
from lossbench.models.load import add_peft
from lossbench.training.checkpoint import BestCheckpoint, Checkpoints
from tests.models_at_hand import tiny_llama


def test_the_best_weights_come_back_bit_for_bit(tmp_path: Path):
    model, best = tiny_llama(), BestCheckpoint(tmp_path)
    kept = {name: weight.clone() for name, weight in model.named_parameters()}
    assert not best.offer(model, 4, float("nan"))
    assert best.offer(model, 5, 2.0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1.0)
    assert not best.offer(model, 6, 2.0)
    assert not best.offer(model, 7, float("nan"))
    best.restore(model)
    assert (best.step, best.value) == (5, 2.0)
    assert all(torch.equal(weight, kept[name]) for name, weight in model.named_parameters())
    best.settle()
    assert [file.name for file in tmp_path.iterdir()] == ["best.safetensors"]
    BestCheckpoint(tmp_path).restore(model)  # as an evaluation after the fact does, which knows no step


def test_more_can_be_better(tmp_path: Path):
    best = BestCheckpoint(tmp_path, "val/em", higher_is_better=True)
    assert [best.offer(tiny_llama(), step, value) for step, value in enumerate((0.2, 0.1, 0.3))] == [True, False, True]


def test_only_trained_weights_are_saved_by_their_names(tmp_path: Path):
    model, best = add_peft(tiny_llama(), app.compose("peft=lora").peft), BestCheckpoint(tmp_path)
    best.offer(model, 1, 1.0)
    best.settle()
    names = set(load_file(best.file))
    assert names == {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert all("lora_" in name for name in names)
    best.restore(model)


def test_other_ranks_choose_alike_and_write_nothing(tmp_path: Path):
    best = BestCheckpoint(tmp_path, writes=False)
    assert best.offer(tiny_llama(), 1, 1.0)
    assert not best.offer(tiny_llama(), 2, 1.5)
    assert (best.step, list(tmp_path.iterdir())) == (1, [])


def test_best_weights_stay_while_a_checkpoint_refers_to_them(tmp_path: Path):
    best, checkpoints, model = BestCheckpoint(tmp_path), Checkpoints(tmp_path), tiny_llama()
    kept = []
    for step, value in enumerate((3.0, 2.0, 1.0, 5.0)):
        best.offer(model, step, value)
        checkpoints.write({}, best)
        kept.append(sorted(file.name for file in tmp_path.glob("best-*")))
    assert kept == [
        ["best-0.safetensors"],
        ["best-0.safetensors", "best-1.safetensors"],
        ["best-1.safetensors", "best-2.safetensors"],
        ["best-2.safetensors"],
    ]
    checkpoints.discard()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("crash", ["last", "new"])
def test_a_crash_while_a_checkpoint_is_renamed_loses_nothing(tmp_path: Path, crash: str):
    best, checkpoints = BestCheckpoint(tmp_path), Checkpoints(tmp_path)
    best.offer(tiny_llama(), 0, 1.0)
    checkpoints.write({"number": 1}, best)
    checkpoints.write({"number": 2}, best)
    if crash == "new":  # between the two renames
        checkpoints.last.replace(tmp_path / "new.safetensors")
    else:  # before the first
        (tmp_path / ".new.safetensors.tmp").write_bytes(b"half")
    state, complaints = Checkpoints(tmp_path).read(BestCheckpoint(tmp_path))
    assert (state or {})["number"] == 2
    assert not complaints


def test_a_checkpoint_whose_best_weights_are_gone_is_not_used(tmp_path: Path):
    best, checkpoints = BestCheckpoint(tmp_path), Checkpoints(tmp_path)
    best.offer(tiny_llama(), 7, 1.0)
    checkpoints.write({}, best)
    best.of(7).unlink()
    state, (complaint,) = checkpoints.read(BestCheckpoint(tmp_path))
    assert state is None
    assert "the best weights of step 7, which are not there" in complaint
