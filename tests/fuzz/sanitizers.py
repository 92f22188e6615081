# SPDX-License-Identifier: MIT
"""A build with sanitizers has them: a program with a fault ends there and has failed."""

import os
import subprocess
import unittest

PROGRAM = os.environ["KFORMER_TESTS_FUZZ"]


class Sanitizers(unittest.TestCase):
    def run_it(self, case):
        done = subprocess.run([PROGRAM, f"--run_test=sanitizers/{case}", "--log_level=message"], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def test_what_has_no_fault_passes(self):
        code, output = self.run_it("passes")
        self.assertEqual(code, 0, output)

    def test_a_fault_ends_the_program(self):
        for case, found in (("reads_past_the_end", "AddressSanitizer: heap-buffer-overflow"),
                            ("overflows", "runtime error: signed integer overflow")):
            with self.subTest(case=case):
                code, output = self.run_it(case)
                self.assertNotIn(code, (0, 77), output)
                self.assertIn(found, output)
                self.assertNotIn("went on", output)


if __name__ == "__main__":
    unittest.main()
