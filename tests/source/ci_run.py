#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What .ci/run makes of the checks, with a stand-in for scripts/quickstart."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
# Writes down what it was called with, and ends with the status that was chosen for the command, or for what it runs.
QUICKSTART = """#!/bin/sh
echo "$*" >>log
[ "$1" != exec ] || shift
status=status/$(basename "$1")
[ ! -f "$status" ] || exit "$(cat "$status")"
"""
SPEED = "speed against the recorded baseline"


class CiRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name, "checkout")
        for part in (".ci", "scripts", "status"):
            (self.folder / part).mkdir(parents=True)
        shutil.copy(SOURCE / ".ci/run", self.folder / ".ci")
        (self.folder / "scripts/quickstart").write_text(QUICKSTART, encoding="utf-8")
        (self.folder / "scripts/quickstart").chmod(0o755)

    def run_it(self, **status):
        """Exit code, names of what failed, and the calls, where programs end with a `status`."""
        for name, code in status.items():
            (self.folder / "status" / name).write_text(str(code), encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KFORMER_")}
        done = subprocess.run(["bash", self.folder / ".ci/run"], env=environment, capture_output=True, text=True, check=False)
        failed = [line.removeprefix("failed: ") for line in done.stderr.splitlines()]
        return done.returncode, failed, (self.folder / "log").read_text(encoding="utf-8").splitlines()

    def test_the_programs_of_perf_are_there_when_speed_is_measured(self):
        code, failed, calls = self.run_it()
        self.assertEqual((code, failed), (0, []))
        self.assertRegex(calls[-3], "^exec cmake --build .quickstart/build-debian-openmp .* kformer-perf-attention kformer-perf-blocks$")
        self.assertEqual(calls[-2:], ["exec perf/regression --build .quickstart/build-debian-openmp", "test --full"])

    def test_neither_a_machine_without_a_baseline_nor_a_slower_case_is_a_failure(self):
        for status in (77, 1):
            with self.subTest(status=status):
                self.assertEqual(self.run_it(regression=status)[:2], (0, []))

    def test_results_that_cannot_be_compared_are_a_failure(self):
        self.assertEqual(self.run_it(regression=2)[:2], (1, [SPEED]))

    def test_programs_that_cannot_be_built_are_a_failure(self):
        code, failed, calls = self.run_it(cmake=1)
        self.assertEqual((code, failed, calls[-1]), (1, [SPEED], "test --full"))

    def test_what_follows_a_failure_takes_place(self):
        code, failed, calls = self.run_it(test=1, check_tidy=77)
        self.assertEqual((code, failed), (1, ["clang-tidy on what changed", "tests"]))
        self.assertEqual(calls[-1], "test --full")

    def test_without_a_set_up_nothing_is_checked(self):
        self.assertEqual(self.run_it(prepare=1), (1, [], ["prepare test --full"]))


if __name__ == "__main__":
    unittest.main()
