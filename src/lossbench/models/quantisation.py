"""Weights and optimizer states of 4 and 8 bits: bitsandbytes does them, and this says whether it can here."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lossbench.config import PeftConfig, RunConfig
from lossbench.errors import ConfigError

if TYPE_CHECKING:
    import torch


def check_possible(config: RunConfig) -> None:
    """Raise a sentence where this machine cannot do what the configuration asks of bitsandbytes, before any work.

    Raises:
        ConfigError: bitsandbytes is not installed, or torch finds no CUDA GPU.
    """
    if config.peft.method == "qlora":
        require_bitsandbytes(f"peft=qlora (peft.bits={config.peft.bits})", "peft=lora")
    if config.optimizer.name == "adamw_8bit":
        require_bitsandbytes("optimizer=adamw_8bit", "optimizer=adamw")


def require_bitsandbytes(what: str, instead: str) -> None:
    """Raise `ConfigError` unless bitsandbytes is installed and torch finds a CUDA GPU."""
    if find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"{what} needs the package bitsandbytes, which is not installed: run `pip install 'lossbench[quantised]'`, "
            f"or take {instead}."
        )
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"{what} needs a CUDA GPU, and torch finds none on this machine: take {instead} here.")


def loading_keywords(peft: PeftConfig | None, dtype: torch.dtype, source: str, **origin: Any) -> dict[str, Any]:
    """What `from_pretrained` is given so that the weights are quantised while they are read; nothing without qlora.

    4 bits are NormalFloat with double quantisation (Dettmers et al. 2023, https://arxiv.org/abs/2305.14314), 8 bits are
    LLM.int8() (Dettmers et al. 2022, https://arxiv.org/abs/2208.07339). The LM head stays as it is.

    Raises:
        ConfigError: it cannot be done on this machine, or not to the model at `source`.
    """
    if peft is None or peft.method != "qlora":
        return {}
    require_bitsandbytes(f"peft.bits={peft.bits}", "peft=lora")
    from transformers import BitsAndBytesConfig

    _require_quantisable(source, **origin)
    if peft.bits == 8:
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    four = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )
    return {"quantization_config": four}


def _require_quantisable(source: str, **origin: Any) -> None:
    """Refuse a model none of whose layers transformers would quantise, which would go unnoticed otherwise."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.pytorch_utils import Conv1D

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(source, **origin), trust_remote_code=origin.get("trust_remote_code", False)
        )
    head = model.get_output_embeddings()
    if not any(type(m) is torch.nn.Linear or isinstance(m, Conv1D) for m in model.modules() if m is not head):
        kinds = {type(m).__name__ for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head}
        raise ConfigError(
            f"peft=qlora cannot be used with {source!r}: transformers quantises torch's own linear layers, and those "
            f"of {type(model).__name__} are {', '.join(sorted(kinds)) or 'none'}. Take peft=lora."
        )
