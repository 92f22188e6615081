#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The exit codes of test programs: ctest takes 77 for skipped, whatever they print."""

import os
import subprocess
import unittest

PROGRAM = os.environ["KFORMER_EXIT_CODE"]


class ExitCode(unittest.TestCase):
    def of(self, cases):
        return subprocess.run([PROGRAM, f"--run_test=ends/{cases}"], capture_output=True).returncode

    def test_a_failure_is_one_whatever_is_skipped_and_printed(self):
        for cases in ["fails", "fails,lacks_data", "fails,passes"]:
            with self.subTest(cases=cases):
                self.assertEqual(self.of(cases), 201)

    def test_a_program_is_skipped_if_nothing_ran(self):
        self.assertEqual(self.of("lacks_data"), 77)
        self.assertEqual(self.of("lacks_data,passes"), 0)
        self.assertEqual(self.of("passes"), 0)

    def test_a_case_that_is_not_there_is_a_failure(self):
        self.assertNotIn(self.of("no_such_case"), [0, 77])


if __name__ == "__main__":
    unittest.main(verbosity=2)
