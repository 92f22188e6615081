# SPDX-License-Identifier: MIT
"""kformer-generate with adapters that stay beside the weights.

ctest runs this with the programs in KFORMER_GENERATE and KFORMER_QUANTIZE and the sources in KFORMER_SOURCE.
"""

import json
import os
import subprocess
import unittest

import driver_case
from driver_case import DriverTest, h5py, needs_h5py, read_safetensors, texts, words, write_safetensors

try:
    import numpy as np
except ImportError:
    np = None

TINY = driver_case.SOURCE / "inputs/tiny-llama"
CASE = driver_case.SOURCE / "tests/data/adapter_case"


def write_adapters(folder):
    """Folders `first`, `second` and `scaled` (with magnitudes) of adapters of the tiny model."""
    tensors = read_safetensors(CASE / "adapter_model.safetensors")
    config = json.loads((CASE / "adapter_config.json").read_text())
    write_adapter(folder / "first", tensors, config)
    # Another rank and other numbers: the matrices of a rank that is repeated, B with the other sign.
    doubled = {name: -0.5 * t if "lora_B" in name else t for name, t in tensors.items()}
    doubled = {name: np.concatenate([t, t[::-1]], 1 if "lora_B" in name else 0) for name, t in doubled.items()}
    write_adapter(folder / "second", doubled,
                  config | {"r": 2 * config["r"], "rank_pattern": {k: 2 * r for k, r in config["rank_pattern"].items()}})
    # Magnitudes 0.7 to 1.3 times the norms of the rows.
    scaled, weights = dict(tensors), read_safetensors(TINY / "model.safetensors")
    for name in tensors:
        if name.endswith(".lora_B.weight"):
            w = weights[name.removeprefix("base_model.model.").replace("lora_B.", "")].astype(np.float64)
            factors = 1 + 0.3 * np.sin(np.arange(len(w)))
            scaled[name.replace("lora_B.weight", "lora_magnitude_vector")] = \
                (factors * np.linalg.norm(w, axis=1)).astype(np.float32)
    write_adapter(folder / "scaled", scaled, config | {"use_dora": True})


def write_adapter(folder, tensors, config):
    folder.mkdir()
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps(config))


@needs_h5py
class Adapters(DriverTest):
    PROGRAM = os.environ["KFORMER_GENERATE"]

    def setUp(self):
        super().setUp()
        write_adapters(self.folder)

    def generate(self, tables, prompts=(None,), weights=TINY, expect=0, check="recompute", dtype="f64"):
        prompt = "".join("[[prompt]]\ntext = 'The software'\n" + (f"adapter = '{p}'\n" if p else "") for p in prompts)
        (self.folder / "deck.toml").write_text(
            f"schema = 1\nkind = 'generate'\n[profile]\nmachine_limits = false\n[output]\noverwrite = true\n[weights]\npath = '{weights}'\n"
            f"[tokenizer]\nformat = 'byte'\n[generate]\ndtype = '{dtype}'\nmax_new_tokens = 8\nlast_logits = true\n"
            f"batch = 2\nstop_at_eos = false\n[check]\nreference = '{check}'\n{tables}{prompt}")
        done = self.run_driver("deck.toml", expect=expect)
        if expect:
            return done.stderr
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(file["cases"]["peak_bytes"][()].tolist(), file["cases"]["predicted_bytes"][()].tolist())
            self.assertEqual(set(words(file["cases/status"])), {"ok"} if check == "recompute" else {"unchecked"})
            return texts(file["generations/adapter"]), texts(file["generations/text"]), file["logits/last_logits"][()]

    SEVERAL = "[[adapters]]\nname = 'a'\npath = 'first'\n[[adapters]]\nname = 'b'\npath = 'second'\n"

    def test_live_is_merged(self):
        found = {}
        for name in ("first", "scaled"):
            merged = self.generate(f"[adapter]\npath = '{name}'\n")
            live = self.generate(f"[adapter]\npath = '{name}'\nlive = true\n")
            self.assertEqual(merged[0], [name, name])
            self.assertEqual(live[:2], merged[:2])
            np.testing.assert_allclose(live[2], merged[2], atol=1e-12)
            self.assertGreater(np.abs(live[2] - self.generate("")[2]).max(), 1e-3)
            found[name] = live[2]
        self.assertGreater(np.abs(found["first"] - found["scaled"]).max(), 1e-3)

    def test_magnitudes_beside_adapters_without(self):
        tables = self.SEVERAL + "[[adapters]]\nname = 'c'\npath = 'scaled'\n"
        _, said, logits = self.generate(tables, (None, "a", "c", "b"))
        for rows, table in (((0, 1), ""), ((2, 3), "[adapter]\npath = 'first'\n"),
                            ((4, 5), "[adapter]\npath = 'scaled'\n"), ((6, 7), "[adapter]\npath = 'second'\n")):
            _, alone, expected = self.generate(table)
            for row in rows:
                self.assertEqual(said[row], alone[0])
                np.testing.assert_allclose(logits[row], expected[0], atol=1e-12)
        for dtype in ("f32", "bf16", "f16"):
            self.generate(tables, (None, "a", "c"), dtype=dtype)

    def test_each_prompt_has_its_own(self):
        names, said, logits = self.generate(self.SEVERAL, (None, "a", "b", "a"))
        self.assertEqual(names, ["", "", "a", "a", "b", "b", "a", "a"])
        for rows, tables in (((0, 1), ""), ((2, 3, 6, 7), "[adapter]\npath = 'first'\n"),
                             ((4, 5), "[adapter]\npath = 'second'\n")):
            _, alone, expected = self.generate(tables)
            for row in rows:
                self.assertEqual(said[row], alone[0])
                np.testing.assert_allclose(logits[row], expected[0], atol=1e-12)
        self.assertGreater(np.abs(logits[2] - logits[4]).max(), 1e-3)

    def test_storage_of_16_bits(self):
        for dtype in ("f32", "bf16", "f16"):
            self.generate(self.SEVERAL, (None, "a", "b"), dtype=dtype)

    def test_quantised_weights(self):
        subprocess.run([os.environ["KFORMER_QUANTIZE"], TINY, "q8_0", "--format", "q8_0"], cwd=self.folder, check=True,
                       capture_output=True)
        self.generate(self.SEVERAL, (None, "a", "b"), weights="q8_0", dtype="f32")
        self.assertIn("stays quantised (Q8_0); set adapter.live = true, or weights.keep_quantized = false",
                      self.generate("[adapter]\npath = 'first'\n", weights="q8_0", expect=1))
        for name in ("first", "scaled"):
            self.generate(f"[adapter]\npath = '{name}'\nlive = true\n", weights="q8_0", dtype="f32")

    def test_the_plan_is_what_is_used(self):
        for path in ("first", "scaled"):
            with self.subTest(path=path):
                self.check_plan(path)

    def check_plan(self, path):
        """Three adapters of one's ranks, as kformer-memory counts them."""
        deck = ("schema = 1\nkind = 'memory_plan'\n[output]\noverwrite = true\n[weights]\npath = '%s'\n[sweep]\ncontext = 21\n"
                "dtype = 'f32'\nbatch = 2\n" % TINY)
        plan = "[plan]\nlive_adapters = 3\n"

        def run(tables):
            (self.folder / "plan.toml").write_text(deck + tables)
            return subprocess.run([os.environ["KFORMER_MEMORY"], "plan.toml"], cwd=self.folder, capture_output=True, text=True,
                                  check=False)

        done = run(plan + f"[adapter]\npath = '{path}'\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(self.folder / "plan.h5") as file:
            planned = file["cases/predicted_bytes"][0]
        adapters = "".join(f"[[adapters]]\nname = '{name}'\npath = '{path}'\n" for name in "abc")
        (self.folder / "deck.toml").write_text(
            f"schema = 1\nkind = 'generate'\n[profile]\nmachine_limits = false\n[output]\noverwrite = true\n[weights]\npath = '{TINY}'\n"
            "[tokenizer]\nformat = 'byte'\nadd_bos = false\n[generate]\nmax_new_tokens = 8\nbatch = 2\nprefill_chunk = 0\n"
            f"score_prompt = false\nmax_seq_len = 21\n[sampling]\ntemperature = 1.0\n{adapters}[[prompt]]\ntext = '{'a' * 21}'\nadapter = 'b'\n")
        self.run_driver("deck.toml")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(file["cases/peak_bytes"][0], planned)
        self.assertIn("'plan.live_adapters' needs [adapter], which says their ranks", run(plan).stderr)

    def test_decks_that_are_refused(self):
        for tables, prompts, sentence in (
                ("[adapter]\nlive = true\n", (None,), "'adapter.live' needs 'adapter.path'"),
                ("[adapter]\npath = 'first'\nlive = true\n" + self.SEVERAL, (None,),
                 "'adapter.live' is the adapter of all prompts, but [[adapters]] gives them others"),
                (self.SEVERAL, (None, "c"), "'prompt[1].adapter' = \"c\" is the name of none of [[adapters]]"),
                (self.SEVERAL.replace("'b'", "'a'"), (None,), "'adapters[1].name' = \"a\" is the name of an earlier"),
                (self.SEVERAL.replace("'b'", "''"), (None,), "'adapters[1].name' must not be empty"),
                ("[[adapters]]\nname = 'a'\n", (None,), "missing key 'path' in [adapters[0]]")):
            with self.subTest(sentence=sentence):
                self.assertIn(sentence, self.generate(tables, prompts, expect=3))
        self.assertIn("nothing", self.generate(self.SEVERAL.replace("first", "nothing"), expect=4))


if __name__ == "__main__":
    unittest.main()
