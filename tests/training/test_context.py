"""Every loss finds what it needs, or says before training what it cannot get."""

import math

import pytest
import torch
from torch import nn

from lossbench import app, losses, resources
from lossbench.data.batches import IGNORED, Batch, collate
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import ConfigError
from lossbench.models.load import add_peft
from lossbench.models.vocabulary import number_values
from lossbench.training.context import Context, label_counts
from lossbench.training.objective import create_objective
from tests.models_at_hand import byte_tokenizer, tiny_llama
from tests.real_data import real_data

EXAMPLES = [
    TokenizedExample(f"ex-{n}", [(7 * n + 3 * t) % 250 for t in range(6 + n)], target_start=2 + n % 3) for n in range(4)
]
BATCH = collate(EXAMPLES)
CONFIGS = sorted(file.stem for file in (resources.folder("conf") / "loss").glob("*.yaml") if file.stem != "custom")


def prepared(*overrides: str, model: nn.Module | None = None) -> tuple[losses.Mixture, nn.Module, Context]:
    model = model or tiny_llama()
    objective = create_objective(app.compose(*overrides).loss)
    return objective, model, Context(objective, model, byte_tokenizer(), EXAMPLES)


def forward(objective: losses.Mixture, model: nn.Module, context: Context, step: int = 0, batch: Batch = BATCH):
    outputs = model(batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True)
    given = context.of(model, batch, outputs.hidden_states[-1], step)
    return objective.terms(outputs.logits, batch.labels, **given)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configured_loss_gets_its_context_and_a_finite_gradient(name: str):
    objective, model, context = prepared(f"loss={name}")
    total = objective.total(forward(objective, model, context))
    total.backward()
    gradients = [w.grad for w in (*model.parameters(), *context.parameters()) if w.grad is not None]
    assert gradients
    assert total.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_adaptive_emo_sees_the_head_as_it_is_now():
    objective, model, context = prepared("loss=emo", "loss.terms.emo.cost_embedding=adaptive")
    (emo,) = objective.losses.values()
    with torch.no_grad():
        model.lm_head.weight[:, 0].add_(1.0)
    context.of(model, BATCH, None, 1)
    torch.testing.assert_close(emo.bound_embedding, nn.functional.normalize(model.lm_head.weight.detach(), dim=1))
    assert not emo.bound_embedding.requires_grad


def test_fixed_emo_keeps_the_head_as_it_was():
    objective, model, context = prepared("loss=emo")
    (emo,) = objective.losses.values()
    before = emo.bound_embedding.clone()
    with torch.no_grad():
        model.lm_head.weight.add_(1.0)
    assert torch.equal(emo.bound_embedding, before)
    assert context.of(model, BATCH, None, 0) == {}


def test_adaptive_emo_includes_lora_on_the_head():
    peft = app.compose("peft=lora", "peft.target_modules=[q_proj,lm_head]").peft
    model = add_peft(tiny_llama(), peft)
    objective, _, context = prepared("loss=emo", "loss.terms.emo.cost_embedding=adaptive", model=model)
    head = model.get_output_embeddings()
    with torch.no_grad():
        head.lora_B["default"].weight.fill_(0.5)
    expected = head.base_layer.weight + 0.5 * head.lora_A["default"].weight.sum(0) * head.scaling["default"]
    (emo,) = objective.losses.values()
    context.of(model, BATCH, None, 0)
    torch.testing.assert_close(emo.bound_embedding, nn.functional.normalize(expected.detach(), dim=1))


def test_the_head_of_another_model_must_have_the_same_vocabulary():
    with pytest.raises(ConfigError, match=r"'lossbench:tiny' has \d+ rows, but the model has 258 tokens"):
        prepared("loss=emo", "loss.terms.emo.cost_embedding=lossbench:tiny")


@pytest.mark.parametrize("peft", [False, True])
def test_the_reference_stays_the_model_before_training(peft: bool):
    model = tiny_llama(dropout=0.5).eval()
    model = add_peft(model, app.compose("peft=lora").peft) if peft else model
    before = model(BATCH.input_ids, attention_mask=BATCH.attention_mask).logits.detach()
    _, _, context = prepared("loss=asft", model=model)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.1)
    model.train()
    reference = context.of(model, BATCH, None, 5)["ref_logits"]
    torch.testing.assert_close(reference, before)
    assert not reference.requires_grad
    assert model.training


def test_the_snapshot_of_psft_is_renewed_when_its_time_has_come():
    _, model, context = prepared("loss=psft", "loss.terms.psft.snapshot_every=2")
    first = context.of(model, BATCH, None, 0)["old_log_probs"]
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    torch.testing.assert_close(context.of(model, BATCH, None, 1)["old_log_probs"], first)
    renewed = context.of(model, BATCH, None, 2)["old_log_probs"]
    assert not torch.allclose(renewed, first)
    logits = model(BATCH.input_ids, attention_mask=BATCH.attention_mask).logits.detach()
    valid = BATCH.labels["sequence"] != IGNORED
    expected = logits.log_softmax(-1)[valid].gather(1, BATCH.labels["sequence"][valid][:, None]).squeeze(1)
    torch.testing.assert_close(renewed[valid], expected)


def test_psft_starts_with_the_gradient_of_cross_entropy():
    model = tiny_llama()
    found = []
    for name in ("psft", "cross_entropy"):
        objective, _, context = prepared(f"loss={name}", model=model)
        model.zero_grad()
        objective.total(forward(objective, model, context)).backward()
        found.append(model.lm_head.weight.grad.clone())
    torch.testing.assert_close(*found)


def test_the_second_head_is_trained_with_the_model():
    objective, model, context = prepared("loss=token_order_prediction")
    assert context.wants_hidden_states
    objective.total(forward(objective, model, context)).backward()
    assert context.second_head is not None
    assert context.second_head.weight.grad is not None
    assert context.second_head.weight.grad.abs().sum() > 0


def test_tokens_are_those_that_the_positions_predict_and_padding_is_unknown():
    _, model, context = prepared("loss=goldfish")
    tokens = context.of(model, BATCH, None, 0)["tokens"]
    labels = BATCH.labels["sequence"]
    assert torch.equal(tokens, torch.where(labels == IGNORED, -1, labels))


def test_label_counts_are_those_of_the_scope():
    train = [TokenizedExample("a", [5, 6, 7, 7], target_start=2), TokenizedExample("b", [5, 7], target_start=1)]
    assert label_counts(train, "answer", 9).tolist() == [1, 1, 1, 1, 1, 1, 1, 3, 1]
    assert label_counts(train, "sequence", 9)[6] == 1
    assert label_counts(train, "sequence", 9)[5] == 1  # never a label: clamped


def test_a_context_that_training_does_not_know_is_said_before_training():
    class Strange(losses.TargetLoss):
        name = "strange"
        needs = ("phase_of_the_moon",)

    objective = losses.mixture({"strange": {"loss": Strange()}})
    with pytest.raises(ConfigError, match=r"loss strange needs phase_of_the_moon, which training does not provide"):
        Context(objective, tiny_llama(), byte_tokenizer(), EXAMPLES)


def test_digits_are_numbers_and_letters_are_not():
    values = number_values(byte_tokenizer(), 300)
    found = {token: value for token, value in enumerate(values.tolist()) if not math.isnan(value)}
    tokenizer = byte_tokenizer()
    assert found == {tokenizer.convert_tokens_to_ids(str(digit)): float(digit) for digit in range(10)}
    assert len(values) == 300


@pytest.mark.parametrize(("name", "count"), [("gpt2", 1000), ("llama2", 10), ("qwen3", 10)])
def test_numbers_of_real_vocabularies_include_leading_spaces_and_many_digits(name: str, count: int):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(real_data(f"tokenizers/{name}"))
    values = number_values(tokenizer, len(tokenizer))
    distinct = {value for value in values.tolist() if not math.isnan(value)}
    assert len(distinct) >= count
    if name == "gpt2":
        for text, value in ((" 7", 7.0), ("7", 7.0), (" 2019", 2019.0)):
            (token,) = tokenizer(text)["input_ids"]
            assert values[token] == value
