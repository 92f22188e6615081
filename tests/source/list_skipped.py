#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `quickstart test` says of skipped tests: each reason once, with the tests that it holds for."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
REPORT = """<?xml version="1.0"?>
<testsuite>
  <testcase name="ran"><system-out>skipped: no, it is text of a test that ran</system-out></testcase>
  <testcase name="a"><skipped message="CODE"/><system-out>Running\nskipped: KFORMER_DATA names no folder\nend</system-out></testcase>
  <testcase name="b"><skipped message="CODE"/><system-out>OK (skipped=1)\nskipped: KFORMER_DATA names no folder</system-out></testcase>
  <testcase name="c"><system-out>OK (skipped=2)\nskipped in part: no h5py\nskipped in part: root</system-out></testcase>
  <testcase name="d"><skipped message="CODE"/><system-out></system-out></testcase>
</testsuite>
"""


class ListSkipped(unittest.TestCase):
    def test_reasons(self):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            report.write_text(REPORT, encoding="utf-8")
            script = SOURCE / "scripts/quickstart.d/list_skipped.py"
            run = subprocess.run([sys.executable, script, report, report], capture_output=True, text=True, check=True)
        self.assertEqual(
            run.stdout.splitlines(),
            [
                "skipped, KFORMER_DATA names no folder: a, b",
                "skipped in part, no h5py: c",
                "skipped in part, root: c",
                "skipped, no reason given: d",
            ],
        )


if __name__ == "__main__":
    unittest.main()
