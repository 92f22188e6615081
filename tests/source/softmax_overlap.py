#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attention forward on warpgroups computes its exponentials while values are multiplied: in the machine code all of them stand
between the wait for scores and the wait for values. ptxas may move a wait, and says nothing of it. Needs nvcc and nvdisasm, but no
device."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
KERNEL = re.compile(r"^\.text\.(\S*run_kernel\S*ForwardTilesI\S*?HalfE\dELi(\d+)E\S*):$")
# Products go on, one group of them at most, or none: wait_products<1> and wait_products<0>.
SCORES, ALL = (re.compile(rf"WARPGROUP\.DEPBAR\.LE gsb0, 0x{left}\b") for left in (1, 0))
# Keys of a pass (ForwardTiles); a thread has half as many scores, and a correction for each of its two rows.
KEYS = {64: 128, 96: 96, 128: 128, 256: 80}


def kernels(assembly):
    """The instructions of each kernel by its features and its name."""
    found, lines = {}, None
    for line in assembly.splitlines():
        if match := KERNEL.match(line):
            lines = found.setdefault((int(match[2]), match[1]), [])
        elif line.startswith(".text."):
            lines = None
        elif lines is not None:
            lines.append(line)
    return found


def exponentials(lines):
    """Of each stretch from a wait for scores to the next wait: how many exponentials it has, and if that is the wait for all."""
    counts, count = [], None
    for line in lines:
        if SCORES.search(line):
            count = 0
        elif ALL.search(line) and count is not None:
            counts.append(count)
            count = None
        elif "MUFU.EX2" in line and count is not None:
            count += 1
    return counts


class Reading(unittest.TestCase):
    def test_exponentials_between_waits_are_counted(self):
        name = ".text._Z10run_kernelIN6hopper12ForwardTilesILNS0_4HalfE0ELi64EEEvv"
        text = "\n".join([f"{name}:", "MUFU.EX2 R1, R1 ;", "WARPGROUP.DEPBAR.LE gsb0, 0x1 ;", "MUFU.EX2 R1, R1 ;", "FADD R2, R2, R1 ;",
                          "MUFU.EX2 R3, R3 ;", "WARPGROUP.DEPBAR.LE gsb0, 0x0 ;", "MUFU.EX2 R4, R4 ;", ".text.other:", "MUFU.EX2 R5, R5 ;"])
        (key,), (lines,) = zip(*kernels(text).items())
        self.assertEqual(key, (64, name.removeprefix(".text.")))
        self.assertEqual(exponentials(lines), [2])


@unittest.skipIf(shutil.which("nvcc") is None, "there is no nvcc")
@unittest.skipIf(shutil.which("nvdisasm") is None, "there is no nvdisasm")
class Overlap(unittest.TestCase):
    def test_weights_are_computed_while_values_are_multiplied(self):
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "forward.cubin"
            subprocess.run(["nvcc", "-std=c++20", "-O3", "-x", "cu", "-cubin", "-arch=sm_90a", f"-I{SOURCE}/src", f"-I{SOURCE}/include",
                            SOURCE / "src/ops/attention/cuda/hopper/forward.cpp", "-o", cubin], check=True)
            assembly = subprocess.run(["nvdisasm", cubin], capture_output=True, text=True, check=True).stdout
        found = kernels(assembly)
        self.assertEqual(sorted(features for features, _ in found), sorted([*KEYS, *KEYS]))  # bf16 and f16
        for (features, name), lines in found.items():
            with self.subTest(name):
                counts = exponentials(lines)
                self.assertEqual(len(counts), 1)
                self.assertGreaterEqual(counts[0], KEYS[features] // 2 + 2)


if __name__ == "__main__":
    unittest.main()
