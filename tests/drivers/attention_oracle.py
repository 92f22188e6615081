# SPDX-License-Identifier: MIT
"""Attention and its gradients in numpy, double precision, from the formulas: the oracle of kformer-attention."""

import numpy as np


def attention(q, k, v, grad_out=None, *, scale=0.0, causal=False, window=0, softcap=0.0, bias=None, sinks=None,
              alibi_slopes=None, cu_seqlens_q=None, cu_seqlens_kv=None):
    """Arrays by the driver's names: out, lse, and with `grad_out` the gradients. Shapes as in docs/decks.md."""
    options = dict(scale=scale or q.shape[-1] ** -0.5, causal=causal, window=window, softcap=softcap, bias=bias,
                   sinks=sinks, alibi_slopes=alibi_slopes)
    if cu_seqlens_q is None:
        return _padded(q, k, v, grad_out, **options)
    parts = [_padded(*(None if x is None else x[:, begin:end] for x, begin, end in
                       ((q, q0, q1), (k, k0, k1), (v, k0, k1), (grad_out, q0, q1))), **options)
             for q0, q1, k0, k1 in zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_kv, cu_seqlens_kv[1:])]
    joined = {name: np.concatenate([part[name] for part in parts], axis=2 if name == "lse" else 1)
              for name in parts[0] if name != "grad.sinks"}
    if "grad.sinks" in parts[0]:
        joined["grad.sinks"] = sum(part["grad.sinks"] for part in parts)
    return joined


def _padded(q, k, v, grad_out, *, scale, causal, window, softcap, bias, sinks, alibi_slopes):
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)))
    capped = scaled = scale * q @ k.swapaxes(2, 3)
    if softcap > 0:
        capped = softcap * np.tanh(scaled / softcap)
    position = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    distance = np.abs(position - np.arange(k.shape[2]))
    scores = capped.copy()
    if alibi_slopes is not None:
        scores -= alibi_slopes[:, None, None] * distance
    if bias is not None:
        scores = scores + bias
    if causal:
        scores[..., np.arange(k.shape[2]) > position] = -np.inf
    if window > 0:
        scores[..., distance >= window] = -np.inf
    lse = _log_sum_exp(scores, sinks)
    p = np.exp(scores - np.where(np.isfinite(lse), lse, 0)[..., None])
    out = p @ v
    results = {"out": out.transpose(0, 2, 1, 3), "lse": lse}
    if grad_out is None:
        return results
    grad_out = grad_out.transpose(0, 2, 1, 3)
    delta = (grad_out * out).sum(axis=3)
    ds = p * (grad_out @ v.swapaxes(2, 3) - delta[..., None])
    if bias is not None:
        summed = tuple(axis for axis in range(4) if bias.shape[axis] == 1 and ds.shape[axis] > 1)
        results["grad.bias"] = ds.sum(axis=summed, keepdims=True)
    if sinks is not None:
        results["grad.sinks"] = -(np.exp(sinks[:, None] - lse) * delta).sum(axis=(0, 2))
    if softcap > 0:
        ds = ds * (1 - (capped / softcap) ** 2)
    gradients = {"grad.q": scale * ds @ k, "grad.k": _grouped(scale * ds.swapaxes(2, 3) @ q, group),
                 "grad.v": _grouped(p.swapaxes(2, 3) @ grad_out, group)}
    return results | {name: x.transpose(0, 2, 1, 3) for name, x in gradients.items()}


def _log_sum_exp(scores, sinks):
    if sinks is not None:
        column = np.broadcast_to(sinks[:, None, None], scores.shape[:3] + (1,))
        scores = np.concatenate([scores, column], axis=3)
    highest = scores.max(axis=3, initial=-np.inf)
    shift = np.where(np.isfinite(highest), highest, 0)
    with np.errstate(divide="ignore"):
        return shift + np.log(np.exp(scores - shift[..., None]).sum(axis=3))


def _grouped(gradient, group):
    batch, heads, length, width = gradient.shape
    return gradient.reshape(batch, heads // group, group, length, width).sum(axis=2)
