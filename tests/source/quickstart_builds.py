#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/quickstart configures and builds for the tests."""

import os
import subprocess
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
# The script's functions, with those that install, configure and compile replaced by what they were asked to do.
PRELUDE = """
set -euo pipefail
source scripts/quickstart.d/build.sh
route=debian state=state python=python3
prepare_environment() { :; }
find_python() { echo python3; }
unpack_kokkos() { :; }
kokkos_prefix() { echo kokkos; }
configure() { echo "configure $*"; }
build() { echo "build $*"; }
"""


def run(command):
    done = subprocess.run(["bash", "-c", PRELUDE + command], cwd=SOURCE, capture_output=True, text=True, check=True)
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


if __name__ == "__main__":
    unittest.main()
