#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""perf/peers/gpu_attention.py without PyTorch: which paths it times, and what it makes of packages that refuse."""

import importlib.machinery
import importlib.util
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(os.environ["KFORMER_SOURCE"])
CASE = {"dtype": "bf16", "batch": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "seq_len": 8, "causal": True}


def script():
    loader = importlib.machinery.SourceFileLoader("gpu_attention", str(SOURCE / "perf/peers/gpu_attention.py"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_attention", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


GPU_ATTENTION = script()


def rows_with(modules):
    """The rows of a shape where Python has these modules."""
    torch = mock.MagicMock()
    absent = dict.fromkeys(GPU_ATTENTION.PACKAGES.values())  # None: importing it fails
    with mock.patch.dict(sys.modules, {"torch": torch, "torch.nn": torch.nn, "torch.nn.attention": torch.nn.attention,
                                       **absent, **modules}):
        timer = GPU_ATTENTION.Timer(torch, "cpu", 3)
        return list(GPU_ATTENTION.rows_of(torch, CASE, "cpu", timer, GPU_ATTENTION.installed()))


class Paths(unittest.TestCase):
    def test_without_packages_there_are_those_of_pytorch(self):
        self.assertEqual([(row["path"], row["direction"]) for row in rows_with({})],
                         [(path, direction) for path in ("free", "flash", "cudnn") for direction in ("forward", "backward")])

    def test_packages_that_are_installed_are_timed(self):
        package = mock.MagicMock()
        rows = [row for row in rows_with({"flash_attn_interface": package}) if row["path"].startswith("flash_attn")]
        self.assertEqual([(row["path"], row["direction"], len(row["seconds"])) for row in rows],
                         [("flash_attn_3", "forward", 3), ("flash_attn_3", "backward", 3)])
        # Forward twice before three samples, backward once for the graph.
        self.assertEqual([call.kwargs for call in package.flash_attn_func.call_args_list], 6 * [{"causal": True}])

    def test_a_package_that_refuses_has_the_reason(self):
        package = mock.MagicMock()
        package.flash_attn_func.side_effect = RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nmore")
        rows = [row for row in rows_with({"flash_attn": package}) if row["path"] == "flash_attn_2"]
        self.assertEqual([row.get("refused") for row in rows], 2 * ["FlashAttention only supports Ampere GPUs or newer."])
        self.assertFalse([row for row in rows if "median" in row])


if __name__ == "__main__":
    unittest.main()
