# SPDX-License-Identifier: MIT
"""Models of the Llama family in NumPy, double precision, all tokens at once: an oracle that shares no code with the
library. Weights are arrays by their published names, configurations those of config.json files."""

import numpy as np


def random_weights(config, generator, scale=0.3):
    """Weights for a configuration; biases for qwen2, norms of heads for qwen3."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head

    def normal(*shape):
        return scale * generator.standard_normal(shape)

    weights = {"model.embed_tokens.weight": 3 * normal(config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = 1 + normal(hidden)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            weights[f"{prefix}self_attn.{name}_proj.weight"] = normal(rows, hidden)
            if config["model_type"] == "qwen2":
                weights[f"{prefix}self_attn.{name}_proj.bias"] = normal(rows)
        if config["model_type"] == "qwen3":
            for name in ("q", "k"):
                weights[f"{prefix}self_attn.{name}_norm.weight"] = 1 + normal(head)
        weights[f"{prefix}self_attn.o_proj.weight"] = normal(hidden, queries)
        for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            weights[f"{prefix}mlp.{name}_proj.weight"] = normal(*shape)
    weights["model.norm.weight"] = 1 + normal(hidden)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = normal(config["vocab_size"], hidden)
    return weights


def frequencies(config):
    """Of RoPE, with the scaling of Llama 3.1 if the configuration has it."""
    plain = config["rope_theta"] ** -(np.arange(0, config["head_dim"], 2) / config["head_dim"])
    scaling = config.get("rope_scaling")
    if not scaling:
        return plain
    turns = scaling["original_max_position_embeddings"] * plain / (2 * np.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return kept * plain + (1 - kept) * plain / scaling["factor"]


def visible(config, tokens, window=None, sinks=0):
    """Which keys (columns) a query (row) sees: those before it, in the model's window, and in that of a cache."""
    behind = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    mask = behind >= 0
    if config.get("sliding_window"):
        mask &= behind < config["sliding_window"]
    if window:
        mask &= (behind < window) | (np.arange(tokens) < sinks)
    return mask


def in_8_bits(x):
    """Rounded to multiples of the largest number of a head, over 127."""
    unit = np.abs(x).max(-1, keepdims=True) / 127
    return np.rint(x / unit) * unit


def log_probabilities(config, weights, ids, int8=False, **cache):
    """(tokens, vocabulary): of the token after each; with keys and values in 8 bits, `cache` as of visible()."""
    tokens, head, half = len(ids), config["head_dim"], config["head_dim"] // 2
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    angles = np.outer(np.arange(tokens), frequencies(config))[:, None]
    mask = visible(config, tokens, **cache)

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * weight

    def rotated(x):
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        part = {name.split(f"layers.{layer}.")[1]: w for name, w in weights.items() if f".layers.{layer}." in name}

        def linear(x, name):
            return x @ part[f"{name}.weight"].T + part.get(f"{name}.bias", 0)

        normed = norm(x, part["input_layernorm.weight"])
        q, k, v = (linear(normed, f"self_attn.{name}_proj").reshape(tokens, -1, head) for name in "qkv")
        if "self_attn.q_norm.weight" in part:
            q, k = norm(q, part["self_attn.q_norm.weight"]), norm(k, part["self_attn.k_norm.weight"])
        k = rotated(k)
        if int8:
            k, v = in_8_bits(k), in_8_bits(v)
        k, v = np.repeat(k, heads // groups, 1), np.repeat(v, heads // groups, 1)
        scores = np.where(mask, np.einsum("qhd,khd->hqk", rotated(q), k) / np.sqrt(head), -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + linear(np.einsum("hqk,khd->qhd", scores, v).reshape(tokens, -1), "self_attn.o_proj")
        normed = norm(x, part["post_attention_layernorm.weight"])
        gate = linear(normed, "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(normed, "mlp.up_proj"), "mlp.down_proj")
    head_weight = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    logits = norm(x, weights["model.norm.weight"]) @ head_weight.T
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
