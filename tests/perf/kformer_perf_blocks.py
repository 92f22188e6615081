# SPDX-License-Identifier: MIT
"""kformer-perf-blocks from outside, on its tiny cases."""

import os
import unittest

import perf_program

PROGRAM = perf_program.Program(os.environ["KFORMER_PERF_PROGRAM"])
ROWS, HIDDEN = 2**18 // 32, 32
TOKENS, WIDTH, INNER, QKV = 2 * 128, 128, 192, (4 + 2 * 2) * 32


class Benchmarks(perf_program.Benchmarks, unittest.TestCase):
    program = PROGRAM

    def test_the_same_product_by_blas(self):
        blas = {name for name, median in self.medians.items() if "% of BLAS" in median}
        self.assertIn(blas, [set(), {name for name in self.cases if name.startswith("linear/") and "/f32/" in name}])

    def test_every_kernel_of_a_layer_is_named(self):
        label = self.medians["layer/forward_backward/f32/tiny"]["label"]
        for function in ("rms_norm_forward", "linear_forward", "rope_backward", "attention_backward", "swiglu_backward"):
            self.assertIn(f"{function}:", label)


class CommandLine(perf_program.CommandLine, unittest.TestCase):
    program = PROGRAM

    def test_another_kernel_can_be_forced(self):
        case = "rms_norm/forward/f32/H32"
        os.environ["KFORMER_KERNEL"] = "rms_norm:reference"
        self.addCleanup(os.environ.pop, "KFORMER_KERNEL")
        self.assertEqual(PROGRAM.ask(f"time {case} 1")[0]["kernel"], "reference")


class Counts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cases = PROGRAM.cases()

    def check_bytes(self, name, expected):
        self.assertEqual(self.cases[name]["bytes"], expected, name)

    def test_what_is_written_is_not_read(self):
        array, logits, q4_1 = 4 * ROWS * HIDDEN, 4 * (2**18 // 100) * 100, INNER * WIDTH // 32 * 20
        for name, read, written in (("rms_norm/forward", 1, 1), ("rms_norm/backward", 2, 1), ("swiglu/forward", 2, 1),
                                    ("swiglu/backward", 3, 2), ("rms_norm_residual/forward", 2, 2),
                                    ("rms_norm_residual/backward", 3, 1)):
            case = self.cases[f"{name}/f32/H32"]
            self.assertEqual((case["bytes"] - case["written"], case["written"]), (read * array, written * array), name)
        self.assertEqual(self.cases["cross_entropy/forward/f32/V100"]["written"], 0)
        self.assertEqual(self.cases["cross_entropy/backward/f32/V100"]["written"], logits)
        self.assertEqual(self.cases["rope/forward/f32/H32"]["written"], 4 * ROWS * (32 + 32))
        quantized = self.cases["quantized/forward/f32/tiny/Q4_1/rows1"]
        self.assertEqual(quantized["bytes"] - quantized["written"], q4_1 + 4 * WIDTH)
        weights = 2 * WIDTH + (2 * WIDTH + 2 * 2 * 32 + 3 * INNER) * WIDTH
        self.assertEqual(self.cases["adamw/step/f32/tiny"]["written"], 3 * 4 * weights)
        self.assertEqual(self.cases["adamw/step/bf16/tiny"]["written"], (3 * 4 + 2) * weights)

    def test_every_array_once(self):
        array = 4 * ROWS * HIDDEN
        self.check_bytes("rms_norm/forward/f32/H32", 2 * array)
        self.check_bytes("rms_norm/backward/f32/H32", 3 * array)
        self.check_bytes("rms_norm_residual/forward/f32/H32", 4 * array)
        self.check_bytes("rms_norm_residual/backward/f32/H32", 4 * array)
        self.check_bytes("rms_norm/forward/bf16/H32", 2 * array / 2)
        self.check_bytes("swiglu/forward/f32/H32", 3 * array)
        self.check_bytes("swiglu/backward/f32/H32", 5 * array)

    def test_a_row_of_the_embedding_counts_once(self):
        array, words = 4 * ROWS * HIDDEN, ROWS
        taken = 4 * round(words * (1 - (1 - 1 / words) ** ROWS)) * HIDDEN  # distinct words, in float
        self.check_bytes("embedding/forward/bf16/H32", (array + taken) / 2)
        self.check_bytes("embedding/backward/bf16/H32", array / 2 + 2 * taken)

    def test_a_step_over_the_weights_of_a_layer(self):
        weights = 2 * WIDTH + (2 * WIDTH + 2 * 2 * 32 + 3 * INNER) * WIDTH
        self.check_bytes("adamw/step/f32/tiny", (4 + 3 * 2 * 4) * weights)
        self.check_bytes("adamw/step/bf16/tiny", (4 + 3 * 2 * 4 + 2) * weights)
        self.check_bytes("adamw_8bit/step/f32/tiny", (4 + 2 * 4 + 2 * 2 * (1 + 4 / 256)) * weights)

    def test_queries_and_keys_are_read_and_written(self):
        self.check_bytes("rope/forward/f32/H32", 2 * 4 * ROWS * (32 + 32))

    def test_logits(self):
        logits = 4 * (2**18 // 100) * 100
        self.check_bytes("cross_entropy/forward/f32/V100", logits)
        self.check_bytes("cross_entropy/backward/f32/V100", 2 * logits)

    def test_the_output_matrix_with_its_loss(self):
        for form in ("linear_cross_entropy", "linear_cross_entropy_unfused"):
            case = self.cases[f"{form}/forward_backward/f32/V100"]
            self.assertEqual(case["limit"], "sum")
            self.assertEqual(case["flops"], 3 * 2 * 1100 * WIDTH * 100)
            self.assertEqual(case["bytes"], 3 * 4 * 1100 * 100)

    def test_unfused_forms_count_the_work_of_the_fused(self):
        for fused in ("rms_norm_residual", "rope", "swiglu"):
            self.check_bytes(f"{fused}_unfused/forward/f32/H32", self.cases[f"{fused}/forward/f32/H32"]["bytes"])

    def test_operations_of_products(self):
        for direction in ("forward", "backward_input", "backward_weight"):
            self.assertEqual(self.cases[f"linear/{direction}/f32/tiny/qkv"]["flops"], 2 * TOKENS * WIDTH * QKV)
            self.assertEqual(self.cases[f"linear/{direction}/f32/tiny/down"]["flops"], 2 * TOKENS * WIDTH * INNER)

    def test_quantized_weights_are_read_once(self):
        vectors = 4 * (WIDTH + INNER)
        self.check_bytes("quantized/forward/f32/tiny/Q4_1/rows1", INNER * WIDTH // 32 * 20 + vectors)
        self.check_bytes("quantized/forward_int8/f32/tiny/Q8_0/rows1", INNER * WIDTH // 32 * 34 + vectors)
        ternary = self.cases["ternary/forward_int8/f32/tiny/TQ2_0/rows4"]
        self.assertEqual(ternary["limit"], "arithmetic")
        self.assertEqual(ternary["flops"], 2 * 4 * WIDTH * INNER)
        self.assertEqual(self.cases["ternary/forward_int8/f32/tiny/TQ2_0/rows1"]["limit"], "memory")

    def test_8_bit_activations_have_a_limit_of_their_own(self):
        names = {name for name, case in self.cases.items() if case["int8"]}
        self.assertEqual(names, {name for name in self.cases if name.split("/")[1] == "forward_int8"})
        limits = [f"limit quantized/{direction}/f32/tiny/Q8_0/rows4" for direction in ("forward", "forward_int8")]
        about, *answers = PROGRAM.ask("about", *3 * limits)
        seconds = [answer["seconds"] for answer in answers]
        if "vnni" in about["isa"]:  # four products where there is one of floats
            self.assertLess(min(seconds[1::2]), min(seconds[::2]) / 2)

    def test_a_layer_is_the_sum_of_its_parts(self):
        layer = self.cases["layer/forward_backward/f32/tiny"]
        self.assertEqual(layer["limit"], "sum")
        products = sum(case["flops"] for name, case in self.cases.items() if name.startswith("linear/") and "/f32/" in name)
        attention = 3.5 * 4 * 2 * 4 * (128 * 128 / 2) * 32
        self.assertEqual(layer["flops"], products + attention)
        norms = 2 * (2 + 4) * 4 * TOKENS * WIDTH
        rotations = 2 * 2 * 4 * TOKENS * (4 + 2) * 32
        swiglu = (3 + 5) * 4 * TOKENS * INNER
        self.assertEqual(layer["bytes"], norms + rotations + swiglu)

    def test_limit_of_a_layer_is_more_than_that_of_a_part(self):
        layer = self.cases["layer/forward_backward/f32/tiny"]
        least, product = PROGRAM.ask(f"limit {layer['name']}", "limit linear/forward/f32/tiny/qkv")
        self.assertGreater(product["seconds"], 0)
        self.assertGreater(least["seconds"], product["seconds"])


if __name__ == "__main__":
    unittest.main()
