# SPDX-License-Identifier: MIT
"""What ctest learns of Python tests: failures always, skips with their reasons."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SUPPORT = Path(os.environ["KFORMER_SOURCE"]) / "tests/support"
RUNNER = SUPPORT / "run_unittests.py"
TESTS = """import unittest
class Good(unittest.TestCase):
    def test(self):
        pass
class Lacking(unittest.TestCase):
    @unittest.skip("KFORMER_DATA names no folder")
    def test(self):
        pass
class LackingAsAWhole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("there is no MPI")
    def test(self):
        pass
class Bad(unittest.TestCase):
    def test(self):
        self.fail("skipped: KFORMER_DATA")
"""


LEAVES_A_FILE = """import os, tempfile, unittest
class Leaves(unittest.TestCase):
    def test(self):
        folder = os.environ["TMPDIR"]
        assert os.stat(folder).st_mode & 0o555 == 0o555  # programs run as other users, too
        print("left", tempfile.mkdtemp(dir=folder), tempfile.mkdtemp())
"""

HANGS_UP = """import signal, subprocess, sys, unittest
class HangsUp(unittest.TestCase):
    def test(self):
        program = "import os, signal; os.kill(os.getpid(), signal.SIGHUP)"
        self.assertEqual(subprocess.run([sys.executable, "-c", program]).returncode, -signal.SIGHUP)
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
        self.assertEqual(self.run_tests("--only", "LackingAsAWhole"), (77, ["skipped: there is no MPI"]))
        self.assertEqual(self.run_tests("--only", "Lacking", "LackingAsAWhole")[0], 77)

    def test_skipped_in_part(self):
        self.assertEqual(self.run_tests("--only", "Good", "Lacking"), (0, ["skipped in part: KFORMER_DATA names no folder"]))
        self.assertEqual(self.run_tests("--only", "Good", "LackingAsAWhole"), (0, ["skipped in part: there is no MPI"]))

    def test_nothing_skipped(self):
        self.assertEqual(self.run_tests("--only", "Good"), (0, []))

    def test_a_class_that_is_not_there(self):
        self.assertEqual(self.run_tests("--without", "Other")[0], 1)

    def test_a_module_that_is_not_there(self):
        self.assertEqual(self.run_tests("--needs", "sys", "no_such_module"),
                         (77, ["skipped: no_such_module is not installed"]))

    def test_what_tests_leave_in_tmpdir_goes_with_them(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "leaves.py")
            path.write_text(LEAVES_A_FILE, encoding="utf-8")
            run = subprocess.run([sys.executable, "-B", RUNNER, path], capture_output=True, text=True, check=True,
                                 env=os.environ | {"TMPDIR": folder})
            left = run.stdout.split("left ", 1)[1].splitlines()[0].split()
            self.assertEqual([file for file in left if not file.startswith(folder)], [])
            self.assertEqual([entry.name for entry in Path(folder).iterdir()], ["leaves.py"])

    def test_programs_hang_up_below_nohup(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "hangs_up.py")
            path.write_text(HANGS_UP, encoding="utf-8")
            run = subprocess.run([sys.executable, "-B", RUNNER, path], capture_output=True, text=True, check=False,
                                 preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertEqual(run.returncode, 0, run.stdout)


class OwnTmpdir(unittest.TestCase):
    def test_folder_goes_and_exit_status_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(["sh", SUPPORT / "own_tmpdir.sh", "sh", "-c", 'touch "$TMPDIR/left" && echo "$TMPDIR" && exit 77'],
                                 capture_output=True, text=True, check=False, env=os.environ | {"TMPDIR": folder})
            self.assertEqual(run.returncode, 77)
            self.assertEqual(Path(run.stdout.strip()).parent, Path(folder))
            self.assertEqual(list(Path(folder).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
