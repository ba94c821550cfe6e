"""Load a causal LM and its tokenizer, quantised if asked, and put LoRA on it."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as transformers_logging

from lossbench.config import ModelConfig, PeftConfig
from lossbench.errors import ConfigError, ModelError
from lossbench.models.locate import folder_of
from lossbench.models.quantisation import loading_keywords

ALL_LINEAR = "all-linear"  # peft's word for every linear module but the head


def load(config: ModelConfig, peft: PeftConfig | None = None) -> tuple[PreTrainedModel, Any]:
    """The pre-trained model, on the CPU in `config.dtype`, and its tokenizer.

    With `peft.method: qlora` its weights are quantised while they are read, onto the GPU. A folder that holds a LoRA
    adapter gives the adapter's base model with the adapter on it.
    """
    transformers_logging.disable_progress_bar()
    source = str(folder_of(config.path) or config.path)
    origin = {"revision": config.revision, "trust_remote_code": config.trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **origin)
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=getattr(torch, config.dtype),
            attn_implementation=config.attention,
            **loading_keywords(peft, getattr(torch, config.dtype), source, **origin),
            **origin,
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
        older = model.gradient_checkpointing_enable  # its name until transformers 5.24
        getattr(model, "activation_checkpointing_enable", older)({"use_reentrant": False})
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
    """The model itself for `method: none`; else the same model behind peft, every weight frozen but LoRA's.

    LoRA's own weights are float32 (peft's way), whatever the model's type. Under qlora peft also turns norms,
    embeddings and head into float32.

    Raises:
        ConfigError: no module of the model has a name of `target_modules`, or it has an adapter already.
    """
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ConfigError(
            "model.path is the folder of a LoRA adapter, which can be evaluated but not trained further: export the "
            "run again with `lossbench export RUN --merge`, and train that."
        )
    if config.method == "none":
        return model
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # imported by peft: on a CPU it asks for a faster kernel
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    linear = {name: type(m) for name, m in model.named_modules() if isinstance(m, torch.nn.Linear | Conv1D)}
    chosen = {name for name in config.target_modules if name != ALL_LINEAR}
    if missing := [t for t in sorted(chosen) if not any(f".{name}".endswith(f".{t}") for name in linear)]:
        names = sorted({name.rpartition(".")[2] for name in linear})
        raise ConfigError(
            f"peft.target_modules={list(config.target_modules)} does not fit this model, whose linear modules are "
            f"{', '.join(names)}: it has no {' and no '.join(missing)}."
        )
    if config.method == "qlora":
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)  # `load` has seen to that
    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.r,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=list(config.target_modules) if chosen else ALL_LINEAR,
        fan_in_fan_out=Conv1D in linear.values(),  # how GPT-2 stores its matrices
    )
    with warnings.catch_warnings():
        # LoRA on a head that is tied to the embedding changes the head alone, here and in `lossbench export --merge`.
        warnings.filterwarnings("ignore", message=".*ensure_weight_tying.*")
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*deprecated.*")  # peft 0.21 asks for it
        return get_peft_model(model, lora)
