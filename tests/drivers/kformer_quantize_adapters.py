# SPDX-License-Identifier: MIT
"""kformer-quantize with an adapter that becomes part of the weights.

ctest runs this with the program in KFORMER_QUANTIZE and the sources in KFORMER_SOURCE.
"""

import json
import shutil
import unittest

import driver_case
from driver_case import h5py, needs_h5py, read_safetensors
from quantize_case import QuantizeTest

if h5py is not None:
    import numpy as np
    from packed_weights import read_gguf, read_packed, write_gguf, write_model

TINY = driver_case.SOURCE / "inputs/tiny-llama"
CASE = driver_case.SOURCE / "tests/data/adapter_case"
DORA_CASE = driver_case.SOURCE / "tests/data/dora_case"


GGUF_MAPS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def merged_weights(case=CASE):
    """The matrices of the model with the adapter, in double."""
    config = json.loads((case / "adapter_config.json").read_text())
    adapter = read_safetensors(case / "adapter_model.safetensors")
    weights = {name: tensor.weights() for name, tensor in read_packed(TINY).items()}
    for name in weights:
        prefix = f"base_model.model.{name.removesuffix('.weight')}.lora_"
        a, b = (adapter.get(f"{prefix}{matrix}.weight") for matrix in "AB")
        if a is None:
            continue
        alpha = next((alpha for key, alpha in config["alpha_pattern"].items() if f".{key}.weight" in name),
                     config["lora_alpha"])
        weights[name] = weights[name].reshape(b.shape[0], -1) + alpha / np.sqrt(len(a)) * b @ a
        if (magnitude := adapter.get(f"{prefix}magnitude_vector")) is not None:
            weights[name] *= (magnitude / np.linalg.norm(weights[name], axis=1))[:, None]
    return weights


@needs_h5py
class Adapters(QuantizeTest):
    FROM = CASE

    def merge(self, source, output, form, *arguments):
        done = self.run_driver(source, output, "-f", form, "-a", self.FROM, "-r", f"{output}.h5", *arguments)
        with h5py.File(self.folder / f"{output}.h5") as file:
            groups = {name: dict(file[name].attrs) for name in ("merged", "merged_quantized") if name in file}
        return done.stdout, groups

    def check_weights(self, folder, steps):
        """No weight is further from the merged one than the largest of its matrix over `steps`."""
        for name, tensor in read_packed(folder).items():
            expected = self.EXPECTED[name].reshape(-1)
            found = tensor.weights().reshape(-1)
            layer = len(tensor.shape) == 2 and ".layers." in name
            limit = np.abs(self.EXPECTED[name]).max() / steps if layer else 0
            self.assertLessEqual(np.abs(found - expected).max(), limit, name)

    @classmethod
    def setUpClass(cls):
        cls.EXPECTED = merged_weights(cls.FROM)

    def test_the_adapter_is_in_the_weights(self):
        # Half of a step, and a scale with 11 bits: 1/254 + 2⁻¹¹ of the largest of a block.
        for form, steps in (("q8_0", 225), ("q4_0", 8)):
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

    def test_a_dense_checkpoint(self):
        divergence = {}
        # A bf16 has 8 bits, so that it is off by at most 2⁻⁸ of itself.
        for form, steps, kind in (("f32", 2**22, "F32"), ("f16", 2**11, "F16"), ("bf16", 2**8, "BF16"),
                                  ("same", 2**8, "BF16")):
            said, groups = self.merge(TINY, form, form, "--adapter-tokens", 24)
            self.check_weights(self.folder / form, steps)
            self.assertEqual({tensor.kind for name, tensor in read_packed(self.folder / form).items()
                              if len(tensor.shape) == 2 and ".layers." in name}, {kind})
            self.assertRegex(said, r"(?m)^merged against weights \+ adapter, 24 tokens: logits differ by at most ")
            self.assertRegex(said, rf"(?m)^checkpoint: {form}$")
            self.assertEqual(groups.keys(), {"merged"})
            divergence[form] = groups["merged"]["kl_divergence"]
        self.assertLess(divergence["f32"], divergence["f16"] / 100)
        self.assertLess(divergence["f16"], divergence["bf16"] / 4)
        self.assertEqual(divergence["bf16"], divergence["same"])

    def test_weights_in_double_are_merged_in_double(self):
        write_model(self.folder / "wide", {name: tensor.weights().reshape(tensor.shape)
                                           for name, tensor in read_packed(TINY).items()}, "F64")
        shutil.copy(TINY / "config.json", self.folder / "wide")
        for form in ("f64", "same"):
            self.merge("wide", form, form, "--adapter-tokens", 0)
            self.check_weights(self.folder / form, 2**44)

    def test_the_format_that_the_weights_have(self):
        self.run_driver(TINY, "q4_0", "-f", "q4_0")
        self.merge("q4_0", "again", "same", "--adapter-tokens", 0)
        self.run_driver("q4_0", "named", "-f", "q4_0", "-a", self.FROM, "--adapter-tokens", 0)
        again, named = (read_packed(self.folder / name) for name in ("again", "named"))
        self.assertEqual({name: tensor.data for name, tensor in again.items()},
                         {name: tensor.data for name, tensor in named.items()})

    def test_without_a_comparison(self):
        said, groups = self.merge(TINY, "out", "q8_0", "--adapter-tokens", 0)
        self.assertEqual(groups, {})
        self.assertNotIn("against", said)

    def test_an_adapter_of_another_model(self):
        self.model()
        done = self.run_driver("model", "out", "-f", "q8_0", "-a", self.FROM, expect=4)
        self.assertIn("the adapter belongs to another model", done.stderr)
        self.assertFalse((self.folder / "out").exists())
        self.assertIn("no/adapter_config.json", self.run_driver(TINY, "out", "-f", "q8_0", "-a", "no", expect=4).stderr)


class AdaptersWithMagnitudes(Adapters):
    """All of it with DoRA: live, rows are scaled behind the product; merged, they are those of the weights."""
    FROM = DORA_CASE


@needs_h5py
class AdapterFile(QuantizeTest):
    """The adapter as a GGUF file, without a checkpoint or beside one."""

    def refused(self, *arguments, expect=4):
        files = self.files()
        text = self.run_driver(*arguments, expect=expect).stderr
        self.assertEqual(self.files(), files)
        return text

    def test_the_file_has_the_adapter_as_llama_cpp_reads_it(self):
        done = self.run_driver(TINY, "--adapter", CASE, "--adapter-gguf", "a.gguf")
        self.assertEqual(done.stdout, "adapter for llama.cpp: a.gguf\n")
        self.assertEqual(self.files(), ["a.gguf"])
        metadata, tensors = read_gguf(self.folder / "a.gguf")
        self.assertEqual({key: metadata[key] for key in ("general.type", "general.architecture", "adapter.type")},
                         {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"})
        model = json.loads((TINY / "config.json").read_text())
        base = {name: tensor.weights() for name, tensor in read_packed(TINY).items()}
        changed = 0
        for name, merged in merged_weights().items():
            layer, _, module = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
            if module not in GGUF_MAPS:
                continue
            a, b = (tensors.pop(f"blk.{layer}.{GGUF_MAPS[module]}.weight.lora_{m}").astype(np.float64) for m in "ab")
            if module in ("self_attn.q_proj", "self_attn.k_proj"):  # pairs of rows lie side by side there
                heads = model["num_attention_heads" if "q_proj" in module else "num_key_value_heads"]
                b = b.reshape(heads, -1, 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)
            sum_of_both = base[name].reshape(merged.shape) + metadata["adapter.lora.alpha"] / len(a) * b @ a
            np.testing.assert_allclose(sum_of_both, merged, rtol=0, atol=1e-6)
            changed += np.abs(merged - base[name].reshape(merged.shape)).max() > 1e-3
        self.assertEqual((changed, tensors), (14, {}))

    def test_it_is_read_like_the_folder(self):
        self.run_driver(TINY, "folder", "-f", "q8_0", "--adapter-gguf", "a.gguf", "-a", CASE, "--adapter-tokens", 0)
        self.run_driver(TINY, "file", "-f", "q8_0", "-a", "a.gguf", "--adapter-tokens", 0)
        folder, file = (read_packed(self.folder / name) for name in ("folder", "file"))
        for name, tensor in folder.items():
            # The format has one α, so that B is rounded: a weight may be the next one.
            np.testing.assert_allclose(file[name].weights(), tensor.weights(), rtol=0,
                                       atol=np.abs(tensor.weights()).max() / 125)
            self.assertGreater((file[name].weights() == tensor.weights()).mean(), 0.99)

    def test_a_file_that_is_there(self):
        (self.folder / "a.gguf").write_text("mine")
        command = (TINY, "-a", CASE, "--adapter-gguf", "a.gguf")
        self.assertIn("adapter file 'a.gguf' exists; --overwrite replaces it", self.refused(*command))
        self.assertIn("--overwrite replaces it", self.refused(*command, "--dry-run"))
        self.assertIn("--overwrite replaces it", self.refused(TINY, "out", "-f", "q8_0", *command[1:]))
        self.assertEqual((self.folder / "a.gguf").read_text(), "mine")
        self.run_driver(*command, "--overwrite", "--dry-run")
        self.assertEqual((self.folder / "a.gguf").read_text(), "mine")
        self.run_driver("--overwrite", "--adapter-gguf", "a.gguf", "-a", CASE, TINY)
        self.assertEqual((self.folder / "a.gguf").read_bytes()[:4], b"GGUF")
        self.assertIn("'a.gguf' is a file that is read; name another file",
                      self.refused(TINY, "-a", "a.gguf", "--adapter-gguf", "a.gguf", "--overwrite"))

    def test_a_file_that_is_read_is_not_replaced(self):
        for name, source in (("tiny", TINY), ("adapter", CASE)):
            shutil.copytree(source, self.folder / name)
        (self.folder / "link").symlink_to("tiny/model.safetensors")
        write_gguf(self.folder / "tiny.gguf", {name: tensor.weights().reshape(tensor.shape).astype("<f4")
                                               for name, tensor in read_packed(TINY).items()},
                   json.loads((TINY / "config.json").read_text()))
        for model, file in (("tiny", "tiny/model.safetensors"), ("tiny", "tiny/config.json"), ("tiny", "link"),
                            ("tiny/model.safetensors", "tiny/config.json"), ("tiny", "adapter/adapter_config.json"),
                            ("tiny", "adapter/adapter_model.safetensors"), ("tiny.gguf", "tiny.gguf")):
            before = (self.folder / file).read_bytes()
            self.assertIn(f"adapter file '{file}' is a file that is read; name another file",
                          self.refused(model, "-a", "adapter", "--adapter-gguf", file, "--overwrite"))
            self.assertEqual((self.folder / file).read_bytes(), before)
        # An adapter that was written among them is none of them.
        for file in ("tiny/a.gguf", "adapter/a.gguf"):
            for arguments in ((), ("--overwrite",)):
                self.run_driver("tiny", "-a", "adapter", "--adapter-gguf", file, *arguments)

    def test_places_that_are_none(self):
        (self.folder / "in").mkdir()
        command = (TINY, "-a", CASE, "--overwrite", "--adapter-gguf")
        self.assertIn("adapter file 'in' is not a file", self.refused(*command, "in"))
        self.assertIn("no/a.gguf", self.refused(*command, "no/a.gguf"))

    def test_what_cannot_be_written_is_known_before_anything_is(self):
        for case, file, reason in ((DORA_CASE, "a.gguf", "cannot have the magnitudes of the adapter (DoRA); merge it"),
                                   (CASE, "no/a.gguf", "cannot be written: there is no folder 'no'")):
            for arguments in ((TINY,), (TINY, "out", "-f", "q8_0", "--adapter-tokens", 0)):
                for more in ((), ("--dry-run",)):
                    self.assertIn(f"adapter file '{file}' {reason}",
                                  self.refused(*arguments, "-a", case, "--adapter-gguf", file, *more))

    def test_a_dry_run_says_that_it_writes_nothing(self):
        done = self.run_driver(TINY, "-a", CASE, "--adapter-gguf", "a.gguf", "--dry-run")
        self.assertEqual(done.stdout, "not written: adapter for llama.cpp: a.gguf\n")
        self.assertEqual(self.files(), [])

    def test_adapters_that_are_none(self):
        command = ("--adapter-gguf", "a.gguf", "-a")
        self.assertIn("no/adapter_config.json", self.refused(TINY, *command, "no"))
        self.model()
        self.assertIn("the adapter belongs to another model", self.refused("model", *command, CASE))
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (self.folder / name).write_bytes((CASE / name).read_bytes())
        config = json.loads((CASE / "adapter_config.json").read_text()) | {"r": 4}
        (self.folder / "adapter_config.json").write_text(json.dumps(config))
        self.assertIn("has the extents [2, 48], but adapter_config.json says that its rank is 4",
                      self.refused(TINY, *command, "."))

    def test_usage(self):
        for arguments, word in (((TINY, "--adapter-gguf", "a.gguf"), "--adapter"),
                                ((TINY, "out", "-f", "q8_0", "--adapter-tokens", 8), "--adapter-tokens requires --adapter"),
                                *(((TINY, "out", "-f", "q8_0", "-a", CASE, "--adapter-gguf", file),
                                   "--adapter-gguf: must not be in OUTPUT") for file in ("out", "out/", "out/a.gguf")),
                                ((TINY, "out", "-f", "q8_0", "-a", CASE, "--adapter-gguf", "r.h5", "-r", "r.h5"),
                                 "--adapter-gguf: must not be the file of --report"),
                                ((TINY,), "OUTPUT: is required, unless --adapter-gguf names a file"),
                                ((TINY, "out", "-a", CASE, "--adapter-gguf", "a.gguf"), "--format is required"),
                                ((TINY, "-a", CASE, "--adapter-gguf", "a.gguf", "-f", "q8_0"), "--format: needs OUTPUT"),
                                ((TINY, "-a", CASE, "--adapter-gguf", "a.gguf", "-r", "r.h5"), "--report: needs OUTPUT")):
            self.assertIn(word, self.refused(*arguments, expect=2))


if __name__ == "__main__":
    unittest.main()
