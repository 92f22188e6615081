# SPDX-License-Identifier: MIT
"""perf/peers/turns.py: how turns are taken and rows are made, with a peer that needs no PyTorch."""

import argparse
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(os.environ["KFORMER_SOURCE"]) / "perf/peers"))
import turns

PROGRAM = os.environ["KFORMER_PERF_PROGRAM"]
CASE = {"name": "rms_norm/forward/f32/H32"}


class Scripted:
    """Both sides of a comparison: answers from lists, and writes down who was asked."""

    def __init__(self):
        self.asked = []
        self.paths, self.notes = ["a", "b"], {"note": 1}
        self._times = {"time": [9.0, 2.0, 4.0, 3.0], "limit": [1.5, 1.0, 3.0], "a": [6.0, 7.0, 50.0], "b": [9.0, 8.0, 8.0]}

    def _next(self, who):
        self.asked.append(who)
        return self._times[who].pop(0)

    def ask(self, request):
        what, name, *_ = request.split()
        assert name == CASE["name"]
        seconds = self._next(what)
        return {"kernel": "k", "seconds": [seconds]} if what == "time" else {"seconds": seconds}

    def seconds(self, path):
        return self._next(path)


class Measure(unittest.TestCase):
    def setUp(self):
        self.both = Scripted()
        self.row = turns.measure(self.both, CASE, self.both, 3)

    def test_medians_without_the_first_call(self):
        self.assertEqual(self.row["median"], {"ours": 3.0, "a": 7.0, "b": 8.0})

    def test_ratio_to_the_better_and_share_of_the_limit(self):
        self.assertEqual(self.row["ratio"], 7 / 3)
        self.assertEqual(self.row["limit_seconds"], 1.0)
        self.assertEqual(self.row["share_of_limit"], 1 / 3)

    def test_turns_alternate(self):
        self.assertEqual(self.both.asked, ["time", "limit", "time", "a", "b", "limit", "time", "b", "a", "limit", "time", "a", "b"])

    def test_the_row_says_what_it_is_about(self):
        self.assertEqual((self.row["name"], self.row["kernel"], self.row["note"]), (CASE["name"], "k", 1))


class Waits:
    """PyTorch, as far as a clock knows it."""

    def __init__(self):
        self.happened = []
        self.cuda = self

    def synchronize(self):
        self.happened.append("wait")


class Clock(unittest.TestCase):
    def times(self, device, count):
        torch = Waits()
        with mock.patch.object(turns.time, "perf_counter", side_effect=[1.0, 7.0]):
            seconds = turns.Clock(torch, device).seconds(lambda: torch.happened.append("call"), count)
        return torch.happened, seconds

    def test_a_gpu_is_waited_for_around_all_calls(self):
        self.assertEqual(self.times("cuda", 3), (["wait", "call", "call", "call", "wait"], 2.0))

    def test_a_host_is_not_waited_for(self):
        self.assertEqual(self.times("cpu", 1), (["call"], 6.0))
        self.assertEqual(turns.Clock(Waits(), "cpu").sample_s, 0)


class MeasureAll(unittest.TestCase):
    def rows(self, seconds):
        def make_peer(case):
            if case["name"] == "large":
                raise RuntimeError("out of memory\nmore words")
            return Scripted()

        rows, cases = [], [{"name": "large"}, CASE]
        turns.measure_all(Scripted(), cases, make_peer, argparse.Namespace(seconds=seconds, repetitions=3), rows.append)
        return rows

    def test_a_case_that_cannot_be_measured_stops_no_other(self):
        failed, measured = self.rows(float("inf"))
        self.assertEqual(failed, {"name": "large", "failed": "out of memory"})
        self.assertEqual(measured["median"]["a"], 7.0)

    def test_when_time_is_over_no_case_begins(self):
        self.assertEqual(self.rows(-1.0), [])


class Threads(unittest.TestCase):
    def environment(self, alone):
        with mock.patch.dict(os.environ, {}, clear=True):
            turns.prepare_threads(argparse.Namespace(threads=3, alone=alone))
            return dict(os.environ)

    def test_threads_sleep_while_the_other_program_has_its_turn(self):
        expected = {"OMP_NUM_THREADS": "3", "OMP_PROC_BIND": "false", **turns.SLEEPING_THREADS}
        self.assertEqual(self.environment(False), expected)

    def test_threads_are_bound_and_spin_where_there_are_no_turns(self):
        self.assertEqual(self.environment(True), {"OMP_NUM_THREADS": "3", "OMP_PROC_BIND": "true"})


class RotatingSets(unittest.TestCase):
    def test_more_than_the_caches_lie_between_two_uses(self):
        sets = turns.RotatingSets(object, lambda _: 10, 35)
        self.assertGreater(len(sets.all) * 10, 35)
        self.assertEqual([sets.next() for _ in range(len(sets.all) + 2)], [*range(len(sets.all)), 0, 1])

    def test_one_large_set_is_enough(self):
        self.assertEqual(len(turns.RotatingSets(object, lambda _: 40, 35).all), 1)


class Ours(unittest.TestCase):
    def test_asks_the_program(self):
        ours = turns.Ours(PROGRAM, 1, ["--smoke"])
        self.addCleanup(ours.close)
        self.assertEqual(ours.ask("about")["threads"], 1)
        with self.assertRaisesRegex(turns.CannotMeasure, "there is no case 'x'"):
            ours.ask("time x")

    def test_no_such_program(self):
        with self.assertRaisesRegex(turns.CannotMeasure, "/no/such/program: No such file or directory; give the path"):
            turns.Ours("/no/such/program", 1)

    def test_program_that_ends(self):
        ours = turns.Ours("false", 1)
        self.addCleanup(ours.close)
        os.waitid(os.P_PID, ours._process.pid, os.WEXITED | os.WNOWAIT)  # the request meets a closed pipe
        with self.assertRaisesRegex(turns.CannotMeasure, "false ended with 1 at the request: about"):
            ours.ask("about")


if __name__ == "__main__":
    unittest.main()
