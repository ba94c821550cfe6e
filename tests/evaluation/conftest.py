from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from tests.evaluation import golden


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """Byte-level, 400 tokens, no padding token; its `<|endoftext|>` is BOS and EOS."""
    return AutoTokenizer.from_pretrained(golden.FOLDER / "tiny_llama_text")


@pytest.fixture
def llama() -> PreTrainedModel:
    """Random weights, rotary positions, a window of 256 tokens."""
    return AutoModelForCausalLM.from_pretrained(golden.FOLDER / "tiny_llama_text", dtype=torch.float32)


@pytest.fixture
def gpt2() -> PreTrainedModel:
    """Random weights, learned positions, a window of 64 tokens, dropout 0.5 in training."""
    torch.manual_seed(0)
    settings = {"vocab_size": 400, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    config = GPT2Config(
        **settings,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
        embd_pdrop=0.5,
        resid_pdrop=0.5,
        attn_pdrop=0.5,
    )
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(params=["llama", "gpt2"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return request.getfixturevalue(request.param)
