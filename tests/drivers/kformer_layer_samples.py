# SPDX-License-Identifier: MIT
"""kformer-layer on layers so small that one naive computation says little of the errors that rounding causes.

ctest runs this with the program in KFORMER_LAYER and the sources in KFORMER_SOURCE.
"""

import os
import unittest

import driver_case
from driver_case import DriverTest, h5py, needs_h5py, texts, words


@needs_h5py
class Samples(DriverTest):
    NAME = "kformer-layer"
    PROGRAM = os.environ["KFORMER_LAYER"]

    def test_heads_of_two_features_are_no_false_alarm(self):
        # The norm of the shortest query multiplies its error: few numbers have most of the error.
        deck = driver_case.SOURCE / "inputs/tolerance/layer.toml"
        for seed in (1, 2):
            with self.subTest(seed=seed):
                self.run_driver(deck, "--set", f"run.seed={seed}", "--set", "model.num_attention_heads=32",
                                "--set", 'sweep.dtype=["f32", "f64"]', "--set", 'sweep.direction="backward"',
                                "--set", "sweep.seq_len=[1, 2, 3, 4, 5, 6, 7, 8]", "--set", 'output.file="out.h5"', "--set", "profile.machine_limits=false")
                with h5py.File(self.folder / "out.h5") as file:
                    self.assertEqual(set(words(file["cases/status"])), {"ok"}, texts(file["cases/message"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
