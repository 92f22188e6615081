# SPDX-License-Identifier: MIT
"""Adapters that kformer-train trains: what they contain, how they go on, and what is merged into a model.

ctest runs this with the programs in KFORMER_TRAIN and KFORMER_GENERATE and the sources in KFORMER_SOURCE.
"""

import json
import os
import shutil
import subprocess
import unittest

import driver_case
from driver_case import h5py, needs_h5py, read_safetensors
from train_case import TINY, SettingsTest

if h5py is not None:
    import numpy as np

ADAPTER_CASE = driver_case.SOURCE / "tests/data/adapter_case"
DORA_CASE = driver_case.SOURCE / "tests/data/dora_case"
MAPS = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}


class AdapterTest(SettingsTest):
    SMALL = SettingsTest.SMALL + "[schedule]\nsteps = 4\n[optimizer]\nlr = 1e-2\n"

    def config(self, folder="out"):
        return json.loads((self.folder / folder / "adapter_config.json").read_text())

    def tensors(self, path):
        return read_safetensors(self.folder / path)


@needs_h5py
class Adapters(AdapterTest):
    def test_files_are_those_of_peft(self):
        done = self.train("[adapter]\ntargets = ['q', 'down']\nrank = 3\nalpha = 6\n[adapter.ranks]\ndown = 5\n",
                          "output.adapter=out")
        self.assertIn("adapter     2336 parameters, rank x scale: q_proj 3 x 2, down_proj 5 x 1.2", done.stdout)
        config = self.config()
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 3, 6))
        self.assertEqual(config["target_modules"], ["q_proj", "down_proj"])
        self.assertEqual(config["rank_pattern"], {"down_proj": 5})
        self.assertEqual(config["base_model_name_or_path"], str(TINY))
        shapes = {name: list(t.shape) for name, t in self.tensors("out/adapter_model.safetensors").items()}
        prefix = "base_model.model.model.layers."
        self.assertEqual(shapes, {f"{prefix}{layer}.{MAPS[name]}.lora_{matrix}.weight": shape
                                  for layer in (0, 1)
                                  for name, matrix, shape in (("q", "A", [3, 48]), ("q", "B", [48, 3]),
                                                              ("down", "A", [5, 128]), ("down", "B", [48, 5]))})
        self.check_memory()

    def test_an_adapter_starts_as_nothing_and_learns(self):
        self.train("")
        plain = self.steps("loss")
        self.train("[adapter]\n", "output.adapter=out")
        losses = self.steps("loss")
        self.assertAlmostEqual(losses[0], plain[0], delta=1e-5)
        self.assertLess(losses[-1], losses[0])
        before = self.tensors("out/adapter_model.safetensors")
        self.train("[adapter]\nseed = 2\n", "output.adapter=out")
        after = self.tensors("out/adapter_model.safetensors")
        self.assertTrue(all((before[name] != after[name]).any() for name in before))

    def test_the_merged_model(self):
        self.train("[adapter]\ntargets = ['k', 'o', 'up']\nrank = 4\nrank_stabilized = true\n", "output.adapter=out",
                   "output.model=merged")
        base, merged = read_safetensors(TINY / "model.safetensors"), self.tensors("merged/model.safetensors")
        adapter = self.tensors("out/adapter_model.safetensors")
        self.assertEqual(base.keys(), merged.keys())
        changed = {MAPS[name] for name in ("k", "o", "up")}
        for name, weight in base.items():
            module = name.removeprefix("model.layers.0.").removeprefix("model.layers.1.").removesuffix(".weight")
            expected = weight.astype(np.float64)
            if module in changed:
                a, b = (adapter[f"base_model.model.{name.removesuffix('.weight')}.lora_{m}.weight"].astype(np.float64)
                        for m in "AB")
                expected = expected + 32 / 4**0.5 * (b @ a)
                self.assertGreater(np.abs(b).max(), 0)
            np.testing.assert_allclose(merged[name], expected, rtol=0, atol=1e-6)

    def merged(self):
        with h5py.File(self.folder / "deck.h5") as file:
            return dict(file["merged"].attrs) if "merged" in file else None

    def test_what_merging_changes(self):
        found = {}
        for storage in ("f32", "bf16"):
            done = self.train(f"[adapter]\n[precision]\nstorage = '{storage}'\n", "output.model=merged", "batch.micro_batch=2",
                              "batch.sequences=3")
            self.assertRegex(done.stdout, r"(?m)^merged against weights \+ adapter, 24 tokens: logits differ by at most ")
            self.check_memory()
            found[storage] = self.merged()
            self.assertEqual(found[storage]["tokens"], 24)
            self.assertLess(0, found[storage]["rms_logit_err"])
            self.assertLessEqual(found[storage]["rms_logit_err"], found[storage]["max_logit_err"])
            self.assertLess(found[storage]["kl_divergence"], found[storage]["max_logit_err"]**2)
            self.assertLess(found[storage]["kl_divergence"], found[storage]["max_kl_divergence"])
        self.assertLess(found["f32"]["max_logit_err"], 1e-3)
        self.assertLess(found["f32"]["rms_logit_err"], found["bf16"]["rms_logit_err"] / 100)
        self.assertLess(found["bf16"]["max_logit_err"], 1)
        self.train("[adapter]\n", "output.adapter=out")
        self.assertIsNone(self.merged())
        self.train("", "output.model=merged")
        self.assertIsNone(self.merged())

    def test_what_is_compared_are_logits_of_weights_and_adapter(self):
        # An adapter that is nothing before the merge would be nothing after it, too.
        self.train("[adapter]\n[precision]\nstorage = 'f64'\n", "output.adapter=out", "output.model=merged")
        exact = self.merged()
        self.assertLess(0, exact["max_logit_err"])
        self.assertLess(exact["max_logit_err"], 1e-11)

    def test_a_text_to_compare_ends_with_its_targets(self):
        (self.folder / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}, '
                                                '{"role": "assistant", "content": "b"}]}\n' * 8)
        self.train("[adapter]\n", f"data.train='{self.folder}/chat.jsonl'", "data.format='chat'", "data.packing='pad'",
                   "batch.seq_len=200", "data.chat_style='chatml'", "output.model=merged", "schedule.steps=1")
        self.assertLess(self.merged()["tokens"], 64)
        self.train("[adapter]\n", "batch.seq_len=200", "output.model=merged", "schedule.steps=1")
        self.assertEqual(self.merged()["tokens"], 64)

    def test_training_goes_on_from_an_adapter(self):
        self.train("[adapter]\nrank = 2\n", "output.adapter=out", "schedule.steps=8")
        first = self.steps("loss")[0]
        self.train(f"[adapter]\npath = '{self.folder}/out'\n", "output.adapter=second", "schedule.steps=1")
        # Of the same sequence.
        self.assertLess(self.steps("loss")[0], first - 0.1)
        self.assertEqual(self.config("second")["r"], 2)

    def generate(self, weights, adapter="", expect=0):
        path = f"[adapter]\npath = '{adapter}'\n" if adapter else ""
        (self.folder / "generate.toml").write_text(
            f"schema = 1\nkind = 'generate'\n[profile]\nmachine_limits = false\n[output]\noverwrite = true\n[weights]\npath = '{weights}'\n{path}"
            "[tokenizer]\nformat = 'byte'\n[generate]\nmax_new_tokens = 8\nlast_logits = true\nstop_at_eos = false\n"
            "[check]\nreference = 'recompute'\n[[prompt]]\ntext = 'The software'\n")
        done = subprocess.run([os.environ["KFORMER_GENERATE"], "generate.toml"], cwd=self.folder, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stderr)
        if expect:
            return done.stderr
        with h5py.File(self.folder / "generate.h5") as file:
            self.assertEqual(file["cases"]["peak_bytes"][()].tolist(), file["cases"]["predicted_bytes"][()].tolist())
            self.assertEqual(f"merged into the weights: adapter '{adapter}', rank x scale: q_proj " in done.stderr, bool(adapter))
            return file["tokens"]["id"][()] if "id" in file["tokens"] else None, file["logits"]["last_logits"][()]

    def test_generation_with_an_adapter_is_that_of_the_merged_model(self):
        self.train("[adapter]\nrank = 4\n", "output.adapter=out", "output.model=merged")
        tokens, logits = self.generate(TINY, self.folder / "out")
        merged_tokens, merged_logits = self.generate(self.folder / "merged")
        np.testing.assert_array_equal(tokens, merged_tokens)
        np.testing.assert_array_equal(logits, merged_logits)
        self.assertGreater(np.abs(logits - self.generate(TINY)[1]).max(), 0.1)
        self.assertIn("No such file", self.generate(TINY, self.folder / "nothing", expect=4))

    def test_a_file_for_llama_cpp(self):
        self.train("[adapter]\nrank = 4\nalpha = 8\n", "output.adapter=out", "output.adapter_gguf=true")
        folder, file = (self.generate(TINY, self.folder / "out" / name) for name in ("", "adapter.gguf"))
        np.testing.assert_array_equal(folder[0], file[0])
        np.testing.assert_array_equal(folder[1], file[1])
        # It would be that of another adapter.
        self.train("[adapter]\nrank = 4\n", "output.adapter=out", "output.overwrite=true")
        self.assertFalse((self.folder / "out/adapter.gguf").exists())
        done = self.train("[adapter]\n", "output.adapter_gguf=true", expect=3)
        self.assertIn("'output.adapter_gguf' needs 'output.adapter', the folder of the file", done.stderr)

    def test_the_smoke_deck(self):
        self.run_driver(driver_case.SMOKE / "adapter.toml", "--set", "profile.machine_limits=false", "-o", "smoke.h5")
        self.assertEqual(self.config("adapter")["rank_pattern"], {"down_proj": 8})
        loss = self.steps("loss", "smoke.h5")
        self.assertLess(loss[-1], loss[0])

    def test_an_adapter_of_peft(self):
        done = self.train(f"[adapter]\npath = '{ADAPTER_CASE}'\n", "output.adapter=out", arguments=[])
        self.assertIn("q_proj 2 x 3.536", done.stdout)
        self.assertEqual(self.config()["alpha_pattern"], {"k_proj": 3, "o_proj": 3, "gate_proj": 3, "up_proj": 3,
                                                          "down_proj": 3, "v_proj": 1})

    def test_a_resumed_run_gives_the_same_bits(self):
        keys = "[adapter]\nlearning_rate_ratio = 4\ndropout = 0.2\n[checkpoint]\nfolder = 'ck'\nevery_steps = 2\n"
        self.train(keys, "output.adapter=out", "schedule.steps=6", "checkpoint.folder=other")
        self.train(keys, "schedule.steps=3")
        done = self.train(keys, "output.adapter=resumed", "schedule.steps=6", "checkpoint.resume=true",
                          "memory.recompute='layer'")
        self.assertIn("resumed after step 3", done.stdout)
        weights = [(self.folder / name / "adapter_model.safetensors").read_bytes() for name in ("out", "resumed")]
        self.assertEqual(*weights)
        self.train(keys + "[adapter.ranks]\nq = 3\n", "checkpoint.resume=true", "schedule.steps=6", expect=4)

    def test_a_resumed_run_has_the_same_base(self):
        keys, resume = "[adapter]\n[checkpoint]\nfolder = 'ck'\n", "checkpoint.resume=true"
        self.train("", "output.model=other", "schedule.steps=1")
        shutil.copytree(TINY, self.folder / "moved")
        self.train(keys)
        self.assertRegex(self.train(keys, resume, "weights.path=other", expect=4).stderr,
                         r"\n  first weights: [0-9a-f]{32} in the checkpoint, [0-9a-f]{32} in this run\n")
        self.assertNotIn("differs", self.train(keys, resume, "weights.path=moved").stdout)

    def test_a_resumed_run_has_the_same_random_base(self):
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', "[model]\nhidden_size = 32\nnum_attention_heads = 4\n"
                                        "vocab_size = 258\nintermediate_size = 64\nnum_hidden_layers = 1\n")
        keys = "[adapter]\n[checkpoint]\nfolder = 'ck'\n"
        self.train(keys, "init.seed=1")
        self.assertIn("\n  first weights: scaled, std 0.02, seed 1 in the checkpoint, scaled, std 0.02, seed 2 in this run\n",
                      self.train(keys, "init.seed=2", "checkpoint.resume=true", expect=4).stderr)

    def test_dropout(self):
        keys = "[adapter]\n"

        def losses(*settings):
            self.train(keys, *settings)
            return self.steps("loss")

        plain, dropped = losses(), losses("adapter.dropout=0.5")
        self.assertEqual(plain.tolist(), losses("adapter.dropout=0.0").tolist())
        # B starts as 0, and then the bits matter.
        self.assertEqual(plain[0], dropped[0])
        self.assertNotEqual(plain[-1], dropped[-1])
        self.assertNotEqual(dropped[-1], losses("adapter.dropout=0.5", "adapter.seed=2")[-1])
        self.assertEqual(dropped.tolist(), losses("adapter.dropout=0.5", "memory.recompute='layer'").tolist())
        # Each token of a step has the bits of its row, however the step is cut.
        whole = losses("adapter.dropout=0.5", "batch.micro_batch=2", "batch.sequences=2")
        cut = losses("adapter.dropout=0.5", "batch.micro_batch=1", "batch.sequences=2")
        np.testing.assert_allclose(whole, cut, rtol=1e-5)

    def test_dropout_of_a_folder(self):
        self.train("[adapter]\ndropout = 0.25\n", "output.adapter=out")
        self.assertEqual(self.config()["lora_dropout"], 0.25)
        path = f"[adapter]\npath = '{self.folder}/out'\n"
        self.assertIn(", dropout 0.25", self.train(path, "output.adapter=second").stdout)
        self.assertEqual(self.config("second")["lora_dropout"], 0.25)
        self.train(path + "dropout = 0.0\n", "output.adapter=second")
        self.assertEqual(self.config("second")["lora_dropout"], 0)

    def test_magnitudes(self):
        self.train("")
        plain = self.steps("loss")
        done = self.train("[adapter]\ndora = true\nrank = 2\n", "output.adapter=out", "output.model=merged")
        self.assertIn("down_proj 2 x 16, magnitudes", done.stdout)
        losses = self.steps("loss")
        self.assertAlmostEqual(losses[0], plain[0], delta=1e-5)
        self.assertLess(losses[-1], losses[0])
        self.assertTrue(self.config()["use_dora"])
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(file["cases"]["peak_bytes"][0].tolist(), file["cases"]["predicted_bytes"][0].tolist())
        base, merged = read_safetensors(TINY / "model.safetensors"), self.tensors("merged/model.safetensors")
        adapter = self.tensors("out/adapter_model.safetensors")
        for layer in (0, 1):
            for module in MAPS.values():
                name = f"model.layers.{layer}.{module}"
                a, b, m = (adapter[f"base_model.model.{name}.lora_{x}"].astype(np.float64)
                           for x in ("A.weight", "B.weight", "magnitude_vector"))
                rows = base[f"{name}.weight"].astype(np.float64)
                self.assertGreater(np.abs(m - np.linalg.norm(rows, axis=1)).max(), 1e-3)
                rows = rows + 16 * (b @ a)
                rows *= (m / np.linalg.norm(rows, axis=1))[:, None]
                np.testing.assert_allclose(merged[f"{name}.weight"], rows, rtol=0, atol=2e-6)
        tokens, logits = self.generate(TINY, self.folder / "out")
        merged_tokens, merged_logits = self.generate(self.folder / "merged")
        np.testing.assert_array_equal(tokens, merged_tokens)
        np.testing.assert_array_equal(logits, merged_logits)
        self.train(f"[adapter]\npath = '{DORA_CASE}'\n", "output.adapter=out", "adapter.dropout=0.1")
        self.assertTrue(self.config()["use_dora"])

    def test_magnitudes_are_resumed(self):
        keys = "[adapter]\ndora = true\ndropout = 0.2\n[checkpoint]\nfolder = 'ck'\nevery_steps = 2\n"
        self.train(keys, "output.adapter=out", "schedule.steps=6", "checkpoint.folder=other")
        self.train(keys, "schedule.steps=3")
        self.train(keys, "output.adapter=resumed", "schedule.steps=6", "checkpoint.resume=true", "memory.recompute='layer'")
        weights = [(self.folder / name / "adapter_model.safetensors").read_bytes() for name in ("out", "resumed")]
        self.assertEqual(*weights)
        self.train(keys.replace("true", "false"), "checkpoint.resume=true", "schedule.steps=6", expect=4)

    def test_frozen_weights_take_no_memory_of_training(self):
        def peak(keys):
            self.train(keys)
            with h5py.File(self.folder / "deck.h5") as file:
                return int(file["cases"]["peak_bytes"][0])

        # Gradients and two states of 61,776 weights, against those of 2,784 numbers.
        adapter = peak("[adapter]\nrank = 1\n")
        self.assertLess(adapter, peak("") - 0.9 * 12 * 61776)


class Faults(AdapterTest):
    def fault(self, keys, *settings, expect=3):
        return self.train(keys, *settings, expect=expect).stderr

    def test_decks(self):
        for keys, sentence in (
                ("[adapter]\ntargets = ['q', 'x']\n", "adapter.targets[1]"),
                ("[adapter]\ntargets = ['all', 'q']\n", "'adapter.targets' names \"all\" and others; \"all\" stands alone"),
                ("[adapter]\nrank = 0\n", "adapter.rank"),
                ("[adapter]\ndropout = 1\n", "'adapter.dropout' must be below 1, got 1"),
                ("[adapter]\ntargets = ['q']\n[adapter.ranks]\nv = 2\n",
                 "'adapter.ranks.v' is set, but 'adapter.targets' lacks \"v\""),
                ("[adapter]\ndora = true\n[output]\nadapter = 'out'\nadapter_gguf = true\n",
                 "'output.adapter_gguf' cannot hold the magnitudes of 'adapter.dora'; remove one of them"),
                (f"[adapter]\npath = '{ADAPTER_CASE}'\nrank = 2\n",
                 "'adapter.rank' is for a new adapter, but 'adapter.path' names one; remove it")):
            self.assertIn(sentence, self.fault(keys))
        self.assertIn("'output.adapter' needs [adapter]", self.fault("", "output.adapter=out"))

    def test_an_adapter_of_another_model(self):
        folder = self.folder / "other"
        folder.mkdir()
        for file in ADAPTER_CASE.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        text = (folder / "adapter_config.json").read_text()
        (folder / "adapter_config.json").write_text(text.replace('"lora_bias": false', '"lora_bias": true'))
        self.assertIn("lora_bias is not supported; only false is", self.fault("[adapter]\npath = 'other'\n", expect=4))
        self.assertIn("No such file", self.fault("[adapter]\npath = 'nothing'\n", expect=4))

    def test_a_folder_that_is_in_use(self):
        (self.folder / "out").mkdir()
        (self.folder / "out/notes.txt").write_text("mine")
        self.deck("[adapter]\n")
        done = self.run_driver("deck.toml", "--set", "output.adapter=out", expect=4)
        self.assertIn("output.adapter '", done.stderr)
        self.assertIn("exists and is not empty; output.overwrite = true replaces an adapter there", done.stderr)
        self.train("[adapter]\n", "output.adapter=out")
        self.assertEqual((self.folder / "out/notes.txt").read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
