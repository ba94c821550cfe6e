"""A tiny model with random weights for every model of conf/model, made from the configuration class of its kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
import yaml

MODELS = Path(__file__).parents[2] / "conf" / "model"

SHARED: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None, "initializer_range": 0.3,
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any]]] = {  # what the real model's config.json says beside its sizes
    "Llama": ("LlamaForCausalLM", {}),
    "LlamaTied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "GPTNeoX": ("GPTNeoXForCausalLM", {"rotary_pct": 1.0, "use_parallel_residual": False}),
    "GPTNeoXParallel": ("GPTNeoXForCausalLM", {"rotary_pct": 0.25, "use_parallel_residual": True}),
    "StableLm": ("StableLmForCausalLM", {"num_key_value_heads": 2, "partial_rotary_factor": 0.25}),
    "Falcon": ("FalconForCausalLM", {"multi_query": True, "parallel_attn": True, "bias": False, "alibi": False}),
    "GPT2": ("GPT2LMHeadModel", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}),
    "OPT": ("OPTForCausalLM", {"ffn_dim": 24, "word_embed_proj_dim": 16, "tie_word_embeddings": True}),
    "Qwen3": ("Qwen3ForCausalLM", {"head_dim": 8, "tie_word_embeddings": True}),
    "Gemma2": ("Gemma2ForCausalLM", {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}),
    "Gemma3": ("Gemma3ForCausalLM", {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}),
    "Olmo2": ("Olmo2ForCausalLM", {}),
}
KIND_OF = {
    "tiny": "LlamaTied", "llama_7b": "Llama", "llama_13b": "Llama", "llama2_7b": "Llama", "llama2_13b": "Llama",
    "llama3": "LlamaTied", "llama3_8b": "Llama", "smollm2": "LlamaTied", "smollm2_360m": "LlamaTied",
    "redpajama_3b": "GPTNeoX", "redpajama_7b": "GPTNeoX", "pythia": "GPTNeoXParallel", "pythia_1_4b": "GPTNeoXParallel",
    "stablelm_3b": "StableLm", "falcon_7b": "Falcon", "gpt2": "GPT2", "opt_125m": "OPT", "qwen3": "Qwen3",
    "qwen3_8b": "Qwen3", "gemma": "Gemma3", "gemma2_2b": "Gemma2", "olmo": "Olmo2",
}  # fmt: skip
CAPPED = {"Gemma2"}  # soft caps of logits: the head cannot be fused
CONFIGS = sorted(file.stem for file in MODELS.glob("*.yaml") if file.stem != "hf")
ARCHITECTURES = sorted(set(KIND_OF.values()))


def model_of(kind: str, *, seed: int = 0, **changes: Any) -> Any:
    """A causal LM of the kind in float32, on the attention that its configuration file asks for."""
    name, own = KINDS[kind]
    config_class = getattr(transformers, name).config_class
    config = config_class(**{**SHARED, **own, **changes}, attn_implementation=attention_of(kind))
    torch.manual_seed(seed)
    return getattr(transformers, name)(config)


def attention_of(kind: str) -> str:
    return "eager" if kind in CAPPED else "sdpa"


def settings(name: str) -> dict[str, Any]:
    """The `model` section of conf/model/NAME.yaml as it is written."""
    plain = yaml.safe_load((MODELS / f"{name}.yaml").read_text())
    return plain.get("model", plain)
