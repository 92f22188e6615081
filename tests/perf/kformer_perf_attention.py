# SPDX-License-Identifier: MIT
"""kformer-perf-attention from outside, on its tiny cases."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["KFORMER_PERF_ATTENTION"]
COMPARE = Path(os.environ["KFORMER_SOURCE"]) / "perf/compare.py"


def run(*arguments, requests=""):
    return subprocess.run([PROGRAM, "--smoke", *arguments], input=requests, capture_output=True, text=True)


def ask(*requests):
    done = run("--serve", requests="".join(request + "\n" for request in requests))
    return [json.loads(line) for line in done.stdout.splitlines()]


class Benchmarks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.file = Path(folder.name) / "smoke.json"
        done = run("--benchmark_min_time=0.001", "--benchmark_repetitions=3", "--kokkos-num-threads=2",
                   f"--benchmark_out={cls.file}", "--benchmark_out_format=json")
        if done.returncode:
            raise RuntimeError(done.stderr)
        cls.result = json.loads(cls.file.read_text(encoding="utf-8"))
        cls.medians = [b for b in cls.result["benchmarks"] if b.get("aggregate_name") == "median"]

    def test_every_case_has_a_median(self):
        self.assertEqual([b["run_name"].removesuffix("/manual_time") for b in self.medians],
                         [case["name"] for case in ask("cases")[0]])

    def test_rates_and_shares(self):
        for b in self.medians:
            self.assertGreater(b["GFLOP/s"], 0)
            if "decode" in b["name"]:
                self.assertGreater(b["GB/s"], 0)
            share = b["% of copy" if "decode" in b["name"] else "% of peak"]
            self.assertGreater(share, 0)
            self.assertLess(share, 100)

    def test_kernel_is_the_label(self):
        for b in self.medians:
            self.assertTrue(b["label"])
        self.assertEqual({b["label"] for b in self.medians if b["name"].startswith("attention_portable/")}, {"kokkos"})

    def test_context_says_what_ran(self):
        context = self.result["context"]
        self.assertTrue(context["kformer"].startswith("kformer-perf-attention "))
        self.assertTrue(context["peak_isa"])
        self.assertTrue(context["threads"])

    def test_compare_reads_the_file(self):
        done = subprocess.run([sys.executable, "-B", COMPARE, self.file, self.file], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"0 of {len(self.medians)} slower", done.stdout)


class Server(unittest.TestCase):
    def test_times_a_case(self):
        case = "attention/backward/f32/D8/S32/causal"
        timed, peak, copy = ask(f"time {case} 3", f"limit {case}", "limit attention/forward/f32/decode64")
        self.assertEqual(len(timed["seconds"]), 3)
        self.assertTrue(all(s > 0 for s in timed["seconds"]))
        self.assertTrue(timed["kernel"])
        self.assertGreater(peak["per_second"], 1e8)
        self.assertGreater(copy["per_second"], 1e8)

    def test_counts_operations_by_the_convention(self):
        flops = {case["name"]: case["flops"] for case in ask("cases")[0]}
        self.assertEqual(flops["attention_portable/forward/f32/D8/S32/full"], 4 * 2 * 2 * 32 * 32 * 8)
        self.assertEqual(flops["attention/forward/f32/D8/S32/causal"], 4 * 2 * 32 * 32 * 8 / 2)
        self.assertEqual(flops["attention/forward/f32/D8/S32/window8"], 4 * 2 * (32 * 32 - 24 * 24) / 2 * 8)
        self.assertEqual(flops["attention/backward/f32/D8/S32/causal"], 2.5 * 4 * 2 * 32 * 32 * 8 / 2)
        self.assertEqual(flops["attention/forward/f32/decode64"], 4 * 4 * 64 * 8)

    def test_decode_is_limited_by_memory(self):
        limits = {case["name"]: case["limit"] for case in ask("cases")[0]}
        self.assertEqual([name for name, limit in limits.items() if limit == "copy"], ["attention/forward/f32/decode64"])

    def test_refuses_with_a_sentence(self):
        nothing, unknown = ask("nothing", "time attention 1")
        self.assertEqual(nothing["error"], "'nothing' is not a request; use about, cases, time or limit")
        self.assertEqual(unknown["error"], "there is no case 'attention'; the request 'cases' lists all")


class CommandLine(unittest.TestCase):
    def test_unknown_option(self):
        done = run("--nonsense")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--nonsense", done.stderr)

    def test_nothing_matches(self):
        self.assertEqual(run("--benchmark_filter=nothing_has_this_name").returncode, 1)


if __name__ == "__main__":
    unittest.main()
