# SPDX-License-Identifier: MIT
"""What the programs of perf/ have in common, seen from outside on their tiny cases."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

COMPARE = Path(os.environ["KFORMER_SOURCE"]) / "perf/compare.py"
# By what limits a case.
SHARES = {"arithmetic": "% of peak", "memory": "% of bandwidth", "sum": "% of limit"}


class Program:
    """A program, run anew for each question."""

    def __init__(self, path):
        self.path = path

    def run(self, *arguments, requests="", smoke=True):
        tiny = ["--smoke"] if smoke else []
        return subprocess.run([self.path, *tiny, *arguments], input=requests, capture_output=True, text=True)

    def ask(self, *requests, smoke=True):
        done = self.run("--serve", requests="".join(request + "\n" for request in requests), smoke=smoke)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def cases(self):
        """The server's cases by name."""
        return {case["name"]: case for case in self.ask("cases")[0]}


class Benchmarks:
    """Tests of a class that has the program as `program`."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.file = Path(folder.name) / "smoke.json"
        # Less than any call takes: each search for a number of iterations would pass over large arrays, for the limits.
        done = cls.program.run("--benchmark_min_time=0.000001", "--benchmark_repetitions=2", "--kokkos-num-threads=2",
                               f"--benchmark_out={cls.file}", "--benchmark_out_format=json")
        if done.returncode:
            raise RuntimeError(done.stderr)
        cls.result = json.loads(cls.file.read_text(encoding="utf-8"))
        medians = [b for b in cls.result["benchmarks"] if b.get("aggregate_name") == "median"]
        cls.medians = {b["run_name"].removesuffix("/manual_time"): b for b in medians}
        cls.cases = cls.program.cases()

    def test_every_case_has_a_median(self):
        self.assertEqual(list(self.medians), list(self.cases))

    def test_rates_and_shares(self):
        for name, case in self.cases.items():
            median = self.medians[name]
            self.assertGreater(median["GFLOP/s" if case["flops"] else "GB/s"], 0, name)
            (share,) = {counter for counter in median if counter.startswith("% of")} - {"% of BLAS"}
            self.assertEqual(share, SHARES[case["limit"]], name)
            self.assertGreater(median[share], 0, name)

    def test_kernel_is_the_label(self):
        for median in self.medians.values():
            self.assertTrue(median["label"])

    def test_context_says_what_ran(self):
        context = self.result["context"]
        self.assertTrue(context["kformer"].startswith(Path(self.program.path).name + " "))
        self.assertTrue(context["peak_isa"])
        self.assertTrue(context["device"])
        self.assertTrue(context["threads"])

    def test_compare_reads_the_file(self):
        done = subprocess.run([sys.executable, "-B", COMPARE, self.file, self.file], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"0 of {len(self.medians)} slower", done.stdout)


class CommandLine:
    """Tests of a class that has the program as `program`."""

    def test_refuses_with_a_sentence(self):
        nothing, unknown = self.program.ask("nothing", "time something 1")
        self.assertEqual(nothing["error"], "'nothing' is not a request; use about, cases, time or limit")
        self.assertEqual(unknown["error"], "there is no case 'something'; the request 'cases' lists all")

    def test_unknown_option(self):
        done = self.program.run("--nonsense")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--nonsense", done.stderr)

    def test_nothing_matches(self):
        self.assertEqual(self.program.run("--benchmark_filter=nothing_has_this_name").returncode, 1)
