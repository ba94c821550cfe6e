import json
import struct
from pathlib import Path

from lossbench.sweep import attempts
from lossbench.sweep.attempts import Attempt


def logged(folder: Path, step: int) -> None:
    with (folder / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"step": step}) + "\n")


def test_attempts_are_counted_with_how_they_ended(tmp_path: Path):
    first = attempts.begin(tmp_path, "7_0", "n0")
    logged(tmp_path, 12)
    attempts.end(tmp_path, first, "interrupted", 143)
    second = attempts.begin(tmp_path, "7_0", "n1")
    assert (first.number, second.number) == (1, 2)
    one, two = attempts.read(tmp_path)
    assert (one.how, one.code, one.step, one.host) == ("interrupted", 143, 12, "n0")
    assert (two.is_open, two.step) == (True, 12)


def test_a_line_that_was_cut_off_harms_no_other(tmp_path: Path):
    attempts.begin(tmp_path, "7_0", "n0")
    with (tmp_path / attempts.FILE).open("a") as file:
        file.write('{"event": "end", "atte')
    second = attempts.begin(tmp_path, "7_0", "n1")
    assert [attempt.number for attempt in attempts.read(tmp_path)] == [1, second.number] == [1, 2]


def test_attempts_without_progress_are_counted_from_the_last_one_that_made_some():
    def of(*steps: int) -> list[Attempt]:
        return [Attempt(n, "1", "h", 0.0, 1.0, "interrupted", 0, step) for n, step in enumerate(steps, 1)]

    assert attempts.without_progress(of()) == 0
    assert attempts.without_progress(of(0, 0)) == 2
    assert attempts.without_progress(of(5)) == 0
    assert attempts.without_progress(of(5, 5, 3)) == 2
    assert attempts.without_progress(of(5, 5, 6)) == 0


def test_the_last_step_is_that_of_the_log_or_of_the_checkpoint(tmp_path: Path):
    assert attempts.last_step(tmp_path) == 0
    logged(tmp_path, 3)
    assert attempts.last_step(tmp_path) == 3
    with (tmp_path / "metrics.jsonl").open("a") as log:
        log.write('{"step": 9')  # cut off
    assert attempts.last_step(tmp_path) == 3
    (tmp_path / "checkpoints").mkdir()
    state = json.dumps({"map": [["done", {"map": [["step", 8], ["tokens", 1]]}]]})
    header = json.dumps({"__metadata__": {"state": state}}).encode()
    (tmp_path / "checkpoints/last.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert attempts.last_step(tmp_path) == 8
    (tmp_path / "checkpoints/previous.safetensors").write_bytes(b"damaged")
    assert attempts.last_step(tmp_path) == 8


def test_the_checkpoint_that_training_writes_says_its_step(tmp_path: Path):
    import torch

    from lossbench.training.state import write_state

    write_state(tmp_path / "checkpoints/last.safetensors", {"done": {"step": 11}, "weights": {"a": torch.ones(2)}})
    assert attempts.last_step(tmp_path) == 11
