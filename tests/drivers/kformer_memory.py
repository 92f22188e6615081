# SPDX-License-Identifier: MIT
"""The driver kformer-memory from outside: command line, decks, and forecasts that can be counted by hand.

ctest runs this with the program in KFORMER_MEMORY and the sources in KFORMER_SOURCE.
"""

import os
import unittest

import driver_case
from driver_case import DriverTest, decks_of_kind, h5py, needs_h5py, texts, words

if h5py is not None:
    import numpy as np

# Of Llama 3.1 8B: embedding and last projection, 32 layers, the last norm.
LAYER = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096
PARAMETERS = 2 * 128256 * 4096 + 32 * LAYER + 4096


class MemoryTest(DriverTest):
    NAME = "kformer-memory"
    PROGRAM = os.environ["KFORMER_MEMORY"]
    SMOKE_DECK = driver_case.SOURCE / "inputs/memory-llama-3.1-8b.toml"
    SMALL = """schema = 1
kind = "memory_plan"
[model]
hidden_size = 64
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 96
num_hidden_layers = 2
vocab_size = 100
max_position_embeddings = 1024
[sweep]
"""


class CommandLine(driver_case.CommandLine, MemoryTest):
    pass


class Decks(MemoryTest):
    def test_every_deck_of_the_project_is_good(self):
        for deck in decks_of_kind("memory_plan", "**/*.toml"):
            with self.subTest(deck=deck.name):
                self.assertRegex(self.run_driver(deck, "--dry-run").stdout, r"^\d+ cases? of ")
        self.assertEqual(self.files(), [])

    def test_an_unknown_key_is_refused_with_its_place(self):
        self.deck("seq_len = 4\n")
        text = self.run_driver("deck.toml", expect=3).stderr
        self.assertIn("deck.toml:12:1: error: unknown key 'seq_len' in [sweep]", text)
        self.assertEqual(self.files(), ["deck.toml"])

    def test_weights_that_are_not_there(self):
        (self.folder / "none.toml").write_text('schema = 1\nkind = "memory_plan"\n[weights]\npath = "nowhere"\n')
        self.assertIn("nowhere", self.run_driver("none.toml", expect=4).stderr)


@needs_h5py
class Forecasts(MemoryTest):
    def test_weights_and_cache_are_what_they_must_be(self):
        self.run_driver(self.SMOKE_DECK, "--set", "sweep.context=[8192]", "-o", "plan.h5")
        with h5py.File(self.folder / "plan.h5") as file:
            cases = file["cases"]
            weights, caches = texts(cases["weights"]), texts(cases["kv_cache"])
            for i, batch in enumerate(cases["batch"][()]):
                with self.subTest(weights=weights[i], cache=caches[i], batch=batch):
                    bytes_per_weight = {"same": 2, "q8_0": 34 / 32, "q4_0": 18 / 32}[weights[i]]
                    tolerance = 0.001 if weights[i] == "same" else 0.15  # the embedding may stay dense
                    np.testing.assert_allclose(cases["weights_bytes"][i], PARAMETERS * bytes_per_weight, rtol=tolerance)
                    if caches[i] == "contiguous":
                        np.testing.assert_allclose(cases["kv_cache_bytes"][i], batch * 2**30, rtol=0.01)
                    parts = [cases[f"{name}_bytes"][i] for name in ("weights", "kv_cache", "activations", "workspace")]
                    self.assertLessEqual(max(parts), cases["predicted_bytes"][i])

    def test_the_largest_context_is_the_last_that_fits(self):
        self.deck('prefill_chunk = 16\ncontext = 16\nbatch = [1, 7]\nkv_cache = ["contiguous", "paged", "int8"]\n')
        arguments = ["--set", "plan.device_bytes=1500000", "--set", "output.overwrite=true"]
        self.run_driver("deck.toml", *arguments)
        with h5py.File(self.folder / "deck.h5") as file:
            points = list(zip(texts(file["cases/kv_cache"]), file["cases/batch"][()].tolist(),
                              file["cases/largest_context"][()].tolist()))
        for cache, batch, largest in points:
            with self.subTest(cache=cache, batch=batch):
                contexts = f"sweep.context=[{largest}, {largest + 1}]"
                self.assertGreater(largest, 0)
                self.run_driver("deck.toml", *arguments, "--set", contexts, "--set", f"sweep.batch={batch}", "--set",
                                f"sweep.kv_cache={cache}", "-o", "two.h5")
                with h5py.File(self.folder / "two.h5") as file:
                    fits = words(file["cases/fits"])
                self.assertEqual(fits[0], "yes")
                if largest < 1024:  # where the search ends: the context of the model
                    self.assertEqual(fits[1], "no")

    def test_training_takes_more_than_generating(self):
        self.deck('purpose = ["generate", "train"]\ncontext = 64\n')
        self.run_driver("deck.toml")
        with h5py.File(self.folder / "deck.h5") as file:
            generate, train = file["cases/predicted_bytes"][()]
            self.assertGreater(train, generate)
            # Weights hold two rotary tables besides, of 64 positions, half a head and 4 bytes.
            self.assertEqual(file["cases/gradients_bytes"][1], file["cases/weights_bytes"][1] - 2 * 64 * 8 * 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
