#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/quickstart configures and builds for the tests, and when it waits for another call."""

import fcntl
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
# The script's functions, with those that install, configure, compile and test replaced by what they were asked to do.
PRELUDE = """
set -euo pipefail
source scripts/quickstart.d/build.sh
source scripts/quickstart.d/debian_packages.sh
source scripts/quickstart.d/jobs.sh
route=debian state=state python=python3
prepare_environment() { :; }
find_python() { echo python3; }
unpack_kokkos() { :; }
kokkos_prefix() { echo kokkos; }
configure() { echo "configure $*"; }
build() { echo "build $*"; }
run_ctest() { echo "ctest $*"; }
"""


# What the caller of these tests asked quickstart for is not theirs.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KFORMER_")}


def run(command):
    done = subprocess.run(
        ["bash", "-c", PRELUDE + command], cwd=SOURCE, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


class QuickstartBuilds(unittest.TestCase):
    def test_the_full_tests_have_the_performance_programs(self):
        self.assertIn("configure openmp full", run("prepare_for_tests full"))
        self.assertIn("-DKformer_ENABLE_PERF=ON", run("build_options openmp full"))
        self.assertIn("build openmp all", run("build_tests openmp full"))

    def test_others_do_without(self):
        self.assertEqual(run("prepare_for_tests"), ["configure openmp all"])
        self.assertIn("-DKformer_ENABLE_PERF=OFF", run("build_options openmp all"))

    def test_the_full_tests_run_readers_under_sanitizers(self):
        self.assertIn("configure asan all", run("prepare_for_tests full"))
        self.assertIn("build asan kformer_tests_fuzz", run("build_tests asan full"))
        self.assertTrue(any("-fsanitize=address,undefined" in line for line in run("build_options asan all")))

    def test_more_threads_and_ranks_are_a_stage_of_their_own(self):
        self.assertEqual(run("build_tests more full"), [])
        self.assertEqual(run("build_folder more"), run("build_folder openmp"))
        self.assertEqual(run("run_tests openmp full"), ["ctest openmp --no-tests=error --label-exclude ^more$"])
        self.assertEqual(run("run_tests more full"), ["ctest more --no-tests=error --label-regex ^more$"])

    def test_a_stage_without_tests_has_failed_unless_the_caller_chose_the_tests(self):
        for arguments, expected in (("openmp ''", "error"), ("openmp '' -R typo", "error"), ("asan full", "error"),
                                    ("asan full -R lora", "ignore")):
            with self.subTest(arguments=arguments):
                self.assertIn(f"--no-tests={expected}", run(f"run_tests {arguments}")[0].split())

    def test_the_report_of_an_earlier_call_is_none_of_this_one(self):
        with tempfile.TemporaryDirectory() as state:
            report = Path(state, "logs/tests-asan.xml")
            report.parent.mkdir()
            for does, expected in ((":", "0"), ('echo new >"$state/logs/tests-asan.xml"', "1")):
                report.write_text("old", encoding="utf-8")
                self.assertEqual(run(f"""
source scripts/quickstart.d/jobs.sh
state={state} entry=() failed=() reports=()
say() {{ :; }}
supervise() {{ {does}; }}
await_end() {{ child_status=0 interrupted=; }}
run_ctest asan
echo "${{#reports[@]}}" """), [expected])

    def test_a_call_in_which_no_test_ran_has_failed(self):
        script = """
begin() { :; }; end_of_setup() { :; }; prepare_for_tests() { :; }; build_tests() { :; }
run_tests() { reports+=(%s); }
die() { echo "$*"; exit; }
entry=(echo) checkout=.
test_stages full -R typo"""
        self.assertEqual(run(script % ""), ["no test ran"])
        self.assertNotIn("no test ran", run(script % "report.xml"))

    def test_daemons_are_for_the_full_tests_in_the_root_alone(self):
        for in_root, packages, expected in (("yes", "checks", True), ("yes", "tests", False), ("no", "checks", False)):
            with self.subTest(in_root=in_root, packages=packages):
                self.assertEqual("slurm-wlm" in run(f"in_root={in_root}; packages_for {packages}"), expected)

    def test_stages_that_would_end_late_are_left_out(self):
        stages = "for stage in openmp asan more serial; do has_time $stage && echo $stage; done; :"
        for minutes, expected in ((51, []), (59, ["asan"]), (65, ["asan", "more"]), (None, ["asan", "more", "serial"])):
            limit = f"KFORMER_TEST_MINUTES={minutes}; " if minutes else ""
            self.assertEqual(run(f"SECONDS=3120; first_took=3000; {limit}{stages}"), ["openmp", *expected])


class Lock(unittest.TestCase):
    """While another call works in the state folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.state = Path(folder.name)
        for part in ("logs", "stamps"):
            (self.state / part).mkdir()
        self.lock = open(self.state / "lock", "w", encoding="utf-8")
        self.addCleanup(self.lock.close)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def set_up(self, seconds):
        """Prepares one step, and ends with 124 if that takes longer."""
        script = f"""
set -euo pipefail
state={self.state}
source scripts/quickstart.d/steps.sh
prepare() {{ once "the step" step key true; }}
set_up prepare
"""
        return subprocess.run(["timeout", str(seconds), "bash", "-c", script], cwd=SOURCE, capture_output=True, text=True, check=False)

    def test_a_call_with_nothing_to_do_does_not_wait(self):
        (self.state / "stamps/step").write_text("key\n", encoding="utf-8")
        done = self.set_up(60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_call_with_a_step_to_do_waits(self):
        done = self.set_up(1)
        self.assertEqual(done.returncode, 124)
        self.assertIn("another call works in", done.stderr)


if __name__ == "__main__":
    unittest.main()
