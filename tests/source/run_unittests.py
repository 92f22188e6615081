# SPDX-License-Identifier: MIT
"""What ctest learns of Python tests: failures always, skips with their reasons."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUNNER = Path(os.environ["KFORMER_SOURCE"]) / "tests/support/run_unittests.py"
TESTS = """import unittest
class Good(unittest.TestCase):
    def test(self):
        pass
class Lacking(unittest.TestCase):
    @unittest.skip("KFORMER_DATA names no folder")
    def test(self):
        pass
class Bad(unittest.TestCase):
    def test(self):
        self.fail("skipped: KFORMER_DATA")
"""


class RunUnittests(unittest.TestCase):
    def run_tests(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "made_up.py")
            path.write_text(TESTS, encoding="utf-8")
            run = subprocess.run([sys.executable, "-B", RUNNER, path, *arguments], capture_output=True, text=True,
                                 check=False)
        return run.returncode, [line for line in run.stdout.splitlines() if line.startswith("skipped")]

    def test_a_failure_is_one_whatever_is_skipped_and_printed(self):
        self.assertEqual(self.run_tests()[0], 1)
        self.assertEqual(self.run_tests("--only", "Bad", "Lacking")[0], 1)

    def test_all_skipped(self):
        self.assertEqual(self.run_tests("--only", "Lacking"), (77, ["skipped: KFORMER_DATA names no folder"]))

    def test_skipped_in_part(self):
        self.assertEqual(self.run_tests("--without", "Bad"), (0, ["skipped in part: KFORMER_DATA names no folder"]))

    def test_nothing_skipped(self):
        self.assertEqual(self.run_tests("--only", "Good"), (0, []))

    def test_a_class_that_is_not_there(self):
        self.assertEqual(self.run_tests("--without", "Other")[0], 1)

    def test_a_module_that_is_not_there(self):
        self.assertEqual(self.run_tests("--needs", "sys", "no_such_module"),
                         (77, ["skipped: no_such_module is not installed"]))


if __name__ == "__main__":
    unittest.main()
