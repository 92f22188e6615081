#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attention of this library beside PyTorch's scaled_dot_product_attention, on the same shapes, in the same run.

The two take turns call by call, never at the same time and on equal threads: ours, then PyTorch with its flash path forced
and with its choice left free, whose order changes from turn to turn. Forward runs under no_grad, backward is autograd.grad
on a kept graph. Each has its favourable layout: (batch, seq, heads, head_dim) here, (batch, heads, seq, head_dim) there.
Inputs are normal, and rotate so that they come from memory. PyTorch allocates its results in each call, as its users have
it; ours are handed in. A row has medians, our share of the machine's limit measured
between the calls (the multiply-add peak, for decode the copy bandwidth), and how many times faster we are than the better
of PyTorch's two.

The environment that this runs in is made by perf/peers/make_environment.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

# Threads of the program whose turn it is not must sleep.
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
PATHS = ("flash", "free")


class CannotMeasure(Exception):
    pass


class Ours:
    """kformer-perf-attention --serve."""

    def __init__(self, program, threads, options=()):
        command = [program, "--serve", f"--kokkos-num-threads={threads}", *options]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise CannotMeasure(f"{program}: {error.strerror}; give the path of kformer-perf-attention") from error

    def ask(self, request):
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # no answer will come
        line = self._process.stdout.readline()
        if not line:
            raise CannotMeasure(f"kformer-perf-attention ended with {self._process.wait()} at the request: {request}")
        answer = json.loads(line)
        if "error" in answer:
            raise CannotMeasure(answer["error"])
        return answer

    def close(self):
        self._process.stdin.close()
        self._process.wait()


class PyTorch:
    """One case with its operands in memory, warmed up."""

    def __init__(self, torch, case, cache_bytes):
        if case["window"] or (case["causal"] and case["q_len"] != case["kv_len"]):
            raise CannotMeasure(f"{case['name']}: scaled_dot_product_attention has no such mask without storing it")
        self._torch = torch
        self._case = case
        self._sets = []
        self._next = 0
        while not self._sets or (self._set_bytes() < cache_bytes and len(self._sets) < 2 + cache_bytes // self._set_bytes()):
            self._sets.append(self._make_set())
        self._graphs = {path: [self._graph(path, s) for s in self._sets] for path in PATHS} if case["backward"] else {}
        self.choice = self._graph("free", self._make_set(needs_graph=True)).grad_fn.name().removesuffix("Backward0")
        for path in PATHS:
            for _ in self._sets:
                self.seconds(path)

    def seconds(self, path):
        """Seconds of one call; each takes the operands that have been out of the caches for longest."""
        torch, i = self._torch, self._next
        self._next = (self._next + 1) % len(self._sets)
        operands = self._sets[i]
        if self._case["backward"]:
            out = self._graphs[path][i]
            begin = time.perf_counter()
            torch.autograd.grad(out, operands["qkv"], operands["grad_out"], retain_graph=True)
            return time.perf_counter() - begin
        with torch.no_grad(), self._forced(path):
            begin = time.perf_counter()
            self._attention(operands)
            return time.perf_counter() - begin

    def _make_set(self, needs_graph=False):
        torch, c = self._torch, self._case
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}[c["dtype"]]

        def normal(heads, length):
            return torch.randn(c["batch"], heads, length, c["head_dim"]).to(dtype)

        qkv = [normal(c["q_heads"], c["q_len"]), normal(c["kv_heads"], c["kv_len"]), normal(c["kv_heads"], c["kv_len"])]
        if c["backward"] or needs_graph:
            for x in qkv:
                x.requires_grad_()
        return {"qkv": qkv, "grad_out": normal(c["q_heads"], c["q_len"]) if c["backward"] else None}

    def _set_bytes(self):
        tensors = [*self._sets[0]["qkv"], self._sets[0]["qkv"][0]]  # the last for out, which is like q
        once = sum(x.numel() * x.element_size() for x in tensors)
        return 2 * once if self._case["backward"] else once

    def _forced(self, path):
        attention = self._torch.nn.attention
        return attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION) if path == "flash" else nullcontext()

    def _attention(self, operands):
        c = self._case
        return self._torch.nn.functional.scaled_dot_product_attention(
            *operands["qkv"], is_causal=c["causal"], enable_gqa=c["q_heads"] != c["kv_heads"])

    def _graph(self, path, operands):
        with self._forced(path):
            return self._attention(operands)


def measure(ours, torch, case, cache_bytes, repetitions):
    """One row: seconds of every call, their medians and ratios."""
    theirs = PyTorch(torch, case, cache_bytes)
    seconds = {"ours": [], **{path: [] for path in PATHS}}
    limits = []
    kernel = ours.ask(f"time {case['name']} 1")["kernel"]
    for i in range(repetitions):
        limits.append(ours.ask(f"limit {case['name']}")["per_second"])
        seconds["ours"] += ours.ask(f"time {case['name']} 1")["seconds"]
        for path in PATHS if i % 2 == 0 else reversed(PATHS):
            seconds[path].append(theirs.seconds(path))
    median = {who: statistics.median(s) for who, s in seconds.items()}
    limit = statistics.median(limits)
    work = case["flops"] if case["limit"] == "fma" else case["bytes"]
    return {
        **case,
        "kernel": kernel,
        "pytorch_choice": theirs.choice,
        "seconds": seconds,
        "median": median,
        "limit_per_second": limit,
        "share_of_limit": work / median["ours"] / limit,
        "ratio": min(median[path] for path in PATHS) / median["ours"],
    }


def print_row(row):
    ms = {who: f"{1e3 * s:.2f}" for who, s in row["median"].items()}
    print(
        f"{row['name']:<46} {row['kernel']:<10} {ms['ours']:>9} {100 * row['share_of_limit']:5.1f} % {ms['flash']:>9} "
        f"{ms['free']:>9} {row['ratio']:6.2f} x",
        flush=True,
    )


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program kformer-perf-attention")
    parser.add_argument("--threads", type=int, default=1, help="of both (default 1)")
    parser.add_argument("--repetitions", type=int, default=7, help="calls of each per case (default 7)")
    parser.add_argument("--filter", default=r"^attention/\w+/(f32|bf16)/(?!.*window)", help="regular expression of cases")
    parser.add_argument("--output", type=Path, help="JSON with every sample")
    parser.add_argument("--smoke", action="store_true", help="the program's tiny cases")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    # Before anything loads OpenMP; the other program inherits them.
    os.environ.update(SLEEPING_THREADS, OMP_NUM_THREADS=str(arguments.threads))
    # Bound threads would not do: the program inherits the one core that PyTorch's first thread is bound to.
    os.environ["OMP_PROC_BIND"] = "false"
    try:
        import torch
        import torch.nn.attention
    except ImportError as error:
        raise CannotMeasure(f"{error}; perf/peers/make_environment makes an environment that has PyTorch") from error

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    ours = Ours(arguments.program, arguments.threads, ["--smoke"] if arguments.smoke else [])
    about = {**ours.ask("about"), "pytorch": torch.__version__, "repetitions": arguments.repetitions}
    print(f"{about['version']} beside PyTorch {about['pytorch']}; threads: {about['threads']}; milliseconds, medians of "
          f"{arguments.repetitions}; peak by {about['isa']}")
    print(f"{'case':<46} {'kernel':<10} {'ours':>9} {'limit':>7} {'flash':>9} {'free':>9} {'faster':>8}")
    rows = []
    for case in ours.ask("cases"):
        if re.search(arguments.filter, case["name"]):
            rows.append(measure(ours, torch, case, about["cache_bytes"], arguments.repetitions))
            print_row(rows[-1])
            if arguments.output:
                arguments.output.write_text(json.dumps({"about": about, "rows": rows}, indent=1), encoding="utf-8")
    ours.close()
    if not rows:
        print(f"no case matches {arguments.filter}", file=sys.stderr)
        return 1
    slowest = min(rows, key=lambda row: row["ratio"])
    faster = sum(row["ratio"] > 1 for row in rows)
    print(f"faster in {faster} of {len(rows)} rows; least: {slowest['ratio']:.2f} x in {slowest['name']}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotMeasure as error:
        sys.exit(f"attention.py: {error}")
