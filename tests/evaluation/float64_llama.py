"""A Llama in float64 from end to end, for goldens at 1e-9: `model.double()` still normalises and rotates in float32."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig


class Float64Llama(nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.config = AutoConfig.from_pretrained(folder)
        weights = load_file(folder / "model.safetensors")
        self.weights = nn.ParameterDict(
            {name.replace(".", "/"): nn.Parameter(value.double()) for name, value in weights.items()}
        )

    def weight(self, name: str) -> Tensor:
        return self.weights[f"{name}.weight".replace(".", "/")]

    def norm(self, x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps) * self.weight(name)

    def heads(self, x: Tensor, name: str, count: int) -> Tensor:
        return (x @ self.weight(name).T).unflatten(-1, (count, -1)).transpose(1, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """Logits (B, T, V); right padding needs no mask in a causal model."""
        c = self.config
        length, size = input_ids.shape[1], c.hidden_size // c.num_attention_heads
        rates = c.rope_parameters["rope_theta"] ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.arange(length, dtype=torch.float64)[:, None] * rates.repeat(2)

        def rotate(x: Tensor) -> Tensor:
            first, second = x.chunk(2, dim=-1)
            return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()

        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.weight("model.embed_tokens")[input_ids]
        for layer in (f"model.layers.{i}" for i in range(c.num_hidden_layers)):
            y = self.norm(x, f"{layer}.input_layernorm")
            q = rotate(self.heads(y, f"{layer}.self_attn.q_proj", c.num_attention_heads))
            k = rotate(self.heads(y, f"{layer}.self_attn.k_proj", c.num_key_value_heads))
            v = self.heads(y, f"{layer}.self_attn.v_proj", c.num_key_value_heads)
            groups = c.num_attention_heads // c.num_key_value_heads
            scores = q @ k.repeat_interleave(groups, 1).transpose(-1, -2) / size**0.5
            y = scores.masked_fill(future, -torch.inf).softmax(-1) @ v.repeat_interleave(groups, 1)
            x = x + y.transpose(1, 2).flatten(2) @ self.weight(f"{layer}.self_attn.o_proj").T
            y = self.norm(x, f"{layer}.post_attention_layernorm")
            gate, up = (y @ self.weight(f"{layer}.mlp.{name}_proj").T for name in ("gate", "up"))
            x = x + (nn.functional.silu(gate) * up) @ self.weight(f"{layer}.mlp.down_proj").T
        head = "model.embed_tokens" if c.tie_word_embeddings else "lm_head"
        return SimpleNamespace(logits=self.norm(x, "model.norm") @ self.weight(head).T)
