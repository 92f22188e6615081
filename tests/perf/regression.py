# SPDX-License-Identifier: MIT
"""perf/regression from outside, on programs that answer from a file."""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(os.environ["KFORMER_SOURCE"]) / "perf/regression"
MODULE = runpy.run_path(str(PROGRAM))
ADAMW, ROPE, ATTENTION = "adamw/step/bf16/llama-3.2-1b", "rope/forward/bf16/H2048", "attention/forward/f32/D64/S512/causal"

# Shares come from state.json: one number, or one for each call of the program. It writes down what was asked.
FAKE = f"""#!{sys.executable}
import json, re, sys
from pathlib import Path
folder = Path(__file__).parent
state = json.loads((folder / "state.json").read_text())
if state["exit"]:
    sys.exit("no kernel\\n")
if "--serve" in sys.argv:
    assert sys.stdin.read() == "about\\n"
    print(json.dumps(state["about"]))
    sys.exit()
options = dict(a.split("=", 1) for a in sys.argv[1:])
calls = folder / (Path(__file__).name + ".calls")
asked = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
names = [n for n in state["shares"] if re.search(options["--benchmark_filter"], n + "/manual_time")]
with calls.open("a") as file:
    file.write(json.dumps(names) + "\\n")
rows = []
for name in names:
    share = state["shares"][name]
    if isinstance(share, list):
        share = share[min(len(asked), len(share) - 1)]
    limit = state["limits"].get(name, "% of bandwidth")
    for times in (0.5, 1, 1.01, 1, 3):
        rows.append({{"name": name, "run_name": name + "/manual_time", "run_type": "iteration", "real_time": 1,
                      "time_unit": "ms", limit: share * times}})
Path(options["--benchmark_out"]).write_text(json.dumps({{"context": {{}}, "benchmarks": rows}}))
"""


class Regression(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.perf, self.baselines = self.folder / "build/perf", self.folder / "baseline"
        self.perf.mkdir(parents=True)
        for name in ("kformer-perf-blocks", "kformer-perf-attention"):
            (self.perf / name).write_text(FAKE, encoding="utf-8")
            (self.perf / name).chmod(0o755)
        self.names = [name for names in MODULE["CASES"].values() for name in names]
        self.state = {"about": {"version": "kformer-perf-blocks 1", "isa": "avx9", "device": "OpenMP", "threads": 2}, "exit": 0,
                      "shares": dict.fromkeys(self.names, 80.0), "limits": {ATTENTION: "% of peak"}}

    def run_it(self, *options, expect=0):
        (self.perf / "state.json").write_text(json.dumps(self.state), encoding="utf-8")
        for calls in self.perf.glob("*.calls"):
            calls.unlink()
        # Whatever else this machine does meanwhile.
        done = subprocess.run([sys.executable, "-B", PROGRAM, "--build", self.folder / "build", "--baselines", self.baselines,
                               "--others=100", *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def calls(self, program="kformer-perf-blocks"):
        return [json.loads(line) for line in (self.perf / f"{program}.calls").read_text(encoding="utf-8").splitlines()]

    def baseline(self):
        return json.loads((self.baselines / "avx9.json").read_text(encoding="utf-8"))

    def change_baseline(self, **values):
        (self.baselines / "avx9.json").write_text(json.dumps({**self.baseline(), **values}), encoding="utf-8")

    def write_baseline(self):
        self.baselines.mkdir()
        case = {"share": 80.0, "spread": 0.1, "threshold": 3.0}
        cases = {name: {**case, "limit": self.state["limits"].get(name, "% of bandwidth")} for name in self.names}
        baseline = {"processor": MODULE["machine"].processor(), "device": "OpenMP", "peak_isa": "avx9", "threads": 2, "cases": cases}
        (self.baselines / "avx9.json").write_text(json.dumps(baseline), encoding="utf-8")


class Record(Regression):
    def test_the_median_and_the_spread_of_the_runs(self):
        self.state["shares"][ADAMW] = [70.0, 82.0, 80.0]
        self.state["shares"][ROPE] = [80.0, 80.4, 79.6]
        self.run_it("--record", "--runs", "3")
        baseline = self.baseline()
        common = {"limit": "% of bandwidth", "share": 80.0}
        self.assertEqual(baseline["cases"][ADAMW], {**common, "spread": 8.04, "threshold": 32.15})
        self.assertEqual(baseline["cases"][ROPE], {**common, "spread": 0.5, "threshold": 3.0})
        self.assertEqual(baseline["cases"][ATTENTION]["limit"], "% of peak")
        self.assertEqual((baseline["peak_isa"], baseline["device"], baseline["threads"], baseline["runs"]),
                         ("avx9", "OpenMP", 2, 3))
        self.assertTrue(baseline["processor"])
        self.assertEqual(sorted(baseline["cases"]), sorted(self.names))
        self.run_it()

    def test_one_run_has_no_spread(self):
        self.assertIn("--runs must be at least 2", self.run_it("--record", "--runs", "1", expect=2))


class Check(Regression):
    def setUp(self):
        super().setUp()
        self.write_baseline()

    def test_the_same_again(self):
        self.assertIn(f"0 of {len(self.names)} cases are slower", self.run_it())
        self.assertEqual(len(self.calls()), 1)

    def test_faster_is_fine(self):
        self.state["shares"][ADAMW] = 99.0
        self.run_it()

    def test_within_the_threshold(self):
        self.state["shares"][ADAMW] = 78.0
        self.run_it()

    def test_slower_three_times_is_an_alarm(self):
        self.state["shares"][ADAMW] = self.state["shares"][ATTENTION] = 77.0
        out = self.run_it(expect=1)
        self.assertIn(f"{ADAMW}: 77.0 % of bandwidth, 3.9 % slower than 80.0; the threshold is 3.0 %", out)
        self.assertIn(f"{ATTENTION}: 77.0 % of peak, 3.9 % slower", out)
        self.assertIn(f"2 of {len(self.names)} cases are slower", out)
        self.assertEqual(self.calls()[1:], [[ADAMW]] * 2)
        self.assertEqual(self.calls("kformer-perf-attention")[1:], [[ATTENTION]] * 2)

    def test_slower_once_or_twice_is_noise(self):
        for shares, calls in ([70.0, 80.0], 2), ([70.0, 70.0, 80.0], 3):
            self.state["shares"][ADAMW] = shares
            self.run_it()
            self.assertEqual(len(self.calls()), calls)

    def test_an_alarm_on_a_busy_machine_says_nothing(self):
        self.state["shares"][ADAMW] = 70.0
        out = self.run_it("--others=-1", expect=77)
        self.assertIn(f"{ADAMW}: 70.0 % of bandwidth, 14.3 % slower than 80.0", out)
        self.assertRegex(out, r"skipped: that says nothing: others used \d+ % of the processors")
        self.state["shares"][ADAMW] = 80.0
        self.run_it("--others=-1")

    def test_what_was_fast_the_second_time_is_not_measured_a_third_time(self):
        self.state["shares"] |= {ADAMW: 70.0, ROPE: [70.0, 80.0]}
        self.assertNotIn(ROPE + ":", self.run_it(expect=1))
        self.assertEqual(self.calls()[1:], [[ROPE, ADAMW], [ADAMW]])

    def test_the_threshold_is_that_of_the_case(self):
        cases = self.baseline()["cases"]
        cases[ADAMW]["threshold"] = 20.0
        self.change_baseline(cases=cases)
        self.state["shares"][ADAMW] = 70.0
        self.run_it()


class Others(unittest.TestCase):
    def percent(self, begin, end):
        """Of processors that had these seconds: all, used, used by the program itself."""
        others = MODULE["Others"]()
        others._begin, others._seconds = begin, lambda: end
        return others.percent()

    def test_what_the_program_uses_is_its_own(self):
        self.assertEqual(self.percent((100, 40, 10), (120, 55, 20)), 25)
        self.assertEqual(self.percent((100, 40, 10), (120, 50, 20)), 0)
        self.assertEqual(self.percent((100, 40, 10), (120, 50, 21)), 0)

    def test_where_nothing_is_known_nobody_is_busy(self):
        self.assertEqual(self.percent((0, 0, 0), (0, 0, 0)), 0)

    @unittest.skipUnless(Path("/proc/stat").exists(), "there is no /proc/stat")
    def test_the_seconds_of_this_machine(self):
        everything, used, own = MODULE["Others"]._seconds()
        self.assertGreaterEqual(everything, used)
        self.assertGreater(own, 0)


class Refusals(Regression):
    def test_no_baseline_of_the_instructions(self):
        self.assertRegex(self.run_it(expect=77), r"^skipped: no baseline for avx9, .+, OpenMP; --record makes it")
        self.assertEqual(list(self.perf.glob("*.calls")), [])

    def test_a_baseline_of_another_processor(self):
        self.write_baseline()
        self.change_baseline(processor="a toaster")
        self.assertRegex(self.run_it(expect=77), r"^skipped: no baseline for avx9, .+: avx9.json is of a toaster, OpenMP")

    def test_a_baseline_of_another_device(self):
        self.write_baseline()
        self.state["about"]["device"] = "a GPU"
        self.assertRegex(self.run_it(expect=77), r"^skipped: no baseline for avx9, .+, a GPU: avx9.json is of .+, OpenMP")

    def test_other_threads(self):
        self.write_baseline()
        self.state["about"]["threads"] = 3
        self.assertIn("avx9.json: recorded with 2 threads, measured with 3", self.run_it(expect=2))

    def test_not_a_baseline(self):
        self.baselines.mkdir()
        for text in "{", "[]", "{}":
            (self.baselines / "avx9.json").write_text(text, encoding="utf-8")
            self.assertIn("avx9.json: not a baseline: ", self.run_it(expect=2))

    def test_a_baseline_or_a_share_that_is_no_number_compares_nothing(self):
        self.write_baseline()
        cases = self.baseline()["cases"]
        for key in "share", "threshold":
            for value in float("nan"), float("inf"), 0.0:
                self.change_baseline(cases={**cases, ADAMW: {**cases[ADAMW], key: value}})
                self.assertIn(f"{ADAMW} has no share or threshold", self.run_it(expect=2))
        self.change_baseline(cases=cases)
        self.state["shares"][ROPE] = float("nan")
        self.assertIn(f"{ROPE} has a value of nan % of bandwidth", self.run_it(expect=2))

    def test_a_case_that_the_baseline_lacks_or_has_by_another_limit(self):
        self.write_baseline()
        self.state["limits"][ADAMW] = "% of limit"
        self.assertIn(f"the baseline has no {ADAMW} in % of limit; record it anew", self.run_it(expect=2))
        cases = self.baseline()["cases"]
        del cases[ROPE]
        self.change_baseline(cases=cases)
        self.assertIn(f"the baseline has no {ROPE} in % of bandwidth; record it anew", self.run_it(expect=2))

    def test_a_case_that_the_program_lacks(self):
        self.write_baseline()
        del self.state["shares"][ADAMW]
        self.assertIn(f"kformer-perf-blocks lacks {ADAMW}", self.run_it(expect=2))

    def test_a_program_that_fails_or_is_not_there(self):
        self.state["exit"] = 1
        self.assertIn("kformer-perf-blocks ended with 1: no kernel", self.run_it(expect=2))
        (self.perf / "kformer-perf-blocks").unlink()
        self.assertIn("kformer-perf-blocks: No such file or directory; build it with -DKformer_ENABLE_PERF=ON",
                      self.run_it(expect=2))


class Repeat(Regression):
    def setUp(self):
        super().setUp()
        self.write_baseline()
        self.log = self.folder / "log.jsonl"

    def repeat(self, count, **more):
        return self.run_it("--repeat", str(count), "--log", self.log, **more)

    def runs(self):
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def test_counts_alarms(self):
        self.state["shares"][ADAMW] = [70.0, 80.0, 70.0, 70.0, 70.0, 80.0]  # run 1: 2 calls, run 2: 3, run 3: 1
        out = self.repeat(3)
        self.assertIn("1 of 3 runs had an alarm; in 2 a case was measured again", out)
        self.assertIn(f"run 2 of 3: {ADAMW}\n", out)
        self.assertEqual([(run["suspects"], run["alarms"]) for run in self.runs()],
                         [([ADAMW], []), ([ADAMW], [ADAMW]), ([], [])])
        self.assertEqual(self.runs()[1]["shares"][ADAMW], 70.0)

    def test_goes_on_from_what_the_log_has(self):
        self.repeat(2)
        whole = self.log.read_text(encoding="utf-8")
        self.log.write_text(whole + '{"base', encoding="utf-8")  # killed while it wrote
        self.assertIn("0 of 4 runs had an alarm", self.repeat(4))
        self.assertTrue(self.log.read_text(encoding="utf-8").startswith(whole))
        self.assertEqual((len(self.runs()), len(self.calls())), (4, 2))

    def test_a_log_of_another_baseline(self):
        self.repeat(1)
        self.change_baseline(runs=99)
        self.assertIn("log.jsonl: has runs against another baseline; name another file", self.repeat(2, expect=2))

    def test_the_options_belong_together(self):
        self.assertIn("--repeat and --log belong together", self.run_it("--repeat", "3", expect=2))


if __name__ == "__main__":
    unittest.main()
