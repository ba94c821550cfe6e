"""Four and eight bits: refused where they cannot be had, and real where bitsandbytes runs on a CPU, as in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lossbench import app
from lossbench.errors import ConfigError
from lossbench.models import quantisation
from lossbench.models.load import add_peft, load
from lossbench.run import run
from tests.models.architectures import model_of
from tests.models.test_architectures import compose, curve, saved, tuning

LARGER = {"hidden_size": 64, "intermediate_size": 128, "initializer_range": 0.1}


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """bitsandbytes has code for CPUs, too slow to offer but enough to test with."""
    layers = pytest.importorskip("bitsandbytes.nn.modules")
    monkeypatch.setattr(layers, "has_avx512bf16", lambda: False, raising=False)  # repacks for inference alone
    monkeypatch.setattr(quantisation, "require_bitsandbytes", lambda what, instead: None)


@pytest.mark.parametrize("override", ["peft=qlora", "optimizer=adamw_8bit"])
@pytest.mark.parametrize("installed", [True, False])
def test_a_machine_that_cannot_is_a_sentence_before_any_work(
    override: str, installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(quantisation, "find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = app.compose(override, f"paths.runs={tmp_path}", "tracking.mode=disabled", "model=llama2_7b")
    with pytest.raises(ConfigError) as caught:
        run(config)  # without the model's weights: it is said before they are looked for
    assert override in str(caught.value)
    assert ("needs a CUDA GPU" if installed else "pip install 'lossbench[quantised]'") in str(caught.value)


@pytest.mark.parametrize("override", ["peft=qlora", "optimizer=adamw_8bit"])
def test_the_cpu_by_choice_is_refused_with_the_configuration(override: str):
    with pytest.raises(ConfigError, match=f"{override} needs a GPU, but trainer.accelerator=cpu"):
        app.compose(override, "trainer.accelerator=cpu")


@pytest.mark.parametrize(("method", "bits"), [("lora", 4), ("none", 8), ("qlora", "null")])
def test_bits_belong_to_qlora(method: str, bits: Any):
    with pytest.raises(ConfigError, match=r"peft\.bits is 4 or 8 for peft=qlora"):
        app.compose(f"peft={method}", f"peft.bits={bits}")


@pytest.mark.parametrize("kind", ["Llama", "GPT2", "GPTNeoX"])
@pytest.mark.parametrize("bits", [4, 8])
def test_lora_trains_on_quantised_weights(kind: str, bits: int, tmp_path: Path, on_cpu: None):
    whole = model_of(kind, **LARGER).eval()
    quantised = ("peft=qlora", f"peft.bits={bits}", "peft.target_modules=[all-linear]")
    config = saved(whole, tmp_path).model_copy(update={"gradient_checkpointing": True})
    model, _ = load(config, compose(*quantised).peft)
    kinds = {type(module).__name__ for module in model.modules()}
    assert ("Linear4bit" if bits == 4 else "Linear8bitLt") in kinds
    assert type(model.get_output_embeddings()) is torch.nn.Linear, "the head stays as it is, so it can be fused"
    ids = torch.arange(16).view(2, 8)
    with torch.no_grad():
        error = (model.eval()(input_ids=ids).logits - whole(input_ids=ids).logits).abs().mean()
        assert 0 < error < 0.3 * whole(input_ids=ids).logits.abs().mean()
    tuned = tuning(model, *quantised)
    assert tuned.head is not None
    frozen = {name: weight.clone() for name, weight in tuned.named_parameters() if not weight.requires_grad}
    losses = [values["train/loss"] for values in curve(tuned, steps=3)]
    assert len(losses) == 3
    assert all(torch.equal(weight, frozen[name]) for name, weight in tuned.named_parameters() if name in frozen)
    trained = [weight for name, weight in tuned.named_parameters() if weight.requires_grad and "lora_B" in name]
    assert trained and all(weight.abs().max() > 0 for weight in trained)


def test_a_model_that_would_stay_as_it_is_is_refused(tmp_path: Path, on_cpu: None):
    config = saved(model_of("Falcon"), tmp_path)
    with pytest.raises(ConfigError, match="those of FalconForCausalLM are FalconLinear"):
        load(config, compose("peft=qlora").peft)


def test_norms_are_not_quantised_but_float32(tmp_path: Path, on_cpu: None):
    config = saved(model_of("Llama", **LARGER), tmp_path).model_copy(update={"dtype": "bfloat16"})
    peft = compose("peft=qlora").peft
    tuned = add_peft(load(config, peft)[0], peft)
    assert {weight.dtype for name, weight in tuned.named_parameters() if "norm" in name} == {torch.float32}
