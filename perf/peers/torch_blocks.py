# SPDX-License-Identifier: MIT
"""Kformer's blocks as PyTorch users write them. Each class takes a case as kformer-perf-blocks describes it. `inputs()`
makes the operands; floating-point ones can be differentiated. `forward(**inputs)` returns one result or several."""

import torch
import torch.nn.functional as F

from turns import torch_dtype

EPSILON = 1e-5


class Block:
    def __init__(self, case):
        self.case = case
        self.dtype = torch_dtype(torch, case["dtype"])

    def random(self, *extents):
        return torch.empty(extents).uniform_(-1, 1).to(self.dtype)

    def matrix(self, rows, columns):
        return (self.random(rows, columns) / columns**0.5).to(self.dtype)

    def integers(self, count, end):
        return torch.randint(end, (count,))

    def tensors(self, inputs):
        """The tensors among the inputs, and the parameters of a module."""
        return list(inputs.values())


class RmsNorm(Block):
    def inputs(self):
        rows, hidden = self.case["rows"], self.case["hidden"]
        return {"x": self.random(rows, hidden), "weight": self.random(hidden)}

    def forward(self, x, weight):
        return F.rms_norm(x, weight.shape, weight, EPSILON)


class RmsNormResidual(RmsNorm):
    def inputs(self):
        return {**super().inputs(), "residual": self.random(self.case["rows"], self.case["hidden"])}

    def forward(self, x, weight, residual):
        total = x + residual
        return F.rms_norm(total, weight.shape, weight, EPSILON), total


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin):
    """As in transformers: (batch, heads, seq, head_dim), tables (seq, head_dim)."""
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def rotary_tables(seq_len, head_dim, theta, dtype):
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float64), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


class Rope(Block):
    def __init__(self, case):
        super().__init__(case)
        self.cos, self.sin = rotary_tables(case["seq_len"], case["head_dim"], 10000.0, self.dtype)

    def inputs(self):
        c = self.case

        def heads(count):
            return self.random(c["batch"], c["seq_len"], count, c["head_dim"]).transpose(1, 2)

        return {"q": heads(c["q_heads"]), "k": heads(c["kv_heads"])}

    def forward(self, q, k):
        return apply_rotary_pos_emb(q, k, self.cos, self.sin)


class Swiglu(Block):
    def inputs(self):
        rows, hidden = self.case["rows"], self.case["hidden"]
        return {"gate": self.random(rows, hidden), "up": self.random(rows, hidden)}

    def forward(self, gate, up):
        return F.silu(gate) * up


class CrossEntropy(Block):
    def inputs(self):
        rows, vocabulary = self.case["rows"], self.case["vocabulary"]
        return {"logits": self.random(rows, vocabulary), "targets": self.integers(rows, vocabulary)}

    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets)


class LinearCrossEntropy(Block):
    def inputs(self):
        c = self.case
        return {"x": self.random(c["rows"], c["hidden"]), "weight": self.matrix(c["vocabulary"], c["hidden"]),
                "targets": self.integers(c["rows"], c["vocabulary"])}

    def forward(self, x, weight, targets):
        return F.cross_entropy(F.linear(x, weight), targets)


class Embedding(Block):
    def inputs(self):
        c = self.case
        return {"ids": self.integers(c["rows"], c["vocabulary"]), "weight": self.random(c["vocabulary"], c["hidden"])}

    def forward(self, ids, weight):
        return F.embedding(ids, weight)


class AdamW(Block):
    """A step over the weights of a decoder layer; 16-bit weights are copies of float ones, which the step updates."""

    def inputs(self):
        c = self.case
        hidden, inner = c["hidden"], c["intermediate"]
        q, kv = c["q_heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        shapes = [(hidden,)] * 2 + [(q, hidden), (kv, hidden), (kv, hidden), (hidden, q)]
        shapes += [(inner, hidden), (inner, hidden), (hidden, inner)]
        exact = [torch.empty(shape).uniform_(-1, 1).requires_grad_() for shape in shapes]
        for weight in exact:
            weight.grad = torch.empty_like(weight).uniform_(-1, 1)
        optimizer = torch.optim.AdamW(exact, lr=1e-3, weight_decay=0.1, fused=True)
        optimizer.step()  # makes the states
        return {"optimizer": optimizer, "exact": exact,
                "rounded": [] if self.dtype == torch.float32 else [weight.detach().to(self.dtype) for weight in exact]}

    def tensors(self, inputs):
        exact = inputs["exact"]
        states = [state[name] for state in inputs["optimizer"].state.values() for name in ("exp_avg", "exp_avg_sq")]
        return [*exact, *(weight.grad for weight in exact), *inputs["rounded"], *states]

    def forward(self, optimizer, exact, rounded):
        optimizer.step()
        if rounded:
            torch._foreach_copy_(rounded, exact)


class Linear(Block):
    def inputs(self):
        c = self.case
        return {"x": self.random(c["rows"], c["in"]), "weight": self.matrix(c["out"], c["in"])}

    def forward(self, x, weight):
        return F.linear(x, weight)


class Layer(Block):
    """The decoder layer of transformers' modeling_llama, with scaled_dot_product_attention."""

    def __init__(self, case):
        super().__init__(case)
        self.cos, self.sin = rotary_tables(case["seq_len"], case["head_dim"], 500000.0, self.dtype)

    def inputs(self):
        c = self.case
        hidden, inner = c["hidden"], c["intermediate"]
        q, kv = c["q_heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        norm = torch.ones(hidden, dtype=self.dtype)
        return {"x": self.random(c["batch"], c["seq_len"], hidden), "norm1": norm, "norm2": norm.clone(),
                "w_q": self.matrix(q, hidden), "w_k": self.matrix(kv, hidden), "w_v": self.matrix(kv, hidden),
                "w_o": self.matrix(hidden, q), "w_gate": self.matrix(inner, hidden), "w_up": self.matrix(inner, hidden),
                "w_down": self.matrix(hidden, inner)}

    def forward(self, x, norm1, norm2, w_q, w_k, w_v, w_o, w_gate, w_up, w_down):
        c = self.case

        def heads(y, count):
            return y.view(c["batch"], c["seq_len"], count, c["head_dim"]).transpose(1, 2)

        normed = F.rms_norm(x, norm1.shape, norm1, EPSILON)
        q, k = apply_rotary_pos_emb(heads(F.linear(normed, w_q), c["q_heads"]), heads(F.linear(normed, w_k), c["kv_heads"]),
                                    self.cos, self.sin)
        v = heads(F.linear(normed, w_v), c["kv_heads"])
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=c["q_heads"] != c["kv_heads"])
        h = x + F.linear(attention.transpose(1, 2).reshape(c["batch"], c["seq_len"], -1), w_o)
        normed = F.rms_norm(h, norm2.shape, norm2, EPSILON)
        return h + F.linear(F.silu(F.linear(normed, w_gate)) * F.linear(normed, w_up), w_down)


BLOCKS = {"rms_norm": RmsNorm, "rms_norm_residual": RmsNormResidual, "rope": Rope, "swiglu": Swiglu,
          "cross_entropy": CrossEntropy, "linear_cross_entropy": LinearCrossEntropy, "embedding": Embedding, "adamw": AdamW, "linear": Linear, "layer": Layer}
