# SPDX-License-Identifier: MIT
"""What kformer-quantize writes and reports, recomputed by numpy, and what a real model says afterwards.

ctest runs this with the programs in KFORMER_QUANTIZE and KFORMER_GENERATE, the sources in KFORMER_SOURCE and the given
data in KFORMER_DATA.
"""

import json
import os
import subprocess
import unittest
from pathlib import Path

from driver_case import h5py, needs_h5py, texts
from quantize_case import FORMATS, Q_PROJ, QuantizeTest

if h5py is not None:
    import numpy as np
    from packed_weights import NF4, random_model, read_packed, scales, write_gguf, write_model

MODEL = Path(os.environ.get("KFORMER_DATA", "")) / "stories260K"
needs_model = unittest.skipUnless(MODEL.is_dir(), "KFORMER_DATA names no folder with stories260K")


@needs_h5py
class Weights(QuantizeTest):
    def test_matrices_of_layers_get_the_format_and_nothing_else(self):
        source = self.model()
        for kind in FORMATS:
            with self.subTest(format=kind):
                before, after = self.convert(source, kind, "-f", kind)
                for name, tensor in after.items():
                    if len(tensor.shape) == 2 and ".layers." in name:
                        self.assertEqual(tensor.kind, kind.upper())
                    else:
                        self.assertEqual((tensor.kind, tensor.data), ("F32", before[name].data))

    def test_numbers_are_rounded_once(self):
        def bf16(w):
            mantissa, exponent = np.frexp(w)
            return np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8)

        # A little more than the middle of two numbers of 16 bits: as float they would be the middle.
        k = np.arange(48 * 48).reshape(48, 48)
        above_ties = 1 + (2 * (k % 16) + 1) * np.where(k % 3 == 0, 2.0**-8, 2.0**-11) + 2.0**-40
        rules = {"bf16": bf16, "f16": np.float16, "f32": np.float32, "f64": np.float64}
        for stored, changed, kinds in (("F32", {}, rules), ("F64", {Q_PROJ: above_ties}, ("bf16", "f16", "f32"))):
            source = self.model(f"model-{stored}", stored, **changed)
            exact = {name: tensor.weights() for name, tensor in read_packed(source).items()}
            for kind in kinds:
                with self.subTest(stored=stored, type=kind):
                    _, after = self.convert(source, f"{stored}-{kind}", "-f", kind, "-e", "f64")
                    for name, tensor in after.items():
                        matrix, layer = len(tensor.shape) == 2, ".layers." in name
                        self.assertEqual(tensor.kind, kind.upper() if matrix and layer else "F64" if matrix else stored)
                        expected = rules[kind](exact[name]) if matrix and layer else exact[name]
                        np.testing.assert_array_equal(tensor.weights(), expected.astype(np.float64), name)

    def test_quantised_matrices_are_expanded_exactly(self):
        for kind in FORMATS:
            with self.subTest(format=kind):
                self.convert(self.model(), kind, "-f", kind)
                before, after = self.convert(self.folder / kind, f"dense-{kind}", "-f", "f32")
                for name, tensor in after.items():
                    self.assertEqual(tensor.kind, "F32")
                    np.testing.assert_array_equal(tensor.weights(), before[name].weights().astype("<f4"), name)

    def test_other_programs_are_told_what_dense_weights_are(self):
        write_model(self.folder / "model", random_model(), torch_dtype="bfloat16", dtype="bfloat16", quantization_config={
            "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True})
        source = json.loads((self.folder / "model/config.json").read_text())
        # Norms stay F32.
        for kind, name in (("bf16", "float32"), ("f32", "float32"), ("f64", "float64")):
            self.run_driver("model", kind, "-f", kind)
            config = json.loads((self.folder / kind / "config.json").read_text())
            self.assertEqual((config["torch_dtype"], config["dtype"]), (name, name))
            self.assertEqual(config.keys() ^ source.keys(), {"quantization_config"})
            self.assertIn(b'"__metadata__":{"format":"pt"}', (self.folder / kind / "model.safetensors").read_bytes())
        self.run_driver("model", "packed", "-f", "q8_0")
        self.assertEqual(json.loads((self.folder / "packed/config.json").read_text()), source)
        self.model("half", "BF16")
        (self.folder / "half/config.json").write_text(json.dumps(source))
        self.run_driver("half", "halves", "-f", "bf16")
        self.assertEqual(json.loads((self.folder / "halves/config.json").read_text())["torch_dtype"], "bfloat16")

    def test_every_type_of_numbers_is_read_exactly(self):
        for kind in ("BF16", "F16", "F64"):
            with self.subTest(type=kind):
                self.convert(self.model(kind, kind), f"packed-{kind}", "-f", "q4_1", "-e", "q8_0")

    def test_embedding_and_output_get_their_own_format(self):
        _, after = self.convert(self.model(), "packed", "-f", "tq1_0", "--embedding", "q4_0")
        self.assertEqual({name: tensor.kind for name, tensor in after.items() if ".layers." not in name},
                         {"model.embed_tokens.weight": "Q4_0", "lm_head.weight": "Q4_0", "model.norm.weight": "F32"})

    def test_ternary_weights_follow_the_mean_magnitude(self):
        before, after = self.convert(self.model(), "packed", "-f", "tq2_0")
        w, tensor = before[Q_PROJ].weights(), after[Q_PROJ]
        mean = np.abs(w).mean()
        self.assertEqual(set(scales(tensor.kind, tensor.blocks)), {float(np.float16(np.float32(mean)))})
        np.testing.assert_array_equal(np.sign(tensor.weights()), np.clip(np.floor(np.abs(w) / mean + 0.5), 0, 1) * np.sign(w))

    def test_weights_that_are_ternary_keep_their_values(self):
        scale = np.float32(0.375)
        weights = (np.random.default_rng(2).integers(-1, 2, (48, 48)) * scale).astype("<f4")
        source = self.model(**{Q_PROJ: weights})
        for kind in ("tq2_0", "tq1_0"):
            _, after = self.convert(source, kind, "-f", kind)
            np.testing.assert_array_equal(after[Q_PROJ].weights(), weights)
        _, again = self.convert(self.folder / "tq2_0", "again", "-f", "tq1_0")
        for name, tensor in read_packed(self.folder / "tq2_0").items():
            np.testing.assert_array_equal(again[name].weights(), tensor.weights())

    def test_the_same_format_again_gives_the_same_bytes(self):
        source = self.model()
        for kind in FORMATS:
            with self.subTest(format=kind):
                self.run_driver(source, kind, "-f", kind, "-e", "q8_0")
                done = self.run_driver(kind, f"{kind}-again", "-f", kind, "-e", "q8_0")
                self.assertIn("0 of 21 tensors converted", done.stdout)
                first, second = (self.folder / name / "model.safetensors" for name in (kind, f"{kind}-again"))
                self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_a_matrix_that_is_converted_in_bands(self):
        rows = 90000  # more than 2^22 weights
        tensors = random_model()
        del tensors["lm_head.weight"]
        weights = np.random.default_rng(3).normal(size=(rows, 48)).astype("<f4")
        for last in (1.0, np.nan):
            weights[-1, -1] = last
            tensors["model.embed_tokens.weight"] = weights
            write_model(self.folder / "model", tensors, vocab_size=rows, tie_word_embeddings=True)
            if last == 1:
                self.convert(self.folder / "model", "packed", "-f", "q8_0", "-e", "q4_1")
                self.convert(self.folder / "model", "as-one", "-f", "nf4", "-e", "nf4")
                self.convert(self.folder / "as-one", "from-one", "-f", "q8_0", "-e", "q8_0")
        self.assertIn(f"row {rows - 1} has", self.run_driver("model", "other", "-f", "q8_0", "-e", "q4_1", expect=4).stderr)

    def test_from_one_format_to_another(self):
        self.run_driver(self.model(), "packed", "-f", "q8_0")
        self.convert(self.folder / "packed", "smaller", "-f", "q4_1")
        self.convert(self.folder / "smaller", "tables", "-f", "nf4")
        self.convert(self.folder / "tables", "larger", "-f", "q8_0")

    def test_threads_and_spaces_do_not_change_a_bit(self):
        source = self.model()
        for kind in ("tq2_0", "nf4"):
            written = set()
            for i, arguments in enumerate((("--threads", "1"), ("--kokkos-num-threads=3",), ("--space", "serial"))):
                if "serial" not in arguments or "Serial" in self.run_driver("--version").stdout:
                    self.convert(source, f"{kind}-{i}", "-f", kind, *arguments)
                    written.add((self.folder / f"{kind}-{i}/model.safetensors").read_bytes())
            self.assertEqual(len(written), 1)

    def test_weights_in_nf4_are_those_of_the_publication(self):
        # A block whose weights are the table: it comes back as it is, but for its scale.
        weights = np.zeros((48, 48), "<f4")
        weights[:, :16] = NF4 * np.float32(0.5)
        _, after = self.convert(self.model(**{Q_PROJ: weights}), "packed", "-f", "nf4")
        np.testing.assert_array_equal(after[Q_PROJ].weights(), weights)
        self.assertEqual(len(after[Q_PROJ].data), 48 * 33 + 4 + 4)

    def test_a_checkpoint_of_bitsandbytes_is_packed_as_it_is(self):
        llama = Path(os.environ["KFORMER_SOURCE"]) / "tests/data/nf4_case/llama"
        done = self.run_driver(llama, "packed", "-f", "nf4")
        self.assertIn("0 of 11 tensors converted", done.stdout)
        packed, stored = read_packed(self.folder / "packed"), read_packed(llama)
        for name, tensor in packed.items():
            if tensor.kind == "NF4":
                self.assertEqual(tensor.blocks[:, 0].tobytes(), stored[f"{name}.absmax"].data)
                self.assertEqual(tensor.blocks[:, 1:].tobytes(), stored[name].data)
                self.assertEqual(tensor.tail[4:].tobytes(), stored[f"{name}.nested_absmax"].data)
            else:
                self.assertEqual(tensor.data, stored[name].data)
        self.convert(self.folder / "packed", "other", "-f", "q8_0")

    def test_a_weight_that_is_too_large_for_nf4_is_refused(self):
        weights = np.zeros((48, 48), "<f8")
        weights[3, 4] = 1e300
        source = self.model(kind="F64", **{Q_PROJ: weights})
        self.assertIn(f"'{Q_PROJ}' cannot be quantised to NF4: it has a weight that is too large for float",
                      self.run_driver(source, "packed", "-f", "nf4", expect=4).stderr)

    def test_weights_that_are_all_zero(self):
        source = self.model(**{Q_PROJ: np.zeros((48, 48), "<f4")})
        for kind in FORMATS:
            self.run_driver(source, kind, "-f", kind, "-r", f"{kind}.h5")
            self.assertEqual(np.count_nonzero(read_packed(self.folder / kind)[Q_PROJ].weights()), 0)
            with h5py.File(self.folder / f"{kind}.h5") as file:
                row = texts(file["tensors/name"]).index(Q_PROJ)
                self.assertTrue(np.isnan(file["tensors/rel_rms_err"][row]))
                self.assertEqual((file["tensors/max_abs_err"][row], file["tensors/zeros"][row]), (0, 1))

    def test_tensors_that_the_model_does_not_have_are_left_out(self):
        source = self.model(**{"model.rotary.inv_freq": np.ones(6, "<f4")})
        done = self.run_driver(source, "packed", "-f", "q8_0")
        self.assertIn("left out, because the model has no such tensor: model.rotary.inv_freq\n", done.stdout)
        self.assertNotIn("model.rotary.inv_freq", read_packed(self.folder / "packed"))

    def test_a_gguf_file_keeps_its_tokenizer(self):
        self.convert(self.model(), "packed", "-f", "q8_0")
        write_gguf(self.folder / "model.gguf", random_model())
        done = self.run_driver("model.gguf", "from-gguf", "-f", "q8_0")
        self.assertIn(f'[tokenizer]\npath = "{self.folder.resolve() / "model.gguf"}"\n', done.stdout)
        first, second = (self.folder / name / "model.safetensors" for name in ("packed", "from-gguf"))
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.assertEqual(json.loads((self.folder / "from-gguf/config.json").read_text())["hidden_size"], 48)


@needs_h5py
@needs_model
class Story(QuantizeTest):
    TOKENS = 60
    # How many characters of the published text come back, by what is left of the weights.
    KNOWN = {"q8_0": 170, "q4_0": 50, "q4_1": 50, "nf4": 50}

    def text_of(self, folder):
        (self.folder / "deck.toml").write_text(f'''schema = 1
kind = "generate"
[profile]
machine_limits = false
[weights]
path = "{folder}"
[generate]
max_new_tokens = {self.TOKENS}
[[prompt]]
text = ""
''')
        done = subprocess.run([os.environ["KFORMER_GENERATE"], "deck.toml", "--set", "output.overwrite=true"],
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_every_format_is_reported_and_read(self):
        published = (MODEL / "expected_greedy.txt").read_text().strip()
        for kind in FORMATS:
            with self.subTest(format=kind):
                self.convert(MODEL.absolute(), kind, "-f", kind)
                known = self.KNOWN.get(kind, 0)
                self.assertEqual(self.text_of(kind)[:known], published[:known])
                again = self.run_driver(kind, f"{kind}-again", "-f", kind).stdout
                self.assertIn("0 of 47 tensors converted", again)
                first, second = (self.folder / name for name in (kind, f"{kind}-again"))
                for path in first.iterdir():
                    self.assertEqual(path.read_bytes(), (second / path.name).read_bytes())

    def test_a_quantised_embedding(self):
        self.convert(MODEL.absolute(), "packed", "-f", "q8_0", "-e", "q8_0")
        self.assertTrue(self.text_of("packed").startswith("Once upon a time, there was a little girl named Lily."))


if __name__ == "__main__":
    unittest.main(verbosity=2)
