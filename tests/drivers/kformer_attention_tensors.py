# SPDX-License-Identifier: MIT
"""kformer-attention on tensors from a file, held against a double-precision attention in numpy.

ctest runs this with the program in KFORMER_ATTENTION and the sources in KFORMER_SOURCE.
"""

import json
import re
import unittest
from itertools import product

from attention_case import AttentionTest
from driver_case import h5py, needs_h5py, read_safetensors, texts, words, write_safetensors

try:
    import numpy as np
    from attention_oracle import attention
except ImportError:
    np = None


@unittest.skipIf(np is None, "numpy is not installed")
class Tensors(AttentionTest):
    LIMITS = {"f64": 1e-12, "f32": 5e-6}

    def inputs(self, batch=2, q_len=9, kv_len=13, heads=4, kv_heads=2, dim=16, v_dim=24, seed=1):
        random = np.random.default_rng(seed)
        return {"q": random.standard_normal((batch, q_len, heads, dim)),
                "k": random.standard_normal((batch, kv_len, kv_heads, dim)),
                "v": random.standard_normal((batch, kv_len, kv_heads, v_dim)),
                "grad_out": random.standard_normal((batch, q_len, heads, v_dim))}

    def tensor_deck(self, tensors, sweep="", **options):
        write_safetensors(self.folder / "in.safetensors", tensors)
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
        (self.folder / "deck.toml").write_text(
            f'schema = 1\nkind = "attention_compare"\n[profile]\nmachine_limits = false\n[output]\noverwrite = true\n[timing]\nrepeats = 1\n[attention]\n{text}'
            f'[sweep]\nexecution_space = "default"\n{sweep}\n[check]\nreference = "none"\n'
            '[tensors]\ninput = "in.safetensors"\noutput = "out.safetensors"\n')

    def check(self, tensors, dtype="f64", **options):
        """Runs the driver on the tensors and compares everything it writes with the oracle."""
        integers = {name: x for name, x in tensors.items() if x.dtype.kind == "i"}
        stored = {name: x.astype({"f64": "<f8", "f32": "<f4"}[dtype]) for name, x in tensors.items()
                  if name not in integers}
        self.tensor_deck(stored | integers, **options)
        self.run_driver("deck.toml")
        exact = {name: x.astype(np.float64) for name, x in stored.items()} | integers
        self.compare(attention(**exact, **options), dtype)

    def compare(self, expected, dtype, name="out.safetensors"):
        results = read_safetensors(self.folder / name)
        self.assertEqual(results.keys(), expected.keys())
        for name, reference in expected.items():
            with self.subTest(tensor=name):
                self.assertEqual(results[name].shape, reference.shape)
                np.testing.assert_array_equal(np.isneginf(results[name]), np.isneginf(reference))
                finite = np.isfinite(reference)
                error = np.abs(results[name] - reference)[finite].max() / np.abs(reference[finite]).max()
                self.assertLessEqual(error, self.LIMITS[dtype])

    def test_masks(self):
        for options in [{}, {"causal": True}, {"window": 3}, {"causal": True, "window": 4, "scale": 0.3}]:
            for dtype in self.LIMITS:
                with self.subTest(dtype=dtype, **options):
                    self.check(self.inputs(), dtype, **options)
                    (self.folder / "deck.h5").unlink()

    def test_queries_that_see_no_key(self):
        self.check(self.inputs(q_len=13, kv_len=9), causal=True)

    def test_decode(self):
        self.check(self.inputs(q_len=1, kv_len=300), "f32", causal=True)

    def test_softcap(self):
        self.check(self.inputs(), causal=True, softcap=1.5)

    def test_sinks(self):
        tensors = self.inputs() | {"sinks": np.array([0.5, -1.0, 2.0, 0.0])}
        self.check(tensors, causal=True, window=5)

    def test_a_sink_of_minus_infinity_is_none(self):
        self.check(self.inputs() | {"sinks": np.array([0.5, -np.inf, 2.0, -np.inf])}, causal=True)

    # Each query has all its weight on one key, which is not to be lost between the scores of forward and backward.
    def test_scores_of_any_size(self):
        for (dtype, unit), scale, kernel in product(self.LIMITS.items(), [1e7, 1e9, 1e18, 1e30], ["", "attention:kokkos"]):
            tensors = self.inputs(q_len=13)
            with self.subTest(dtype=dtype, scale=scale, kernel=kernel):
                self.tensor_deck({name: x.astype({"f64": "<f8", "f32": "<f4"}[dtype])
                                  for name, x in tensors.items()}, scale=scale)
                self.run_driver("deck.toml", KFORMER_KERNEL=kernel)
                results = read_safetensors(self.folder / "out.safetensors")
                out = results["out"]
                scores = np.einsum("bihd,bjhd->bhij", tensors["q"], np.repeat(tensors["k"], 2, 2))
                values = np.repeat(tensors["v"], 2, 2)
                for b, h, i in np.ndindex(2, 4, 13):
                    np.testing.assert_allclose(out[b, i, h], values[b, scores[b, h, i].argmax(), h], rtol=1e-6)
                (self.folder / "deck.h5").unlink()
                grad_v = np.zeros(tensors["v"].shape)
                for b, h, i in np.ndindex(2, 4, 13):
                    grad_v[b, scores[b, h, i].argmax(), h // 2] += tensors["grad_out"][b, i, h]
                np.testing.assert_allclose(results["grad.v"], grad_v, atol=10 * unit)
                # Of a probability of 1 and the others 0 the derivative is 0, whatever rounding leaves of it.
                for name in ("grad.q", "grad.k"):
                    self.assertTrue(np.isfinite(results[name]).all(), name)

    def test_alibi_slopes(self):
        self.check(self.inputs() | {"alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625])}, causal=True)

    def test_bias(self):
        random = np.random.default_rng(2)
        for shape in [(2, 4, 9, 13), (1, 4, 1, 13), (2, 1, 9, 13)]:
            with self.subTest(shape=shape):
                self.check(self.inputs() | {"bias": random.standard_normal(shape)}, causal=True)
                (self.folder / "deck.h5").unlink()

    # All kernels but the reference leave these gradients to the same functions.
    def test_gradients_of_bias_and_sinks_are_judged(self):
        extras = {"sinks": np.array([0.5, -1.0, 2.0, 0.0]),
                  "bias": np.random.default_rng(2).standard_normal((2, 4, 9, 13))}
        for dtype, kernel in product(["<f8", "<f4"], ["", "attention_backward:kokkos"]):
            with self.subTest(dtype=dtype, kernel=kernel):
                tensors = self.inputs() | extras
                self.tensor_deck({name: x.astype(dtype) for name, x in tensors.items()}, 'impl = "flash"', causal=True)
                self.run_driver("deck.toml", "--set", "check.reference=f64", KFORMER_KERNEL=kernel)
                with h5py.File(self.folder / "deck.h5") as file:
                    self.assertEqual(set(words(file["cases/status"])), {"ok"}, texts(file["cases/message"]))

    # It is one number, whose exact value is 0: each query that sees a key sees no other one.
    def test_the_gradient_of_a_bias_of_all_queries_is_no_false_alarm(self):
        for seed in range(20, 32):
            with self.subTest(seed=seed):
                tensors = self.inputs(3, 2, 2, 24, 3, 64, 64, seed) | {"bias": np.array([[[[-np.inf, 0.5]]]])}
                self.tensor_deck({name: x.astype("<f4") for name, x in tensors.items()}, 'direction = "backward"', causal=True)
                self.run_driver("deck.toml", "--set", "check.reference=f64")
                with h5py.File(self.folder / "deck.h5") as file:
                    self.assertEqual(words(file["cases/status"]), ["ok"], texts(file["cases/message"]))

    def test_packed_sequences(self):
        for integer in ["<i4", "<i8"]:
            with self.subTest(integer=integer):
                self.check(self.inputs(batch=1, q_len=20, kv_len=26) | {
                    "cu_seqlens_q": np.array([0, 5, 5, 20], integer),
                    "cu_seqlens_kv": np.array([0, 7, 9, 26], integer)}, causal=True)
                (self.folder / "deck.h5").unlink()

    def test_everything_at_once(self):
        tensors = self.inputs(batch=1, q_len=20, kv_len=26) | {
            "cu_seqlens_q": np.array([0, 5, 20], "<i4"), "cu_seqlens_kv": np.array([0, 7, 26], "<i4"),
            "sinks": np.array([0.5, -1.0, 2.0, 0.0]), "alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625])}
        self.check(tensors, causal=True, window=6, softcap=2.0)

    def test_without_grad_out_there_is_no_backward(self):
        tensors = self.inputs()
        del tensors["grad_out"]
        self.check(tensors)
        self.tensor_deck(tensors, 'direction = "backward"')
        self.assertIn("but in.safetensors has no grad_out",
                      self.run_driver("deck.toml", "-o", "b.h5", expect=3).stderr.replace(f"{self.folder}/", ""))

    def test_standard_attention_where_it_can(self):
        tensors = self.inputs()
        self.tensor_deck(tensors, 'impl = "standard"', causal=True)
        self.run_driver("deck.toml")
        expected = attention(**tensors, causal=True)
        del expected["lse"]
        self.compare(expected, "f64")

    def test_tensors_replace_nothing_but_tensors(self):
        self.tensor_deck(self.inputs())
        (self.folder / "old.safetensors").write_bytes((self.folder / "in.safetensors").read_bytes())
        before = {name: (self.folder / name).read_bytes() for name in self.files()}
        for name, words, options in (("in.safetensors", "it is the file of 'tensors.input'", []),
                                     ("deck.h5", "it is the result file", []),
                                     ("deck.toml", "it is not a safetensors file and is never replaced", []),
                                     ("none/out.safetensors", "there is no such folder", []),
                                     ("old.safetensors", "it exists already", ["--set", "output.overwrite=false"])):
            with self.subTest(name=name):
                done = self.run_driver("deck.toml", *options, "--set", f'tensors.output="{name}"', expect=4)
                self.assertIn(words, done.stderr)
                self.assertEqual({name: (self.folder / name).read_bytes() for name in self.files()}, before)
        self.run_driver("deck.toml", "--set", 'tensors.output="old.safetensors"')
        self.assertIn("out", read_safetensors(self.folder / "old.safetensors"))

    def outputs(self):
        """The files of results without the execution space in their names."""
        return {re.sub(r"^out\.[a-z]+-", "out.", name): name for name in self.files() if name.startswith("out.")}

    def test_every_mask_of_a_sweep_has_a_file_of_its_own(self):
        tensors = self.inputs()
        self.tensor_deck(tensors, "causal = [false, true]\nwindow = [0, 3]")
        self.run_driver("deck.toml")
        names = {(False, 0): "out.safetensors", (False, 3): "out.f64-flash-causal-no-window-3.safetensors",
                 (True, 0): "out.f64-flash-causal-yes-window-0.safetensors",
                 (True, 3): "out.f64-flash-causal-yes-window-3.safetensors"}
        self.assertEqual(self.outputs().keys(), set(names.values()))
        for (causal, window), name in names.items():
            self.compare(attention(**tensors, causal=causal, window=window), "f64", self.outputs()[name])
            data = (self.folder / self.outputs()[name]).read_bytes()
            metadata = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]
            self.assertEqual((metadata["causal"], metadata["window"]), ("yes" if causal else "no", str(window)))

    def test_tensors_of_further_combinations_are_not_replaced_either(self):
        self.tensor_deck(self.inputs(), 'impl = ["flash", "standard"]')
        self.run_driver("deck.toml")
        second = self.outputs()["out.f64-standard.safetensors"]
        for name in ("out.safetensors", "deck.h5"):
            (self.folder / name).unlink()
        before = {name: (self.folder / name).read_bytes() for name in self.files()}
        done = self.run_driver("deck.toml", "--set", "output.overwrite=false", expect=4)
        self.assertIn(f"{second}': it exists already", done.stderr)
        self.assertEqual({name: (self.folder / name).read_bytes() for name in self.files()}, before)

    # An interrupted run may end before or after the first case that can run.
    def test_names_do_not_depend_on_what_can_run(self):
        self.tensor_deck(self.inputs() | {"sinks": np.zeros(4)}, 'impl = ["standard", "flash"]')
        self.run_driver("deck.toml")
        self.assertEqual(list(self.outputs()), ["out.f64-flash.safetensors"])

    @needs_h5py
    def test_standard_attention_says_what_it_cannot(self):
        self.tensor_deck(self.inputs() | {"sinks": np.zeros(4)}, 'impl = "standard"')
        self.run_driver("deck.toml", expect=7)  # no other case
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["unsupported"] * 2)
            self.assertEqual(texts(file["cases/message"])[0], 'standard attention has no sinks; use impl = "flash"')
        self.assertNotIn("out.safetensors", self.files())

    @needs_h5py
    def test_the_storage_type_is_that_of_the_file_unless_the_deck_says_otherwise(self):
        self.tensor_deck({name: x.astype("<f4") for name, x in self.inputs().items()}, 'dtype = ["bf16", "f64"]')
        self.run_driver("deck.toml")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(sorted(set(texts(file["cases/dtype"]))), ["bf16", "f64"])

    def assert_refused(self, tensors, *sentences):
        self.tensor_deck(tensors)
        text = self.run_driver("deck.toml", expect=4).stderr
        for sentence in sentences:
            self.assertIn(sentence, text)
        self.assertEqual(self.files(), ["deck.toml", "in.safetensors"])

    def test_tensors_that_do_not_fit_are_refused(self):
        good = self.inputs()
        self.assert_refused({"k": good["k"], "v": good["v"][..., 0], "mask": good["q"]},
                            "q is missing, expected [batch,q_len,q_heads,head_dim]",
                            "v has shape [2,13,2], expected [batch,kv_len,kv_heads,v_head_dim]",
                            "mask is not a tensor of attention; known: q, k, v, grad_out, bias")
        self.assert_refused(good | {"k": good["k"][..., :8]}, "k has shape [2,13,2,8], expected [2,kv_len,kv_heads,16]")
        self.assert_refused(good | {"q": good["q"][:, :, :3]}, "q has 3 heads, not a multiple of the 2 heads of k",
                            "grad_out has shape [2,9,4,24], expected [2,9,3,24]")
        self.assert_refused(good | {"k": good["k"].astype("<f4")}, "k is F32, but q is F64")
        self.assert_refused(good | {"bias": np.zeros((1, 2, 1, 13))},
                            "bias has shape [1,2,1,13], expected [1 or 2,1 or 4,1 or 9,13]")
        self.assert_refused(good | {"sinks": np.zeros(2)}, "sinks has shape [2], expected [4]")

    def test_sequences_that_do_not_fit_are_refused(self):
        good = self.inputs(batch=1)

        def starts(q, kv, integer="<i8"):
            return good | {"cu_seqlens_q": np.array(q, integer), "cu_seqlens_kv": np.array(kv, integer)}

        self.assert_refused(good | {"cu_seqlens_q": np.array([0, 9], "<i4")},
                            "cu_seqlens_q and cu_seqlens_kv must be given together; one is missing")
        self.assert_refused(starts([0, 9], [0, 4, 13]), "cu_seqlens_q has shape [2] and cu_seqlens_kv [3]")
        self.assert_refused(starts([0, 5, 4, 9], [0, 4, 4, 13]),
                            "cu_seqlens_q must start at 0, never decrease, and end at 9")
        self.assert_refused(starts([0, 9], [0, 12]), "cu_seqlens_kv must start at 0, never decrease, and end at 13")
        self.assert_refused(starts([0, 1 << 40], [0, 13]),
                            "cu_seqlens_q[1] = 1099511627776 is out of the range of int32")
        self.assert_refused(starts([0, -5, 9], [0, 4, 13]), "cu_seqlens_q[1] = -5 is negative")
        self.assert_refused(good | {"k": good["k"][:, :0], "v": good["v"][:, :0]},
                            "k has shape [1,0,2,16]: no extent of [batch,kv_len,kv_heads,head_dim] may be 0")
        for sink in [np.inf, np.nan]:
            self.assert_refused(good | {"sinks": np.array([0, sink, 1, 2])},
                                f"sinks[1] = {sink}; a sink is finite, or -inf for none")
        self.assert_refused(starts([0, 9], [0, 13], "<f8"), "cu_seqlens_q is F64, expected I32 or I64")
        self.assert_refused(starts([0, 9], [0, 13]) | self.inputs(),
                            "q has a batch of 2, but packed sequences have a batch of 1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
