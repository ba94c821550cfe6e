"""The head of a model is found, or refused in a sentence, and training does not notice that it is fused."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from lossbench import app, losses
from lossbench.data.batches import StepDataset
from lossbench.data.step_plan import StepPlan
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import ConfigError
from lossbench.models.load import add_peft
from lossbench.training.context import Context
from lossbench.training.head import Unfusable, choose, find
from lossbench.training.module import FineTuning
from lossbench.training.objective import create_objective
from tests.models_at_hand import byte_tokenizer, tiny_llama

SMALL: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None, "initializer_range": 0.3,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "Llama": {},
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "Gemma": {"head_dim": 8},
    "Gemma2": {"head_dim": 8, "final_logit_softcapping": None},
    "Cohere": {"logit_scale": 0.25},
    "Granite": {"logits_scaling": 8.0},
    "Qwen3": {"head_dim": 8},
    "OPT": {"ffn_dim": 32, "word_embed_proj_dim": 8},
    "GPTNeoX": {},
    "Falcon": {},
    "Bloom": {"n_layer": 2, "n_head": 2},
    "Phi": {},
    "GPTJ": {"n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4},
}
EXAMPLES = [
    TokenizedExample(f"ex-{n}", [(7 * n + 3 * t) % 250 for t in range(6 + n)], target_start=2 + n % 3) for n in range(8)
]


def model_of(name: str, **keywords: Any) -> Any:
    kind = name + ("LMHeadModel" if name == "GPT2" else "ForCausalLM")
    if not hasattr(transformers, kind):
        pytest.skip(f"this transformers has no {kind}")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **MODELS.get(name, {}), **keywords})
    return getattr(transformers, kind)(config)


@pytest.mark.parametrize("name", MODELS)
def test_fused_equals_whole_for_a_model(name: str):
    model, loss = model_of(name).eval(), losses.create("focal")
    head = find(model)
    ids, labels = torch.arange(14).view(2, 7) % 61, torch.arange(3, 17).view(2, 7) % 61

    def gradients() -> torch.Tensor:
        found = torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])
        model.zero_grad()
        return found

    expected = loss(model(input_ids=ids).logits, labels)
    expected.backward()
    expected_gradients = gradients()
    with head.taken_out():
        outputs = model(input_ids=ids)
    value = losses.linear(head.inputs(outputs), head.weight, labels, loss, head.bias)
    value.backward()
    torch.testing.assert_close(value, expected)
    assert (gradients() - expected_gradients).norm() <= 1e-5 * expected_gradients.norm()
    assert model(input_ids=ids).logits.shape == (2, 7, 61), "the head must be back in its place"


@pytest.mark.parametrize("name", ["Gemma2", "RecurrentGemma"])
def test_a_soft_cap_is_refused(name: str):
    cap = {"final_logit_softcapping": 30.0} if name == "Gemma2" else {"logits_soft_cap": 30.0, "num_hidden_layers": 3}
    with pytest.raises(Unfusable, match="soft cap"):
        find(model_of(name, **{"head_dim": 8, **cap}))


def test_a_refusal_is_a_warning_or_an_error_as_configured():
    model = model_of("Gemma2", final_logit_softcapping=30.0)
    with pytest.warns(UserWarning, match="whole logits.*Gemma2ForCausalLM changes its logits"):
        assert choose(model, "auto") is None
    with pytest.raises(ConfigError, match=r"trainer.fused_head=true, but Gemma2ForCausalLM"):
        choose(model, True)
    with warnings.catch_warnings(action="error"):
        assert choose(model, False) is None


def test_a_head_that_is_no_linear_layer_is_refused():
    model = tiny_llama()
    model.lm_head = nn.Sequential(model.lm_head)
    with pytest.raises(Unfusable, match="Sequential and not a linear layer"):
        find(model)


def test_a_head_that_adds_something_is_refused():
    class Doubled(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(inputs)

    model = tiny_llama()
    model.lm_head.forward = lambda inputs: 2 * nn.functional.linear(inputs, model.lm_head.weight)
    with pytest.raises(Unfusable, match="does not compute"):
        find(model)
    model.lm_head = Doubled(16, 258, bias=False)
    with pytest.raises(Unfusable, match="Doubled"):
        find(model)


def module(*overrides: str, model: Any = None, steps: int = 6) -> FineTuning:
    config = app.compose("trainer.batch_size=4", "trainer.log_every=1", "optimizer.lr=1e-2", *overrides)
    torch.manual_seed(0)
    model = add_peft(model or tiny_llama(), config.peft)
    objective = create_objective(config.loss)
    context = Context(objective, model, byte_tokenizer(), EXAMPLES)
    return FineTuning(model, objective, context, config, steps=steps, log=lambda step, values: None)


def curve(tuning: FineTuning, steps: int = 6) -> list[dict[str, float]]:
    """What every optimizer step logs."""
    found: list[dict[str, float]] = []
    tuning._log = lambda step, values: found.append(dict(values))
    optimizer = tuning.configure_optimizers()
    tuning.optimizers = lambda: optimizer  # type: ignore[method-assign]
    tuning.manual_backward = lambda loss: loss.backward()  # type: ignore[method-assign]
    plan = StepPlan(tuple(len(e.input_ids) for e in EXAMPLES), 4, tuning._config.trainer.accumulate, seed=0)
    data = StepDataset(EXAMPLES, plan, last=steps)
    for index in range(steps):
        tuning.training_step(data[index], index)
    return found


LOSSES = [
    "cross_entropy", "ce_focal", "emo", "lovasz_softmax", "ce_generalized_dice", "squentropy", "gem", "unlikelihood",
    "asft", "psft", "goldfish", "token_order_prediction", "number_token_loss",
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
def test_training_gives_the_same_curve(loss: str):
    whole = curve(module(f"loss={loss}", "trainer.fused_head=false", "trainer.accumulate=2"))
    fused = curve(module(f"loss={loss}", "trainer.fused_head=true", "trainer.accumulate=2"))
    assert fused[0].keys() == whole[0].keys()
    for ours, theirs in zip(fused, whole, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_lora_on_the_head_gives_the_same_curve(dropout: float):
    peft = ("peft=lora", "peft.target_modules=[q_proj,lm_head]", f"peft.dropout={dropout}", "loss=ce_focal")
    fused = module("trainer.fused_head=true", *peft)
    assert len(fused.head.low_rank) == 1  # type: ignore[union-attr]
    torch.manual_seed(1)
    ours = curve(fused)
    torch.manual_seed(1)
    theirs = curve(module("trainer.fused_head=false", *peft)) if not dropout else None
    assert all(step["loss" if "loss" in step else "train/loss"] > 0 for step in ours)
    if theirs is not None:
        for a, b in zip(ours, theirs, strict=True):
            assert a == pytest.approx(b, rel=1e-5, abs=1e-6)


def test_dora_on_the_head_is_refused():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_llama(), LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], use_dora=True))
    with pytest.raises(Unfusable):
        find(model)


def test_a_head_that_peft_trains_whole_is_fused():
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], modules_to_save=["lm_head"])
    model = get_peft_model(tiny_llama(), lora)
    head = find(model)
    assert head.weight.requires_grad
    ids = torch.arange(12).view(2, 6)
    with head.taken_out():
        inputs = head.inputs(model(input_ids=ids))
    torch.testing.assert_close(inputs @ head.weight.T, model(input_ids=ids).logits)


def test_finding_the_head_leaves_model_and_random_state_as_they_were():
    model = tiny_llama(dropout=0.5).train()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    find(model)
    assert model.training and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), before.values(), strict=True))
