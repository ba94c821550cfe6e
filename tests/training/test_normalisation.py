"""One optimizer step has the gradient of one large batch, however it is cut and shared, for every local loss."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lossbench import app
from lossbench.data.batches import StepDataset
from lossbench.data.step_plan import StepPlan
from lossbench.data.tokens import TokenizedExample
from lossbench.training.context import Context
from lossbench.training.module import FineTuning
from lossbench.training.objective import batch_notes, create_objective
from tests.models_at_hand import byte_tokenizer
from tests.training.training_at_hand import composed

EXAMPLES = [
    # numbers 3 and 8 have no answer token at all
    TokenizedExample(f"ex-{n}", [(7 * n + 3 * t) % 50 for t in range(4 + n)], target_start=4 + n if n in (3, 8) else 2)
    for n in range(11)
]
LENGTHS = tuple(len(example.input_ids) for example in EXAMPLES)
LOCAL = ["cross_entropy", "focal", "emo", "ce_focal", "squentropy", "label_smoothing", "taylor_cross_entropy", "gem"]


class Float64Model(nn.Module):
    """A causal LM in float64 from end to end; transformers computes norms and rotary embeddings in float32."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = SimpleNamespace(initializer_range=0.02)
        self.embedding, self.body, self.lm_head = nn.Embedding(50, 8), nn.Linear(8, 8), nn.Linear(8, 50, bias=False)
        self.double()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> SimpleNamespace:
        seen = self.embedding(input_ids).cumsum(1) / torch.arange(1, input_ids.shape[1] + 1)[:, None]
        return SimpleNamespace(logits=self.lm_head(torch.tanh(self.body(seen))))


def gradient(loss: str, fused: bool, batch_size: int, accumulate: int, world: int, number: int) -> Tensor:
    """Of optimizer step `number`, the shares of all ranks added up."""
    config = composed(f"loss={loss}", f"trainer.fused_head={fused}")
    model, objective = Float64Model(), create_objective(config.loss)
    context = Context(objective, model, byte_tokenizer(), EXAMPLES)
    tuning = FineTuning(model, objective, context, config, steps=9, log=lambda step, values: None)  # type: ignore[arg-type]
    plan = StepPlan(LENGTHS, batch_size, accumulate, seed=0, world_size=world)
    for rank in range(world):
        share = StepDataset(EXAMPLES, plan, last=9, rank=rank)[number]
        for batch in share.batches:
            tuning._losses(batch, share, logging=False)[0].backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("loss", LOCAL)
def test_neither_accumulation_nor_ranks_change_the_gradient(loss: str, fused: bool):
    for number in (0, 1):  # 8 examples, and the last 3 of the epoch
        whole = gradient(loss, fused, 8, 1, 1, number)
        assert whole.abs().max() > 1e-4
        for batch_size, accumulate, world in ((4, 2, 1), (1, 8, 1), (2, 4, 2), (1, 8, 3), (4, 2, 2)):
            pieces = gradient(loss, fused, batch_size, accumulate, world, number)
            torch.testing.assert_close(pieces, whole, rtol=1e-10, atol=1e-12)


def test_a_loss_over_a_whole_batch_says_over_what_it_is_computed():
    def notes(loss: str) -> list[str]:
        return batch_notes(create_objective(app.compose(f"loss={loss}").loss), 4)

    assert notes("focal") == []
    (note,) = notes("ce_lovasz")
    assert "lovasz_softmax is one number for a whole batch: it is computed over micro-batches of at most 4" in note
    assert "statistics of the batch" in notes("mile")[0]
    assert "weighs sequences" in notes("loss_truncation")[0]
