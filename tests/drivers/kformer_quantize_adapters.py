# SPDX-License-Identifier: MIT
"""kformer-quantize with an adapter that becomes part of the weights.

ctest runs this with the program in KFORMER_QUANTIZE and the sources in KFORMER_SOURCE.
"""

import json
import unittest

import driver_case
from driver_case import h5py, needs_h5py, read_safetensors
from quantize_case import QuantizeTest

if h5py is not None:
    import numpy as np
    from packed_weights import read_packed

TINY = driver_case.SOURCE / "inputs/tiny-llama"
CASE = driver_case.SOURCE / "tests/data/adapter_case"


def merged_weights():
    """The matrices of the model with the adapter, in double."""
    config = json.loads((CASE / "adapter_config.json").read_text())
    adapter = read_safetensors(CASE / "adapter_model.safetensors")
    weights = {name: tensor.weights() for name, tensor in read_packed(TINY).items()}
    for name in weights:
        a = adapter.get(f"base_model.model.{name.removesuffix('.weight')}.lora_A.weight")
        if a is None:
            continue
        b = adapter[f"base_model.model.{name.removesuffix('.weight')}.lora_B.weight"]
        alpha = next((alpha for key, alpha in config["alpha_pattern"].items() if f".{key}.weight" in name),
                     config["lora_alpha"])
        weights[name] = weights[name].reshape(b.shape[0], -1) + alpha / np.sqrt(len(a)) * b @ a
    return weights


@needs_h5py
class Adapters(QuantizeTest):
    def merge(self, source, output, form, *arguments):
        done = self.run_driver(source, output, "-f", form, "-a", CASE, "-r", f"{output}.h5", *arguments)
        with h5py.File(self.folder / f"{output}.h5") as file:
            groups = {name: dict(file[name].attrs) for name in ("merged", "merged_quantized") if name in file}
        return done.stdout, groups

    def check_weights(self, folder, steps):
        """No weight is further from the merged one than the largest of its matrix over `steps`."""
        for name, tensor in read_packed(folder).items():
            expected = self.EXPECTED[name].reshape(-1)
            found = tensor.weights().reshape(-1)
            limit = np.abs(self.EXPECTED[name]).max() / steps if tensor.kind not in ("F32", "BF16") else 1e-7
            self.assertLessEqual(np.abs(found - expected).max(), limit, name)

    @classmethod
    def setUpClass(cls):
        cls.EXPECTED = merged_weights()

    def test_the_adapter_is_in_the_weights(self):
        for form, steps in (("q8_0", 250), ("q4_0", 8)):
            said, groups = self.merge(TINY, form, form, "--adapter-tokens", 24)
            self.check_weights(self.folder / form, steps)
            self.assertRegex(said, r"(?m)^merged against weights \+ adapter, 24 tokens: logits differ by at most ")
            self.assertRegex(said, r"(?m)^merged and quantised against weights \+ adapter, 24 tokens: ")
            for found in groups.values():
                self.assertEqual(found["tokens"], 24)
                self.assertLess(0, found["rms_logit_err"])
                self.assertLessEqual(found["rms_logit_err"], found["max_logit_err"])
                # KL is half the variance of the differences, to second order, and at most the largest of them twice.
                self.assertLess(found["kl_divergence"], found["max_logit_err"]**2)
                self.assertLessEqual(found["kl_divergence"], found["max_kl_divergence"])
                self.assertLessEqual(found["max_kl_divergence"], 24 * found["kl_divergence"] * (1 + 1e-12) + 1e-15)
            self.assertLess(groups["merged"]["max_logit_err"], 1e-3)
            self.assertGreater(groups["merged_quantized"]["kl_divergence"], 1e-8)
            self.assertGreater(groups["merged"]["same_most_likely_word"], 0.95)
        coarse, fine = (h5py.File(self.folder / f"{form}.h5")["merged_quantized"].attrs["kl_divergence"]
                             for form in ("q4_0", "q8_0"))
        self.assertGreater(coarse, 4 * fine)

    def test_weights_that_have_the_format_already(self):
        self.run_driver(TINY, "q8_0", "-f", "q8_0")
        _, groups = self.merge("q8_0", "again", "q8_0", "--adapter-tokens", 8)
        self.check_weights(self.folder / "again", 125)
        self.assertGreater(groups["merged_quantized"]["max_logit_err"], 0)

    def test_without_a_comparison(self):
        said, groups = self.merge(TINY, "out", "q8_0", "--adapter-tokens", 0)
        self.assertEqual(groups, {})
        self.assertNotIn("against", said)

    def test_an_adapter_of_another_model(self):
        self.model()
        done = self.run_driver("model", "out", "-f", "q8_0", "-a", CASE, expect=4)
        self.assertIn("the adapter belongs to another model", done.stderr)
        self.assertFalse((self.folder / "out").exists())
        self.assertIn("no/adapter_config.json", self.run_driver(TINY, "out", "-f", "q8_0", "-a", "no", expect=4).stderr)


if __name__ == "__main__":
    unittest.main()
