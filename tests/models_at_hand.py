"""Small models and tokenizers for tests: random weights, made in milliseconds."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BOS, EOS = 256, 257


def byte_tokenizer(*, adds_bos: bool = True) -> PreTrainedTokenizerFast:
    """One token a byte, and BOS and EOS behind them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", model_max_length=512)


def tiny_llama(*, dropout: float = 0.0, seed: int = 0, vocabulary: int = 258) -> LlamaForCausalLM:
    """Two layers of width 16."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=256, attention_dropout=dropout, bos_token_id=None,
            eos_token_id=None, pad_token_id=None, initializer_range=0.3,
        )
    )  # fmt: skip
