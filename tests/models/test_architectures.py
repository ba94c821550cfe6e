"""Every architecture that conf/model names trains, saves, loads and writes as the embedded model does."""

from __future__ import annotations

import re
import shutil
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from lossbench import app, losses
from lossbench.config import ModelConfig
from lossbench.data.batches import StepDataset
from lossbench.data.example import Example
from lossbench.data.step_plan import StepPlan
from lossbench.data.tokens import TokenizedExample, tokenize
from lossbench.evaluation.generate import generate
from lossbench.evaluation.perplexity import target_nll
from lossbench.models.load import add_peft, load
from lossbench.training.context import Context
from lossbench.training.head import find
from lossbench.training.module import FineTuning
from lossbench.training.objective import create_objective
from tests.models.architectures import (
    ARCHITECTURES,
    CAPPED,
    CONFIGS,
    KIND_OF,
    MODELS,
    attention_of,
    model_of,
    settings,
)
from tests.models_at_hand import byte_tokenizer
from tests.real_data import real_data

EXAMPLES = [
    TokenizedExample(f"ex-{n}", [(7 * n + 3 * t) % 250 for t in range(5 + n)], target_start=2 + n % 3) for n in range(6)
]
compose = cache(app.compose)  # a good part of a second each time
LORA = compose("peft=lora").peft
IDS = torch.arange(14).view(2, 7) * 3
REAL = {  # real tokenizer -> architecture, size of the real model's vocabulary
    "gpt2": ("GPT2", 50_257),
    "gpt-neox": ("GPTNeoX", 50_432),
    "falcon": ("Falcon", 65_024),
    "llama2": ("Llama", 32_000),
    "smollm2": ("LlamaTied", 49_152),
    "qwen3": ("Qwen3", 151_936),
}


def tuning(
    model: Any, *overrides: str, examples: list[TokenizedExample] = EXAMPLES, tokenizer: Any = None
) -> FineTuning:
    config = compose("trainer.batch_size=3", "trainer.log_every=1", "optimizer.lr=1e-2", *overrides)
    torch.manual_seed(0)
    model = add_peft(model, config.peft)
    objective = create_objective(config.loss)
    context = Context(objective, model, tokenizer or byte_tokenizer(), examples)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*whole logits.*")
        return FineTuning(model, objective, context, config, steps=3, log=lambda step, values: None)


def curve(tuning: FineTuning, steps: int = 3, examples: list[TokenizedExample] = EXAMPLES) -> list[dict[str, float]]:
    """What every optimizer step logs."""
    found: list[dict[str, float]] = []
    tuning._log = lambda step, values: found.append(dict(values))
    optimizer = tuning.configure_optimizers()
    tuning.optimizers = lambda: optimizer  # type: ignore[method-assign]
    tuning.manual_backward = lambda loss: loss.backward()  # type: ignore[method-assign]
    plan = StepPlan(tuple(len(e.input_ids) for e in examples), 3, tuning._config.trainer.accumulate, seed=0)
    data = StepDataset(examples, plan, last=steps)
    for index in range(steps):
        tuning.training_step(data[index], index)
    return found


def saved(model: Any, folder: Path) -> ModelConfig:
    """Write the model and a tokenizer as a folder; returns the configuration that names it."""
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return named(folder)


def named(folder: Path) -> ModelConfig:
    return compose("model=hf", "model.path=FOLDER").model.model_copy(update={"path": str(folder)})


def test_every_configured_model_is_tested_here():
    assert sorted(KIND_OF) == CONFIGS


def test_every_configured_model_is_in_the_documentation():
    table = (MODELS.parents[1] / "docs" / "models.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, flags=re.M)) == CONFIGS


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_composes_and_says_what_it_is(name: str):
    lines = (MODELS / f"{name}.yaml").read_text().splitlines()
    comment = lines[1] if lines[0] == "# @package _global_" else lines[0]
    assert re.match(r"# .{20,}", comment)
    config = app.compose(f"model={name}")
    assert config.model.name == name
    assert config.optimizer.lr == config.model.learning_rate
    assert len(config.model.licence) >= 3
    assert config.model.revision is None or re.fullmatch("[0-9a-f]{40}", config.model.revision)
    assert not config.model.trust_remote_code
    assert config.model.attention == attention_of(KIND_OF[name])
    assert config.peft.method == ("none" if config.model.dtype == "float32" else "lora")


@pytest.mark.parametrize("name", CONFIGS)
def test_the_lora_targets_of_a_config_are_modules_of_its_architecture(name: str):
    targets = settings(name)["lora_target_modules"]
    peft = LORA.model_copy(update={"target_modules": tuple(targets)})
    model = model_of(KIND_OF[name])
    blocks = model.config.num_hidden_layers
    with warnings.catch_warnings(action="error", category=UserWarning):  # such as peft's about Conv1D
        tuned = add_peft(model, peft)
    adapted = [name.rpartition(".")[2] for name, module in tuned.named_modules() if hasattr(module, "lora_A")]
    for target in targets:
        expected = 1 if target == "lm_head" else blocks
        assert adapted.count(target) in (expected, 2 * blocks), target  # GPT-2 has two c_proj a block
    trainable = {name for name, weight in tuned.named_parameters() if weight.requires_grad}
    assert trainable and all("lora_" in name for name in trainable)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_training_is_the_same_with_whole_logits_and_with_the_head_fused(kind: str):
    auto = tuning(model_of(kind), "loss=ce_focal")
    assert (auto.head is None) == (kind in CAPPED)
    start = [weight.detach().clone() for weight in auto.model.parameters()]
    ours = curve(auto)
    theirs = curve(tuning(model_of(kind), "loss=ce_focal", "trainer.fused_head=false"))
    for a, b in zip(ours, theirs, strict=True):
        assert a == pytest.approx(b, rel=2e-5, abs=1e-6)
    moved = [not torch.equal(a, b) for a, b in zip(start, auto.model.parameters(), strict=True)]
    assert all(moved), "every weight is trained"


@pytest.mark.parametrize("kind", sorted(set(ARCHITECTURES) - CAPPED))
def test_the_fused_head_has_the_loss_and_the_gradient_of_whole_logits(kind: str):
    model, loss = model_of(kind).double().eval(), losses.create("focal")
    labels = (IDS + 5) % 300
    expected = loss(model(input_ids=IDS).logits, labels)
    expected.backward()
    gradients = torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])
    model.zero_grad()
    head = find(model)
    with head.taken_out():
        outputs = model(input_ids=IDS)
    value = losses.linear(head.inputs(outputs), head.weight, labels, loss, head.bias)
    value.backward()
    found = torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])
    torch.testing.assert_close(value, expected)
    assert (found - gradients).norm() <= 1e-6 * gradients.norm()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_checkpointing_of_activations_changes_no_gradient_of_lora(kind: str, tmp_path: Path):
    config = saved(model_of(kind), tmp_path).model_copy(update={"attention": attention_of(kind)})
    found = []
    for checkpointing in (True, False):
        model, _ = load(config.model_copy(update={"gradient_checkpointing": checkpointing}))
        assert model.is_gradient_checkpointing == checkpointing
        found.append(curve(tuning(model, "peft=lora", "peft.dropout=0", "peft.target_modules=[all-linear]"), steps=2))
    for a, b in zip(*found, strict=True):
        assert a["train/grad_norm"] > 0
        assert a == pytest.approx(b, rel=1e-5)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_lora_trains_in_bfloat16(kind: str):
    model = model_of(kind).to(torch.bfloat16)
    tuned = tuning(model, "peft=lora", "peft.target_modules=[all-linear]")
    adapters = {weight.dtype for weight in tuned.model.parameters() if weight.requires_grad}
    assert adapters == {torch.float32}, "peft keeps what is trained in float32"
    ours = curve(tuned)
    full = curve(tuning(model_of(kind), "peft=lora", "peft.target_modules=[all-linear]"))
    assert ours[0]["train/loss"] == pytest.approx(full[0]["train/loss"], rel=0.05)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_trained_model_is_saved_loaded_and_writes_the_same(kind: str, tmp_path: Path):
    tuned = tuning(model_of(kind))
    curve(tuned)
    model = tuned.model.eval()
    again, tokenizer = load(saved(model, tmp_path).model_copy(update={"attention": attention_of(kind)}))
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(input_ids=IDS).logits, model(input_ids=IDS).logits)
    prompts = [[3, 5, 7, 9], [11, 13]]
    texts = [generate(m, tokenizer, prompts, max_new_tokens=5) for m in (model, again)]
    assert texts[0] == texts[1]
    assert [completion.token_ids for completion in texts[0]] == [
        generate(model, tokenizer, [prompt], max_new_tokens=5)[0].token_ids for prompt in prompts
    ], "padding changes nothing"
    assert target_nll(model, EXAMPLES) == target_nll(again, EXAMPLES)


def test_soft_caps_go_the_way_of_whole_logits_with_a_warning():
    config = compose()
    model = model_of("Gemma2")
    objective = create_objective(config.loss)
    context = Context(objective, model, byte_tokenizer(), EXAMPLES)
    with pytest.warns(UserWarning, match="whole logits, which take more memory: Gemma2ForCausalLM changes its logits"):
        FineTuning(model, objective, context, config, steps=1, log=lambda step, values: None)


@pytest.mark.parametrize("name", REAL)
def test_a_real_tokenizer_trains_and_writes_with_its_architecture(name: str, tmp_path: Path):
    folder = real_data(f"tokenizers/{name}")
    kind, vocabulary = REAL[name]
    model_of(kind, vocab_size=vocabulary, initializer_range=0.1).save_pretrained(tmp_path)
    for file in folder.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    model, tokenizer = load(named(tmp_path))
    texts = [Example(str(n), f"How many are {n} and {n}?", f" {n} + {n} = {2 * n}, so 1,{n}00 ½.") for n in range(6)]
    examples = tokenize(texts, tokenizer, 64)
    tuned = tuning(model, examples=examples, tokenizer=tokenizer)
    before = target_nll(model, examples)
    curve(tuned, examples=examples)
    after = target_nll(model, examples)
    assert sum(score.nll_sum for score in after) < sum(score.nll_sum for score in before)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    prompts = [example.input_ids[: example.target_start] for example in examples[:3]]
    written = generate(again, tokenizer, prompts, max_new_tokens=4)
    assert written == generate(model, tokenizer, prompts, max_new_tokens=4)
    assert all(1 <= completion.n_new_tokens <= 4 for completion in written)
