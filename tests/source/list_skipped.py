#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `quickstart test` says of skipped tests, each reason once with the tests that it holds for, and of kernels that ran."""

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


# As tests/support/main.cpp prints them.
KERNELS = """<testsuite>
  <testcase name="norm"><system-out>Running 3 test cases...
kernels that ran: kokkos 6x simd_avx2 6x simd_generic 6x
kernels that did not run: host_blas simd_avx512 simd_avx512_bf16
</system-out></testcase>
  <testcase name="attention"><system-out>kernels that ran: simd_avx2 1x simd_decode_avx2 2x
kernels that did not run: simd_amx_bf16 simd_decode_avx512 simd_generic
</system-out></testcase>
  <testcase name="text"><system-out>a test that prints simd_avx9 1x</system-out></testcase>
  <testcase name="skipped"><skipped message="CODE"/><system-out>skipped: no device</system-out></testcase>
</testsuite>
"""


class ListSkipped(unittest.TestCase):
    def lines_of(self, *texts):
        """What is said of reports with these texts."""
        with tempfile.TemporaryDirectory() as folder:
            reports = [Path(folder, f"{number}.xml") for number in range(len(texts))]
            for report, text in zip(reports, texts):
                report.write_text(text, encoding="utf-8")
            script = SOURCE / "scripts/quickstart.d/list_skipped.py"
            run = subprocess.run([sys.executable, script, *reports], capture_output=True, text=True, check=True)
        return run.stdout.splitlines()

    def test_reasons(self):
        self.assertEqual(
            self.lines_of(REPORT, REPORT),
            [
                "skipped, KFORMER_DATA names no folder: a, b",
                "skipped in part, no h5py: c",
                "skipped in part, root: c",
                "skipped, no reason given: d",
            ],
        )

    def test_kernels_by_instruction_set(self):
        self.assertEqual(
            self.lines_of(KERNELS),
            [
                "skipped, no device: skipped",
                "kernels that ran: avx2 (simd_avx2 simd_decode_avx2), generic (simd_generic)",
                "kernels that did not run: amx_bf16 (simd_amx_bf16), avx512 (simd_avx512 simd_decode_avx512), "
                "avx512_bf16 (simd_avx512_bf16)",
            ],
        )

    def test_kernels_of_all_reports_count(self):
        other = KERNELS.replace("kernels that did not run:", "kernels that ran:")
        lines = self.lines_of(KERNELS, other)
        self.assertEqual(len(lines), 2)
        self.assertIn("amx_bf16 (simd_amx_bf16)", lines[1])


if __name__ == "__main__":
    unittest.main()
