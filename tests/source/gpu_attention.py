#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""perf/peers/gpu_attention.py without PyTorch: which paths it times, and what it makes of packages that refuse."""

import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from load_script import load_script

CASE = {"dtype": "bf16", "batch": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "seq_len": 8, "causal": True}
GPU_ATTENTION = load_script("perf/peers/gpu_attention.py")


def rows_with(modules, absent=tuple(GPU_ATTENTION.PACKAGES.values())):
    """The rows of a shape where Python has these modules, and does not find the absent ones among others."""
    torch = mock.MagicMock()
    with mock.patch.dict(sys.modules, {"torch": torch, "torch.nn": torch.nn, "torch.nn.attention": torch.nn.attention,
                                       **dict.fromkeys(absent), **modules}):  # None: importing it fails
        timer = GPU_ATTENTION.Timer(torch, "cpu", 3)
        return list(GPU_ATTENTION.rows_of(torch, CASE, "cpu", timer, *GPU_ATTENTION.installed()))


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
        for error, reason in ((RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nmore"),
                               "FlashAttention only supports Ampere GPUs or newer."),
                              (AssertionError(), "AssertionError")):
            package = mock.MagicMock()
            package.flash_attn_func.side_effect = error
            self.check_refused(rows_with({"flash_attn": package}), reason)

    def check_refused(self, rows, reason):
        """FlashAttention 2 has the reason, and PyTorch its times."""
        self.assertEqual([(row["direction"], row.get("refused"), "median" in row) for row in rows if row["path"] == "flash_attn_2"],
                         [("forward", reason, False), ("backward", reason, False)])
        self.assertEqual(sum("median" in row for row in rows), 6)

    def test_a_package_without_the_function_has_the_reason(self):
        self.check_refused(rows_with({"flash_attn": types.ModuleType("flash_attn")}), "flash_attn has no flash_attn_func")

    def test_a_package_that_cannot_be_loaded_has_the_reason(self):
        for text, reason in (("import flash_attn_2_cuda", "No module named 'flash_attn_2_cuda'"),
                             ("raise ImportError('undefined symbol: x')", "undefined symbol: x"),
                             ("raise RuntimeError('no driver')", "no driver")):
            with self.subTest(text), tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder]):
                Path(folder, "flash_attn.py").write_text(text, encoding="utf-8")
                self.check_refused(rows_with({}, absent=["flash_attn_interface"]), reason)


if __name__ == "__main__":
    unittest.main()
