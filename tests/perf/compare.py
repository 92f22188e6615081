# SPDX-License-Identifier: MIT
"""perf/compare.py from outside, on files as Google Benchmark writes them."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(os.environ["KFORMER_SOURCE"]) / "perf/compare.py"


def repetitions(name, times, unit="ms"):
    return [{"name": name, "run_name": name, "run_type": "iteration", "real_time": t, "time_unit": unit} for t in times]


def aggregate(name, which, time):
    return {"name": f"{name}_{which}", "run_name": name, "run_type": "aggregate", "aggregate_name": which,
            "real_time": time, "time_unit": "ms"}


def shares(name, values, limit="% of peak"):
    return [{**entry, "% of BLAS": 1, limit: share} for entry, share in zip(repetitions(name, [1] * len(values)), values)]


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, benchmarks, threads="1", isa="avx9"):
        path = self.folder / name
        path.write_text(json.dumps({"context": {"threads": threads, "peak_isa": isa}, "benchmarks": benchmarks}),
                        encoding="utf-8")
        return path

    def run_it(self, baseline, new, *options):
        done = subprocess.run([sys.executable, "-B", PROGRAM, baseline, new, *options], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr


class Times(Compare):
    def compare(self, baseline, new, *options):
        return self.run_it(baseline, new, "--times", *options)

    def test_slower_beyond_the_threshold(self):
        old = self.write("old.json", repetitions("a", [10]) + repetitions("b", [10]))
        new = self.write("new.json", repetitions("a", [10.4]) + repetitions("b", [10.6]))
        code, out, _ = self.compare(old, new)
        self.assertEqual(code, 1)
        self.assertIn("1 of 2 slower by more than 5 %", out)
        self.assertRegex(out, r"a +10\.0000 +10\.4000 ms +1\.040\n")
        self.assertRegex(out, r"b +10\.0000 +10\.6000 ms +1\.060  slower\n")

    def test_threshold_is_an_option(self):
        old, new = self.write("old.json", repetitions("a", [10])), self.write("new.json", repetitions("a", [11]))
        self.assertEqual(self.compare(old, new, "--threshold", "0.2")[0], 0)
        self.assertEqual(self.compare(old, new, "--threshold", "0.05")[0], 1)

    def test_faster_is_fine(self):
        old, new = self.write("old.json", repetitions("a", [10])), self.write("new.json", repetitions("a", [5]))
        self.assertEqual(self.compare(old, new)[0], 0)

    def test_median_of_the_repetitions(self):
        old = self.write("old.json", repetitions("a", [10, 10, 10]))
        new = self.write("new.json", repetitions("a", [10, 1000, 9]))
        self.assertEqual(self.compare(old, new)[0], 0)

    def test_aggregates(self):
        old = self.write("old.json", [aggregate("a", "mean", 1), aggregate("a", "median", 10), aggregate("a", "stddev", 1)])
        new = self.write("new.json", [aggregate("a", "mean", 1), aggregate("a", "median", 20), aggregate("a", "stddev", 1)])
        code, out, _ = self.compare(old, new)
        self.assertEqual(code, 1)
        self.assertIn("2.000", out)

    def test_units(self):
        old, new = self.write("old.json", repetitions("a", [1], "ms")), self.write("new.json", repetitions("a", [1000], "us"))
        self.assertEqual(self.compare(old, new)[0], 0)

    def test_new_benchmark(self):
        old = self.write("old.json", repetitions("a", [1]))
        new = self.write("new.json", repetitions("a", [1]) + repetitions("b", [1]))
        code, out, _ = self.compare(old, new)
        self.assertEqual(code, 0)
        self.assertIn("b is new", out)

    def refused(self, old, new, words):
        code, _, err = self.compare(old, new)
        self.assertEqual(code, 2)
        self.assertIn(words, err)

    def test_what_cannot_be_compared(self):
        good = self.write("good.json", repetitions("a", [1]))
        self.refused(self.folder / "none.json", good, "none.json: No such file or directory")
        self.refused(good, self.folder / "none.json", "none.json: No such file or directory")
        self.refused(good, self.write("empty.json", []), "empty.json: has no benchmarks; write it with --benchmark_out")
        self.refused(good, self.write("other.json", repetitions("b", [1])), "other.json: lacks a")
        self.refused(good, self.write("threads.json", repetitions("a", [1]), "2"), "measured with 1 and 2 threads")
        self.refused(good, self.write("isa.json", repetitions("a", [1]), isa="avx8"),
                     "measured with avx9 and avx8 as the instructions of the limit")
        for value in float("nan"), float("inf"), 0, -1:
            self.refused(good, self.write("value.json", repetitions("a", [value])), "value.json: a has a value of ")
        failed = [{"name": "a", "run_type": "iteration", "error_occurred": True, "error_message": "no kernel"}]
        self.refused(good, self.write("failed.json", failed), "failed.json: a failed: no kernel")
        (self.folder / "text.json").write_text("{", encoding="utf-8")
        self.refused(good, self.folder / "text.json", "text.json: not JSON")


class Shares(Compare):
    def refused(self, old, new, words):
        code, _, err = self.run_it(old, new)
        self.assertEqual(code, 2)
        self.assertIn(words, err)

    def test_a_smaller_share_is_slower(self):
        old = self.write("old.json", shares("a", [80]) + shares("b", [80], "% of bandwidth") + shares("c", [80], "% of limit"))
        new = self.write("new.json", shares("a", [77]) + shares("b", [75], "% of bandwidth") + shares("c", [90], "% of limit"))
        code, out, _ = self.run_it(old, new)
        self.assertEqual(code, 1)
        self.assertRegex(out, r"a +80\.0000 +77\.0000 % of peak +1\.039\n")
        self.assertRegex(out, r"b +80\.0000 +75\.0000 % of bandwidth +1\.067  slower\n")
        self.assertRegex(out, r"c +80\.0000 +90\.0000 % of limit +0\.889\n")
        self.assertIn("1 of 3 slower by more than 5 %", out)
        self.assertEqual(self.run_it(old, new, "--threshold", "0.1")[0], 0)

    def test_times_do_not_count(self):
        old, new = shares("a", [80]), shares("a", [80])
        new[0]["real_time"] = 9
        old, new = self.write("old.json", old), self.write("new.json", new)
        self.assertEqual(self.run_it(old, new)[0], 0)
        self.assertEqual(self.run_it(old, new, "--times")[0], 1)

    def test_median_of_the_repetitions(self):
        old, new = self.write("old.json", shares("a", [80, 80, 80])), self.write("new.json", shares("a", [80, 10, 99]))
        self.assertEqual(self.run_it(old, new)[0], 0)

    def test_the_suffix_of_manual_times_is_no_part_of_the_name(self):
        old, new = self.write("old.json", shares("a", [80])), self.write("new.json", shares("a/manual_time", [80]))
        self.assertEqual(self.run_it(old, new)[0], 0)

    def test_what_cannot_be_compared(self):
        good = self.write("good.json", shares("a", [80]))
        self.refused(good, self.write("times.json", repetitions("a", [1])),
                     "times.json: a has no share of a limit; compare the times (--times)")
        for share in float("nan"), float("inf"), 0.0, -80.0:
            self.refused(good, self.write("share.json", shares("a", [share])), f"share.json: a has a value of {share} % of peak")
        self.refused(good, self.write("limit.json", shares("a", [80], "% of limit")), "a: % of peak in ")
        self.refused(good, self.write("threads.json", shares("a", [80]), "2"), "measured with 1 and 2 threads")
        self.refused(good, self.write("isa.json", shares("a", [80]), isa="avx8"),
                     "measured with avx9 and avx8 as the instructions of the limit")
        self.refused(good, self.write("other.json", shares("b", [80])), "other.json: lacks a")


if __name__ == "__main__":
    unittest.main()
