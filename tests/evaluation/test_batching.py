from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel

from lossbench.errors import ModelError
from lossbench.evaluation.batching import evaluating, in_batches


class Device:
    """Holds at most `capacity` examples at once, and notes the batches that were tried."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.tried = capacity, []

    def work(self, batch: list[int]) -> list[int]:
        self.tried.append(list(batch))
        if len(batch) > self.capacity:
            raise torch.OutOfMemoryError("full")
        return [10 * number for number in batch]


def test_results_come_in_the_order_of_the_indices() -> None:
    found = in_batches([[4, 0], [3, 1, 2]], 2, Device(9).work, tokens=lambda r: 1)
    assert found == [0, 10, 20, 30, 40]


def test_out_of_memory_halves_the_batch_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    device = Device(capacity=3)
    assert in_batches([range(10)], 8, device.work, tokens=lambda r: 1) == [10 * n for n in range(10)]
    assert [len(batch) for batch in device.tried] == [8, 4, 2, 2, 2, 2, 2]
    assert "going on with 2" in caplog.text


def test_a_single_example_too_large_for_the_device_is_named() -> None:
    with pytest.raises(ModelError, match=r"single example \(number 7\)"):
        in_batches([[7, 3]], 2, Device(capacity=0).work, tokens=lambda r: 1)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    def work(batch: list[int]) -> list[int]:
        raise RuntimeError("size mismatch")

    with pytest.raises(RuntimeError, match="size mismatch"):
        in_batches([[0]], 1, work, tokens=lambda r: 1)


def test_modes_are_given_back_after_an_error(gpt2: PreTrainedModel) -> None:
    gpt2.train()
    with pytest.raises(KeyError), evaluating(gpt2):
        assert not any(module.training for module in gpt2.modules())
        assert not torch.is_grad_enabled()
        raise KeyError
    assert all(module.training for module in gpt2.modules())
    assert torch.is_grad_enabled()
