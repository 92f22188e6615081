# SPDX-License-Identifier: MIT
"""A Llama model as PyTorch users write it: nn.Module, scaled_dot_product_attention, autograd."""

import json
import math
import pathlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.q_proj = nn.Linear(c["hidden_size"], self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(c["hidden_size"], self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(c["hidden_size"], self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, c["hidden_size"], bias=False)

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape

        def heads(y, count):
            return y.view(batch, tokens, count, self.dim).transpose(1, 2)

        def rotate(y):
            a, b = y.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(y.dtype)

        q, k = rotate(heads(self.q_proj(x), self.heads)), rotate(heads(self.k_proj(x), self.kv_heads))
        v = heads(self.v_proj(x), self.kv_heads)
        groups = self.heads // self.kv_heads
        k, v = (y.repeat_interleave(groups, 1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, tokens, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])


class Llama(nn.Module):
    """Parameters have their published names. With `recomputes`, layers keep their inputs alone for backward."""

    recomputes = False

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Model(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids, targets):
        c = self.config
        x = self.model.embed_tokens(ids)
        real = torch.float64 if x.dtype == torch.float64 else torch.float32
        frequencies = c.get("rope_theta", 10000.0) ** (
            -torch.arange(0, c["head_dim"], 2, dtype=torch.float64) / c["head_dim"])
        angles = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] * frequencies
        cos, sin = angles.cos().to(real), angles.sin().to(real)
        for layer in self.model.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if self.recomputes else layer(x, cos, sin)
        logits = self.lm_head(self.model.norm(x))
        return functional.cross_entropy(logits.view(-1, c["vocab_size"]).to(real), targets.reshape(-1),
                                        ignore_index=-100)


def read_config(folder):
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    return config


def parameter_groups(model, weight_decay):
    """Matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.ndim == 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def learning_rate(step, steps, lr, min_lr, warmup):
    """Warm-up, then half a cosine."""
    if step < warmup:
        return lr * (step + 1) / warmup
    return min_lr + (lr - min_lr) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
