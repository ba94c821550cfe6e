"""Load a causal LM and its tokenizer, and put LoRA on it."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from lossbench.config import ModelConfig, PeftConfig
from lossbench.errors import ConfigError, ModelError
from lossbench.models.locate import folder_of


def load(config: ModelConfig) -> tuple[PreTrainedModel, Any]:
    """The pre-trained model, on the CPU in `config.dtype`, and its tokenizer."""
    transformers_logging.disable_progress_bar()
    source = str(folder_of(config.path) or config.path)
    origin = {"revision": config.revision, "trust_remote_code": config.trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **origin)
        model = AutoModelForCausalLM.from_pretrained(
            source, dtype=getattr(torch, config.dtype), attn_implementation=config.attention, **origin
        )
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(f"model.path={config.path!r} cannot be loaded: {error}") from error
    embedding: Any = model.get_input_embeddings()
    if len(tokenizer) > embedding.weight.shape[0]:
        raise ModelError(
            f"The tokenizer of {config.path!r} has {len(tokenizer)} tokens, but the model's embedding only "
            f"{embedding.weight.shape[0]} rows: they do not belong together."
        )
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()  # else a frozen embedding cuts LoRA's graph
    model.config.use_cache = False  # generation asks for its cache itself
    return model, tokenizer


def head_weight(head: Any) -> torch.Tensor:
    """(V, H) weight that an LM head (a linear module) multiplies with, LoRA's update included, detached."""
    weight = head.weight.detach()
    if hasattr(head, "get_delta_weight"):  # LoRA's linear layer
        weight = weight + sum(head.get_delta_weight(adapter).detach() for adapter in head.active_adapters)
    return weight


def load_head(path: str) -> torch.Tensor:
    """(V, H) float32 weight of the LM head of the model at `path` (a folder, a hub id, or lossbench:NAME)."""
    model = AutoModelForCausalLM.from_pretrained(str(folder_of(path) or path), dtype=torch.float32)
    return head_weight(model.get_output_embeddings()).clone()


def context_window(model: PreTrainedModel) -> int | None:
    """The most tokens that the model was built for, or None where its configuration sets no limit."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    return getattr(config, "max_position_embeddings", None)


def add_peft(model: PreTrainedModel, config: PeftConfig) -> Any:
    """The model itself for `method: none`; else the same model behind peft, every weight frozen but LoRA's."""
    if config.method == "none":
        return model
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.r,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=list(config.target_modules),
    )
    try:
        return get_peft_model(model, lora)
    except ValueError as error:
        names = sorted({name.rsplit(".", 1)[-1] for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
        raise ConfigError(
            f"peft.target_modules={list(config.target_modules)} does not fit this model, whose linear modules are "
            f"{', '.join(names)}: {error}"
        ) from error
