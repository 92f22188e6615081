#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/gpu.md says of every function of the library whether it has kernels of its own on CUDA."""

import os
import re
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
KERNELS = "| kernel | what it is | what it refuses |"
PORTABLE = "| function | what runs |"


def found(pattern, files):
    return {match for file in files for match in re.findall(pattern, file.read_text(encoding="utf-8"))}


def first_cells(header):
    """The names in the first cells of the table with this header."""
    rows = (SOURCE / "docs/gpu.md").read_text(encoding="utf-8").split(header)[1].split("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


class CudaEntries(unittest.TestCase):
    def setUp(self):
        functions = dict(found(r'struct (\w+)[^{;]*{[^}]*?function = "(\w+)"', SOURCE.glob("include/kformer/ops/**/*.hpp")))
        tuned = found(r"DeviceEntries<(\w+), Kokkos::Cuda>", SOURCE.glob("src/ops/*/cuda/entries.hpp"))
        self.tuned = {functions[problem] for problem in tuned}
        self.others = set(functions.values()) - self.tuned
        self.assertGreater(len(self.tuned), 10)
        self.assertGreater(len(self.others), 20)

    def test_functions_without_a_kernel_of_their_own_are_named_as_such(self):
        self.assertEqual(set(first_cells(PORTABLE)), self.others)

    def test_functions_with_kernels_are_named_with_them(self):
        named = {name.split(":")[0] for name in first_cells(KERNELS)}
        for function in self.tuned:
            self.assertTrue(any(function == name or function.startswith(f"{name}_") for name in named), function)


if __name__ == "__main__":
    unittest.main()
