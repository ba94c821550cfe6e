"""Training that is stopped anywhere and goes on is the training that was not stopped."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from lossbench.training.checkpoint import Checkpoints
from lossbench.training.interrupt import Interrupted
from lossbench.training.resume import random_state, set_random_state
from lossbench.training.state import CheckpointError, read_state, write_state
from tests.training.training_at_hand import STEPS, KilledError, Lines, assert_same, interrupted, train

KINDS = {
    "full": (),
    "accumulated": ("trainer.accumulate=4", "trainer.batch_size=1"),
    "lora": ("peft=lora", "peft.dropout=0.3"),
}
OTHERS = {
    "average": ("optimizer.ema_decay=0.9",),
    "whole_logits": ("trainer.fused_head=false", "dataset.group_by_length=true"),
    "token_budget": ("trainer.tokens_per_step=30", "trainer.batch_size=4"),
    "sgd": ("optimizer=sgd",),
}
WITH_STATE = {
    "loss_truncation": ("loss=loss_truncation", "++loss.terms.loss_truncation.min_count=4",
                        "++loss.terms.loss_truncation.recompute=3"),
    "mile": ("loss=mile", "trainer.accumulate=2"),
    "error_norm_truncation": ("loss=error_norm_truncation", "++loss.terms.error_norm_truncation.start_iteration=3",
                              "++loss.terms.error_norm_truncation.threshold=1.0"),
    "token_order_prediction": ("loss=token_order_prediction",),
    "psft": ("loss=psft", "++loss.terms.psft.snapshot_every=3"),  # compares with a snapshot of the model
    "emo_adaptive": ("loss=emo1_adaptive",),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_after_any_step_changes_nothing(tmp_path: Path, kind: str):
    whole = train(tmp_path / "whole", *KINDS[kind])
    assert whole.fitted.done.step == STEPS
    for step in range(1, STEPS + 1):
        assert_same(interrupted(tmp_path / f"{step}", *KINDS[kind], after=step), whole)


@pytest.mark.parametrize("kind", OTHERS)
def test_so_does_every_other_way_to_train(tmp_path: Path, kind: str):
    whole = train(tmp_path / "whole", *OTHERS[kind])
    for step in (3, STEPS):
        assert_same(interrupted(tmp_path / f"{step}", *OTHERS[kind], after=step), whole)


@pytest.mark.parametrize("loss", WITH_STATE)
def test_losses_with_a_state_go_on_with_it(tmp_path: Path, loss: str):
    whole = train(tmp_path / "whole", *WITH_STATE[loss])
    for step in (1, 4):
        assert_same(interrupted(tmp_path / f"{step}", *WITH_STATE[loss], after=step), whole)


def test_a_killed_run_goes_on_from_the_last_periodic_checkpoint(tmp_path: Path):
    whole = train(tmp_path / "whole")
    for step in range(1, STEPS + 1):
        assert_same(interrupted(tmp_path / f"{step}", after=step, kill=True), whole)


def test_a_run_may_be_stopped_after_every_single_step(tmp_path: Path):
    whole, journal = train(tmp_path / "whole"), Lines(tmp_path / "pieces")
    for step in range(1, STEPS + 1):
        with pytest.raises(Interrupted):
            train(tmp_path / "pieces", journal=journal, stop_after=step)
    assert_same(train(tmp_path / "pieces", journal=journal), whole)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_loader_workers_change_nothing(tmp_path: Path, accumulate: int):
    settings = (f"trainer.accumulate={accumulate}",)
    whole = train(tmp_path / "whole", *settings)
    assert_same(interrupted(tmp_path / "two", *settings, "trainer.loader_workers=2", after=3), whole)


def test_what_was_logged_after_the_last_checkpoint_is_logged_once(tmp_path: Path):
    journal = Lines(tmp_path)
    with pytest.raises(KilledError):
        train(tmp_path, journal=journal, kill_after=3)
    assert any('"step": 3' in line for line in journal.kept)
    assert_same(train(tmp_path, journal=journal), train(tmp_path / "whole"))


def test_early_stopping_counts_on_after_a_restart(tmp_path: Path):
    settings = ("trainer.early_stopping=2", "trainer.validate_every=1", "trainer.max_steps=30", "optimizer.lr=0.1")
    whole = train(tmp_path / "whole", *settings)
    last = whole.fitted.done.step
    assert last == whole.fitted.best.step + 2 < 30
    for step in (last - 1, last):
        assert_same(interrupted(tmp_path / f"{step}", *settings, after=step), whole)


def test_a_damaged_last_checkpoint_falls_back_to_the_one_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    journal = Lines(tmp_path)
    with pytest.raises(KilledError):
        train(tmp_path, journal=journal, kill_after=5)
    last = Checkpoints(tmp_path / "checkpoints").last
    content = bytearray(last.read_bytes())
    content[-9] ^= 1
    last.write_bytes(content)
    assert_same(train(tmp_path, journal=journal), train(tmp_path / "whole"))
    said = capsys.readouterr().err
    assert "last.safetensors is damaged: its checksum" in said
    assert "going on after optimizer step 2" in said


def test_without_a_usable_checkpoint_training_begins_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    journal = Lines(tmp_path)
    with pytest.raises(Interrupted):
        train(tmp_path, journal=journal, stop_after=3)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.last.write_bytes(checkpoints.last.read_bytes()[:-7])
    checkpoints.previous.write_bytes(b"")
    assert_same(train(tmp_path, journal=journal), train(tmp_path / "whole"))
    assert "no checkpoint can be used" in capsys.readouterr().err


def test_a_full_disk_leaves_the_checkpoint_before_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from safetensors import SafetensorError

    from lossbench.training import state

    real, journal, written = state.save_file, Lines(tmp_path), []

    def full(tensors: dict, file: Path, metadata: dict) -> None:
        if file.name == ".new.safetensors.tmp":
            written.append(file)
            if len(written) == 2:
                file.write_bytes(b"begun")
                raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        real(tensors, file, metadata)

    monkeypatch.setattr(state, "save_file", full)
    with pytest.raises(CheckpointError, match=r"could not be written: the disk is full.*run the same command again"):
        train(tmp_path, journal=journal)
    assert read_state(Checkpoints(tmp_path / "checkpoints").last)["done"]["step"] == 2
    assert not list((tmp_path / "checkpoints").glob(".*"))
    monkeypatch.undo()
    assert_same(train(tmp_path, journal=journal), train(tmp_path / "whole"))


def test_a_checkpoint_holds_no_plan_no_data_and_under_lora_no_frozen_weight(tmp_path: Path):
    with pytest.raises(Interrupted):
        train(tmp_path, "peft=lora", stop_after=3)
    state = read_state(Checkpoints(tmp_path / "checkpoints").last)
    assert set(state) == {
        "weights", "optimizer", "schedule", "average", "snapshot", "ranks", "done", "lines", "best",
    }  # fmt: skip
    assert all("lora_" in name for name in state["weights"])


def test_random_generators_go_on_where_they_were(tmp_path: Path):
    def draw() -> list[float]:
        return [torch.rand(()).item(), float(np.random.rand()), random.random(), random.gauss(0, 1), np.random.randn()]

    random.gauss(0, 1), np.random.randn()  # each keeps a second number for later
    write_state(tmp_path / "state.safetensors", random_state())
    expected = draw()
    draw()
    set_random_state(read_state(tmp_path / "state.safetensors"))
    assert draw() == expected
