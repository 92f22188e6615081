# SPDX-License-Identifier: MIT
"""kformer-perf-attention from outside, on its tiny cases."""

import os
import unittest

import perf_program

PROGRAM = perf_program.Program(os.environ["KFORMER_PERF_PROGRAM"])


class Benchmarks(perf_program.Benchmarks, unittest.TestCase):
    program = PROGRAM

    def test_label_of_the_portable_kernel(self):
        labels = {b["label"] for name, b in self.medians.items() if name.startswith("attention_portable/")}
        self.assertEqual(labels, {"kokkos"})


class StandardAttention(unittest.TestCase):
    """It is what the fused form is compared with: plain loops would make that look ten times as fast as it is."""

    def test_is_a_fair_comparison(self):
        case = "standard_attention/forward/f32/D64/S2048/full"
        timed, limit = PROGRAM.ask(f"time {case} 5", f"limit {case}", smoke=False)
        # About 4 times, where plain loops take 13.
        self.assertLess(min(timed["seconds"]), 8 * limit["seconds"], timed["kernel"])


class CommandLine(perf_program.CommandLine, unittest.TestCase):
    program = PROGRAM


class Server(unittest.TestCase):
    def test_times_a_case(self):
        case, decode = "attention/backward/f32/D8/S32/causal", "attention/forward/f32/decode64"
        timed, peak, copy = PROGRAM.ask(f"time {case} 3", f"limit {case}", f"limit {decode}")
        self.assertEqual(len(timed["seconds"]), 3)
        self.assertTrue(all(s > 0 for s in timed["seconds"]))
        self.assertTrue(timed["kernel"])
        cases = PROGRAM.cases()
        self.assertGreater(cases[case]["flops"] / peak["seconds"], 1e8)
        self.assertGreater(cases[decode]["bytes"] / copy["seconds"], 1e8)

    def test_counts_operations_by_the_convention(self):
        flops = {name: case["flops"] for name, case in PROGRAM.cases().items()}
        self.assertEqual(flops["attention_portable/forward/f32/D8/S32/full"], 4 * 2 * 2 * 32 * 32 * 8)
        self.assertEqual(flops["attention/forward/f32/D8/S32/causal"], 4 * 2 * 32 * 32 * 8 / 2)
        self.assertEqual(flops["attention/forward/f32/D8/S32/window8"], 4 * 2 * (32 * 32 - 24 * 24) / 2 * 8)
        self.assertEqual(flops["attention/backward/f32/D8/S32/causal"], 2.5 * 4 * 2 * 32 * 32 * 8 / 2)
        self.assertEqual(flops["attention/forward/f32/decode64"], 4 * 4 * 64 * 8)

    def test_decode_is_limited_by_memory(self):
        memory = [name for name, case in PROGRAM.cases().items() if case["limit"] == "memory"]
        self.assertEqual(memory, ["attention/forward/f32/decode64"])


if __name__ == "__main__":
    unittest.main()
