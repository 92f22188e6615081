#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The first program on a new GPU forgets no tuned kernel: each name in src/ops/*/cuda has a case in tests/first_contact."""

import os
import re
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
CASES = SOURCE / "tests/first_contact"
# Launches that are a part of a kernel, which has the case.
PARTS = {
    "attention_forward_part[cuda_decode]": "attention_forward[cuda_decode]",
    "attention_forward_combine[cuda_decode]": "attention_forward[cuda_decode]",
    "gradient_norm_sum[cuda_chunks]": "gradient_norm[cuda_chunks]",
    "rms_norm_backward_weight[cuda_vector]": "rms_norm_backward[cuda_vector]",
}


def names(files, prefix):
    """The names in literals, without the prefix. cuBLASLt, which needs a library, is called otherwise."""
    literal = re.compile(rf'"{prefix}(\w+\[cuda_\w+\])"')
    return {name for file in files for name in literal.findall(file.read_text(encoding="utf-8"))}


class FirstContact(unittest.TestCase):
    def test_every_kernel_has_a_case(self):
        kernels = names(SOURCE.glob("src/ops/*/cuda/**/*.[ch]pp"), "kformer::")
        self.assertLessEqual(set(PARTS), kernels)
        self.assertEqual({PARTS.get(name, name) for name in kernels}, names(CASES.glob("*.cpp"), ""))

    def test_every_check_is_called(self):
        declared = re.findall(r"void (check_\w+)\(Report& report\);", (CASES / "report.hpp").read_text(encoding="utf-8"))
        (called,) = re.findall(r"const auto check : \{([^}]*)\}", (CASES / "main.cpp").read_text(encoding="utf-8"))
        self.assertEqual(sorted(declared), sorted(re.findall(r"\w+", called)))


if __name__ == "__main__":
    unittest.main()
