#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/cuda_resources makes of reports of ptxas, without nvcc: faults, names in words, rows of equal numbers."""

import os
import tempfile
import unittest
from pathlib import Path

from load_script import load_script

SOURCE = Path(os.environ["KFORMER_SOURCE"])

FORWARD = "ForwardKernel<ns::ForwardTiles<(ns::Half)0, 128, 4, 1, 64, true, 2> >"
REPORT = """ptxas info    : Compiling entry function 'void ns::run_kernel<ns::{name}, 128, 32768>(ns::{name})' for 'sm_90'
ptxas info    : Function properties for void ns::run_kernel<ns::{name}, 128, 32768>(ns::{name})
    0 bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads
ptxas info    : Used 254 registers, used 1 barriers, {more} bytes smem
ptxas info    : Function properties for void ns::helper(int)
    0 bytes stack frame, {helper} bytes spill stores, 0 bytes spill loads
{last}
"""


RESOURCES = load_script("scripts/cuda_resources")


def parse(name=FORWARD, spills=0, helper=0, more=0, last=""):
    return RESOURCES.parse(REPORT.format(name=name, spills=spills, helper=helper, more=more, last=last))


def table(*kernels, per_mille=125):
    """Of kernels of attention."""
    headers = RESOURCES.Headers(SOURCE / "src/ops/attention/cuda")
    for kernel in kernels:
        kernel.update(blocks=2, per_mille=per_mille)
    return RESOURCES.table(list(kernels), headers)


class Reports(unittest.TestCase):
    def test_numbers(self):
        (kernel,), faults = parse(more=16)
        self.assertEqual(faults, [])
        self.assertEqual(kernel["name"], "ForwardKernel<ForwardTiles<(Half)0, 128, 4, 1, 64, true, 2> >")
        self.assertEqual([kernel[k] for k in ("architecture", "threads", "shared", "registers", "spills")],
                         ["90", 128, 32784, 254, 0])

    def test_spills_are_faults_of_kernels_and_of_what_they_call(self):
        (kernel,), (fault,) = parse(spills=20)
        self.assertEqual(kernel["spills"], 40)
        self.assertIn("spills 20 bytes of stores, 20 of loads (sm_90)", fault)
        (kernel,), (fault,) = parse(helper=8)
        self.assertEqual(kernel["spills"], 0)
        self.assertIn("helper(int) spills 8 bytes of stores", fault)

    def test_what_compilers_complain_of_is_a_fault(self):
        for line in ("forward.hpp(3): warning #177-D: variable \"x\" was declared but never referenced",
                     "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"):
            self.assertEqual(parse(last=line)[1], [line])

    def test_a_kernel_that_is_launched_otherwise_is_refused(self):
        report = REPORT.format(name=FORWARD, spills=0, helper=0, more=0, last="").replace("run_kernel", "other")
        with self.assertRaisesRegex(RESOURCES.Failed, "is not launched by run_kernel"):
            RESOURCES.parse(report)


class Tables(unittest.TestCase):
    def rows(self, text):
        return [line for line in text.splitlines() if line.startswith("| `")]

    def test_types_of_equal_numbers_share_a_row(self):
        kernels = [parse(FORWARD)[0][0], parse(FORWARD.replace("Half)0", "Half)1"))[0][0]]
        self.assertEqual(self.rows(table(*kernels)[0]), [
            "| `ForwardKernel` | bf16 f16 | features 128, warps 4, row tiles 1, keys 64, query in registers | 128 | 32768 | 0 "
            "| 254, 2, 12.5 % |"])
        kernels[1]["registers"] = 250
        self.assertEqual(len(self.rows(table(*kernels)[0])), 2)

    def test_low_occupancy_needs_a_reason(self):
        text, faults = table(parse()[0][0])
        self.assertEqual(faults, [])
        self.assertRegex(text, r"(?s)At most 50 %, `ForwardKernel`: a thread holds .*\n$")
        self.assertLessEqual(max(len(line) for line in text.splitlines() if not line.startswith("|")), 140)
        unknown = parse(FORWARD.replace("ForwardKernel", "CombineKernel"))[0][0]
        text, (fault,) = table(unknown)
        self.assertIn("no comment 'Occupancy of CombineKernel: ...' says why", fault)
        self.assertEqual(len(table(unknown, per_mille=500)[1]), 1)
        self.assertEqual(table(unknown, per_mille=501)[1], [])

    def test_every_machine_has_a_row_with_its_cards(self):
        with tempfile.TemporaryDirectory() as folder:
            text = RESOURCES.machines(RESOURCES.occupancy_program(Path(folder)))
        self.assertIn("\n| `sm_86` | RTX 3090, RTX 3090 Ti | 1536 | 16 | 100 | 99 |\n", text)
        self.assertEqual([line.split("`")[1] for line in text.splitlines()[2:]],
                         [f"sm_{a}" for a in RESOURCES.ARCHITECTURES])


if __name__ == "__main__":
    unittest.main()
