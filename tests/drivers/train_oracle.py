# SPDX-License-Identifier: MIT
"""Training of a Llama model in NumPy, double precision: gradients by hand, AdamW, clipping, schedules. An oracle that
shares no code with the library. Its gradients are themselves checked by finite differences (kformer_train.py)."""

import math

import numpy as np

from llama_oracle import frequencies

EMBEDDING = "model.embed_tokens.weight"


def linear(x, weight):
    """x Wᵀ, and how gradients go back: (dx, dW)."""
    def back(dy):
        return dy @ weight, dy.reshape(-1, dy.shape[-1]).T @ x.reshape(-1, x.shape[-1])
    return x @ weight.T, back


def norm(x, weight, eps):
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    y = x * rstd

    def back(dy):
        dn = dy * weight
        dx = rstd * (dn - y * (dn * y).mean(-1, keepdims=True))
        return dx, (dy * y).reshape(-1, len(weight)).sum(0)
    return y * weight, back


def rotation(config, tokens):
    """Rotates (batch, tokens, heads, head_dim); back by the negative angle."""
    half = config["head_dim"] // 2
    angles = np.outer(np.arange(tokens), frequencies(config))[None, :, None]
    cosine, sine = np.cos(angles), np.sin(angles)

    def turn(x, sine):
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)
    return lambda x: turn(x, sine), lambda dy: turn(dy, -sine)


def attention(q, k, v, groups):
    """(batch, tokens, heads, head_dim), causal; a key head serves `groups` query heads."""
    tokens, scale = q.shape[1], 1 / math.sqrt(q.shape[-1])
    wide_k, wide_v = np.repeat(k, groups, 2), np.repeat(v, groups, 2)
    scores = np.einsum("bqhd,bkhd->bhqk", q, wide_k) * scale
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)

    def narrow(wide):
        return wide.reshape(*wide.shape[:2], -1, groups, wide.shape[-1]).sum(3)

    def back(dy):
        dp = np.einsum("bqhd,bkhd->bhqk", dy, wide_v)
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
        return (np.einsum("bhqk,bkhd->bqhd", ds, wide_k), narrow(np.einsum("bhqk,bqhd->bkhd", ds, q)),
                narrow(np.einsum("bhqk,bqhd->bkhd", p, dy)))
    return np.einsum("bhqk,bkhd->bqhd", p, wide_v), back


def layer(config, part, x):
    """One decoder layer; `back(dy)` gives dx and the gradients by name."""
    batch, tokens, _ = x.shape
    eps, head = config["rms_norm_eps"], config["head_dim"]
    turn, turn_back = rotation(config, tokens)
    normed, norm1 = norm(x, part["input_layernorm.weight"], eps)
    (q, q_back), (k, k_back), (v, v_back) = (linear(normed, part[f"self_attn.{n}_proj.weight"]) for n in "qkv")
    biases = {n: part[f"self_attn.{n}_proj.bias"] for n in "qkv" if f"self_attn.{n}_proj.bias" in part}
    q, k, v = ((a + biases.get(n, 0)).reshape(batch, tokens, -1, head) for n, a in zip("qkv", (q, k, v)))
    mixed, attend = attention(turn(q), turn(k), v, q.shape[2] // k.shape[2])
    out, o_back = linear(mixed.reshape(batch, tokens, -1), part["self_attn.o_proj.weight"])
    h = x + out
    normed2, norm2 = norm(h, part["post_attention_layernorm.weight"], eps)
    gate, gate_back = linear(normed2, part["mlp.gate_proj.weight"])
    up, up_back = linear(normed2, part["mlp.up_proj.weight"])
    sigmoid = 1 / (1 + np.exp(-gate))
    down, down_back = linear(gate * sigmoid * up, part["mlp.down_proj.weight"])

    def back(dy):
        grads = {}
        da, grads["mlp.down_proj.weight"] = down_back(dy)
        dn_gate, grads["mlp.gate_proj.weight"] = gate_back(da * up * sigmoid * (1 + gate * (1 - sigmoid)))
        dn_up, grads["mlp.up_proj.weight"] = up_back(da * gate * sigmoid)
        dh, grads["post_attention_layernorm.weight"] = norm2(dn_gate + dn_up)
        dh = dh + dy
        dm, grads["self_attn.o_proj.weight"] = o_back(dh)
        dq, dk, dv = attend(dm.reshape(mixed.shape))
        dn = 0
        for name, d, linear_back in (("q", turn_back(dq), q_back), ("k", turn_back(dk), k_back), ("v", dv, v_back)):
            d = d.reshape(batch, tokens, -1)
            part_dn, grads[f"self_attn.{name}_proj.weight"] = linear_back(d)
            dn = dn + part_dn
            if name in biases:
                grads[f"self_attn.{name}_proj.bias"] = d.sum((0, 1))
        dx, grads["input_layernorm.weight"] = norm1(dn)
        return dx + dh, grads
    return h + down, back


def loss_and_gradients(config, weights, ids, targets):
    """The mean loss over targets that are not -100, and its gradients by name. ids, targets: (batch, tokens)."""
    x = weights[EMBEDDING][ids]
    backs = []
    for i in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{i}."
        x, back = layer(config, {n[len(prefix):]: w for n, w in weights.items() if n.startswith(prefix)}, x)
        backs.append((prefix, back))
    hidden, norm_back = norm(x, weights["model.norm.weight"], config["rms_norm_eps"])
    head = EMBEDDING if config["tie_word_embeddings"] else "lm_head.weight"
    logits, head_back = linear(hidden, weights[head])
    logits = logits - logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    counted = targets != -100
    picked = np.where(counted, targets, 0)[..., None]
    loss = -np.take_along_axis(log_p, picked, -1)[..., 0][counted].sum() / counted.sum()
    dlogits = np.exp(log_p)
    np.put_along_axis(dlogits, picked, np.take_along_axis(dlogits, picked, -1) - 1, -1)
    dhidden, grad_head = head_back(dlogits * counted[..., None] / counted.sum())
    dx, grad_norm = norm_back(dhidden)
    gradients = {"model.norm.weight": grad_norm, head: grad_head}
    for prefix, back in reversed(backs):
        dx, grads = back(dx)
        gradients |= {prefix + name: g for name, g in grads.items()}
    embedding = gradients.setdefault(EMBEDDING, np.zeros_like(weights[EMBEDDING]))
    np.add.at(embedding, ids, dx)
    return loss, gradients


def loss_and_gradients_of(config, weights, pieces):
    """The mean over the targets of several (ids, targets), each computed alone."""
    total, counted, sums = 0.0, sum(int((targets != -100).sum()) for _, targets in pieces), {}
    for ids, targets in pieces:
        loss, gradients = loss_and_gradients(config, weights, ids, targets)
        share = int((targets != -100).sum()) / counted
        total += share * loss
        for name, g in gradients.items():
            sums[name] = sums.get(name, 0) + share * g
    return total, sums


def learning_rate(step, kind, lr, steps, warmup=0, min_lr=0.0, decay=0):
    if step < warmup:
        return lr * (step + 1) / warmup
    if kind == "constant":
        return lr
    if kind == "wsd":
        begin = steps - (decay or max(1, steps // 5))
        return lr if step < begin else lr + (min_lr - lr) * (step - begin) / (steps - begin)
    share = (step - warmup) / (steps - warmup)
    if kind == "linear":
        return lr + (min_lr - lr) * share
    return min_lr + (lr - min_lr) * 0.5 * (1 + math.cos(math.pi * share))


class AdamW:
    def __init__(self, weights, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, max_norm=0.0):
        self.weights, self.betas, self.eps, self.decay, self.max_norm = weights, betas, eps, weight_decay, max_norm
        self.m = {name: np.zeros_like(w) for name, w in weights.items()}
        self.v = {name: np.zeros_like(w) for name, w in weights.items()}
        self.t = 0

    def step(self, gradients, lr):
        """Updates the weights; returns the norm before clipping."""
        total = math.sqrt(sum((g * g).sum() for g in gradients.values()))
        clip = min(1.0, self.max_norm / (total + 1e-6)) if self.max_norm > 0 else 1.0
        self.t += 1
        b1, b2 = self.betas
        for name, w in self.weights.items():
            g = clip * gradients[name]
            self.m[name] = b1 * self.m[name] + (1 - b1) * g
            self.v[name] = b2 * self.v[name] + (1 - b2) * g * g
            m, v = self.m[name] / (1 - b1 ** self.t), self.v[name] / (1 - b2 ** self.t)
            if w.ndim > 1:
                w -= lr * self.decay * w
            w -= lr * m / (np.sqrt(v) + self.eps)
        return total


def stream(tokens, seq_len):
    """Sequences of packing `stream`: (sequences, seq_len) of inputs, and of targets."""
    count = (len(tokens) - 1) // seq_len
    tokens = np.asarray(tokens)
    return tokens[:count * seq_len].reshape(count, seq_len), tokens[1:count * seq_len + 1].reshape(count, seq_len)


def pieces_of(document, seq_len):
    """What packing makes of a document: (ids, targets), of which none sees another."""
    cuts = [np.asarray(document[first:first + seq_len + 1]) for first in range(0, len(document) - 1, seq_len)]
    return [(cut[None, :-1], cut[None, 1:]) for cut in cuts]


def steps_of(sequences, batch):
    """Step n takes the next `batch` sequences, on into the next epoch."""
    ids, targets = sequences

    def pieces(step):
        rows = [(step * batch + i) % len(ids) for i in range(batch)]
        return [(ids[rows], targets[rows])]
    return pieces


def train(config, weights, pieces, steps, schedule, after_step=lambda done: None, **optimizer):
    """Updates `weights`; returns losses and norms. Step n learns pieces(n)."""
    adamw = AdamW(weights, **optimizer)
    losses, norms = [], []
    for step in range(steps):
        loss, gradients = loss_and_gradients_of(config, weights, pieces(step))
        losses.append(loss)
        norms.append(adamw.step(gradients, learning_rate(step, steps=steps, **schedule)))
        after_step(step + 1)
    return np.array(losses), np.array(norms)
