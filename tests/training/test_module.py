import copy

import pytest
import torch

from lossbench import app
from lossbench.data.batches import StepBatches, StepDataset
from lossbench.data.step_plan import StepPlan
from lossbench.data.tokens import TokenizedExample
from lossbench.training.context import Context
from lossbench.training.module import FineTuning, answer_cross_entropy
from lossbench.training.objective import create_objective
from tests.models_at_hand import byte_tokenizer, tiny_llama

EXAMPLES = [
    TokenizedExample(f"ex-{n}", [(7 * n + 3 * t) % 250 for t in range(6 + n)], target_start=2 + n % 3) for n in range(8)
]


def module(*overrides: str, model: torch.nn.Module | None = None) -> FineTuning:
    config = app.compose(*overrides)
    model = model or tiny_llama()
    objective = create_objective(config.loss)
    context = Context(objective, model, byte_tokenizer(), EXAMPLES)
    made = FineTuning(model, objective, context, config, steps=1, log=lambda step, values: None)
    made.configure_optimizers()
    return made


def step(batch_size: int, accumulate: int) -> StepBatches:
    return StepDataset(
        EXAMPLES, StepPlan(tuple(len(e.input_ids) for e in EXAMPLES), batch_size, accumulate, seed=0), last=1
    )[0]


def gradients(tuning: FineTuning, of: StepBatches) -> torch.Tensor:
    tuning = copy.deepcopy(tuning).double()
    for batch in of.batches:
        logits = tuning.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
        terms = tuning.objective.terms(logits, batch.labels, normalizer=of.normalizer)
        tuning.objective.total(terms).backward()
    return torch.cat([weight.grad.flatten() for weight in tuning.model.parameters() if weight.grad is not None])


@pytest.mark.parametrize("loss", ["cross_entropy", "focal", "self_adjusting_dice", "emo"])
@pytest.mark.parametrize("accumulate", [2, 4, 8])
def test_accumulation_gives_the_gradient_of_one_large_batch(loss: str, accumulate: int):
    tuning = module(f"loss={loss}")
    whole, pieces = step(8, 1), step(8 // accumulate, accumulate)
    # float64 weights, but transformers computes norms and rotary embeddings in float32
    torch.testing.assert_close(gradients(tuning, pieces), gradients(tuning, whole), rtol=1e-5, atol=1e-8)


def test_dropout_is_on_although_from_pretrained_turns_it_off():
    tuning = module(model=tiny_llama(dropout=0.5).eval())
    assert tuning.model.training


def test_cross_entropy_of_the_answer_is_that_of_torch():
    batch = step(8, 1).batches[0]
    logits = torch.randn(*batch.input_ids.shape, 258)
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.labels["answer"].flatten(), reduction="sum"
    )
    torch.testing.assert_close(answer_cross_entropy(logits, batch), expected)
