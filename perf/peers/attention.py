#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares Kformer's attention with PyTorch's scaled_dot_product_attention, on the same shapes, in the same run.

The two alternate call by call, never run at the same time, and use equal threads: ours, then PyTorch with its flash path
forced and with its choice left free, in an order that changes from turn to turn. Beside standard_attention it has its math
path forced, which keeps the scores in memory as well. Forward runs under no_grad, backward is
autograd.grad on a retained graph. Each uses its favourable layout: ours is (batch, seq, heads, head_dim), PyTorch's
(batch, heads, seq, head_dim). Inputs are normal numbers, and rotate so that they come from memory. PyTorch allocates its
results in each call, as it does for its users; ours are passed in. A row has medians, our share of the machine's limit
measured between the calls (the multiply-add peak; for decode, the bandwidth of reads, updates or copies, whichever moves
the most), and our speed-up over the better of PyTorch's paths. --filter '^standard_attention/' chooses the form with the scores in memory.

Create the environment with perf/peers/make_environment.
"""

from contextlib import nullcontext

import turns

PATHS = ("flash", "free", "math")


class PyTorch:
    """One case with its operands in memory, warmed up."""

    def __init__(self, torch, case, rotated_bytes, clock):
        if case["window"] or (case["causal"] and case["q_len"] != case["kv_len"]):
            raise turns.CannotMeasure("scaled_dot_product_attention has no such mask without storing it")
        self._torch, self._clock = torch, clock
        self._case = case
        self.paths = ("math",) if case["name"].startswith("standard_attention/") else ("flash", "free")
        self._backward = case["direction"] == "backward"
        self._sets = turns.RotatingSets(self._make_set, self._set_bytes, rotated_bytes)
        self._graphs = {p: [self._graph(p, s) for s in self._sets.all] for p in self.paths} if self._backward else {}
        choice = self._graph("free", self._make_set(needs_graph=True)).grad_fn.name().removesuffix("Backward0")
        self.notes = {"pytorch_choice": choice}
        for path in self.paths:
            for _ in self._sets.all:
                self.seconds(path)

    def seconds(self, path):
        """Seconds of one call."""
        torch, i = self._torch, self._sets.next()
        operands = self._sets.all[i]
        if self._backward:
            out = self._graphs[path][i]
            return self._clock.seconds(
                lambda: torch.autograd.grad(out, operands["qkv"], operands["grad_out"], retain_graph=True))
        with torch.no_grad(), self._forced(path):
            return self._clock.seconds(lambda: self._attention(operands))

    def _make_set(self, needs_graph=False):
        torch, c = self._torch, self._case
        dtype = turns.torch_dtype(torch, c["dtype"])

        def normal(heads, length):
            return torch.randn(c["batch"], heads, length, c["head_dim"]).to(dtype)

        qkv = [normal(c["q_heads"], c["q_len"]), normal(c["kv_heads"], c["kv_len"]), normal(c["kv_heads"], c["kv_len"])]
        if self._backward or needs_graph:
            for x in qkv:
                x.requires_grad_()
        return {"qkv": qkv, "grad_out": normal(c["q_heads"], c["q_len"]) if self._backward else None}

    def _set_bytes(self, operands):
        tensors = [*operands["qkv"], operands["qkv"][0]]  # the last for out, which is like q
        once = sum(x.numel() * x.element_size() for x in tensors)
        return 2 * once if self._backward else once

    def _forced(self, path):
        from torch.nn import attention

        forced = {"flash": attention.SDPBackend.FLASH_ATTENTION, "math": attention.SDPBackend.MATH}
        return attention.sdpa_kernel(forced[path]) if path in forced else nullcontext()

    def _attention(self, operands):
        c = self._case
        return self._torch.nn.functional.scaled_dot_product_attention(
            *operands["qkv"], is_causal=bool(c["causal"]), enable_gqa=c["q_heads"] != c["kv_heads"])

    def _graph(self, path, operands):
        with self._forced(path):
            return self._attention(operands)


if __name__ == "__main__":
    turns.main(__doc__, "kformer-perf-attention", r"^attention/\w+/(f32|bf16)/(?!.*window)", PATHS, PyTorch)
