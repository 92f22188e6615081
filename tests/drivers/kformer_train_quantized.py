# SPDX-License-Identifier: MIT
"""Adapters that kformer-train trains on weights that stay quantised (QLoRA).

ctest runs this with the programs in KFORMER_TRAIN, KFORMER_QUANTIZE, KFORMER_MEMORY and KFORMER_GENERATE and the sources in
KFORMER_SOURCE.
"""

import os
import subprocess
import unittest

import driver_case
from driver_case import h5py, needs_h5py, read_safetensors, texts
from train_case import TEXT, TINY, TrainTest, set_options

if h5py is not None:
    import numpy as np
    from packed_weights import CONFIG, random_model, read_packed, write_gguf, write_model

BITSANDBYTES = driver_case.SOURCE / "tests/data/nf4_case/llama"
QLORA_CASE = driver_case.SOURCE / "tests/data/qlora_case"
FORMATS = ("q8_0", "q4_0", "q4_1", "tq2_0", "tq1_0", "nf4")
PROJECTIONS = 14  # of TINY
ADAPTER = "[adapter]\nrank = 3\nalpha = 6\n"


class QuantizedTest(TrainTest):
    SMALL = TrainTest.SMALL + "[schedule]\nsteps = 4\n[optimizer]\nlr = 1e-2\n"

    def run_deck(self, name, keys, *settings, base=TINY, expect=0, arguments=()):
        text = self.SMALL.replace(str(TINY), str(base)) + keys
        (self.folder / f"{name}.toml").write_text(text)
        return self.run_driver(f"{name}.toml", *set_options(*settings), *arguments, expect=expect)

    def losses(self, name):
        return self.steps("loss", f"{name}.h5")

    def case(self, name):
        """Peak and forecast in all, and the peak by class."""
        with h5py.File(self.folder / f"{name}.h5") as file:
            case = file["cases"]
            return (int(case["peak_bytes"][0]), int(case["predicted_bytes"][0]),
                    file["memory/classes/peak_bytes"][0].tolist())

    def adapter(self, folder):
        return read_safetensors(self.folder / folder / "adapter_model.safetensors")

    def check_like_dense(self, base, keys=ADAPTER, projections=PROJECTIONS):
        """A training on a base equals that on the same weights expanded, in double but for the order of sums."""
        settings = ("precision.storage='f64'",)
        done = self.run_deck("kept", keys, *settings, "output.adapter=kept", base=base)
        self.assertIn(f"quantised   {projections} of {projections} projections stay so: {projections} ", done.stdout)
        dense = self.run_deck("dense", keys, *settings, "output.adapter=dense", "weights.keep_quantized=false", base=base)
        self.assertNotIn("quantised ", dense.stdout)
        np.testing.assert_allclose(self.losses("kept"), self.losses("dense"), rtol=1e-11)
        kept, expanded = self.adapter("kept"), self.adapter("dense")
        self.assertEqual(kept.keys(), expanded.keys())
        for name, tensor in kept.items():
            np.testing.assert_allclose(tensor, expanded[name], atol=1e-8 * np.abs(tensor).max(), rtol=0)
        peak, predicted, classes = self.case("kept")
        self.assertEqual(peak, predicted)
        dense_peak, _, dense_classes = self.case("dense")
        self.assertLess(classes[0], dense_classes[0])
        self.assertLess(peak, dense_peak)


@needs_h5py
class Bases(QuantizedTest):
    def test_packed_checkpoints(self):
        for kind in FORMATS:
            with self.subTest(format=kind):
                self.check_like_dense(self.pack(TINY, kind, kind))

    def test_magnitudes(self):
        for kind in ("q8_0", "tq2_0", "nf4"):
            with self.subTest(format=kind):
                self.check_like_dense(self.pack(TINY, kind, kind), ADAPTER + "dora = true\ndropout = 0.2\n")

    def test_a_gguf_file(self):
        config = CONFIG | {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 258}
        write_model(self.folder / "model", random_model(config=config), **config)
        for kind in ("q8_0", "q4_0", "q4_1"):
            with self.subTest(format=kind):
                write_gguf(self.folder / f"{kind}.gguf", read_packed(self.pack("model", kind, kind)), config)
                self.check_like_dense(self.folder / f"{kind}.gguf")

    def test_a_folder_of_bitsandbytes(self):
        np.save(self.folder / "tokens.npy", np.random.default_rng(3).integers(0, 32, 400).astype("<i4"))
        self.SMALL = self.SMALL.replace(str(TEXT), "tokens.npy").replace("[data]\n", "[data]\nformat = 'tokens'\n")
        self.check_like_dense(BITSANDBYTES, projections=7)

    def test_a_training_of_bitsandbytes_and_peft(self):
        """The losses and adapters that they have, in float32: scripts/make_qlora_case."""
        expected = read_safetensors(QLORA_CASE / "expected.safetensors")
        np.save(self.folder / "tokens.npy", expected["ids"].astype("<i4"))
        self.SMALL = self.SMALL.replace(str(TEXT), "tokens.npy").replace("[data]\n", "[data]\nformat = 'tokens'\n")
        self.run_deck("case", f"[adapter]\npath = '{QLORA_CASE}'\n", "output.adapter=out",
                      f"schedule.steps={len(expected['losses'])}", base=BITSANDBYTES)
        np.testing.assert_allclose(self.losses("case"), expected["losses"], rtol=5e-6)
        trained = self.adapter("out")
        self.assertEqual(len(trained), 14)
        for name, tensor in trained.items():
            reference = expected["trained." + name.removeprefix("base_model.model.")]
            np.testing.assert_allclose(tensor, reference, rtol=0, atol=5e-6 * np.abs(reference).max())

    def test_a_dense_base_is_quantised_as_kformer_quantize_does(self):
        for kind in ("q8_0", "q4_0", "q4_1", "nf4"):
            with self.subTest(format=kind):
                self.run_deck("packed", ADAPTER, "output.adapter=packed", base=self.pack(TINY, kind, kind))
                self.run_deck("loaded", ADAPTER, "output.adapter=loaded", f"precision.weights='{kind}'")
                np.testing.assert_array_equal(self.losses("packed"), self.losses("loaded"))
                for name, tensor in self.adapter("packed").items():
                    np.testing.assert_array_equal(tensor, self.adapter("loaded")[name])

    def test_every_storage_type_learns(self):
        for storage in ("f32", "bf16", "f16"):
            with self.subTest(storage=storage):
                settings = (f"precision.storage='{storage}'", "schedule.steps=8")
                self.run_deck("kept", ADAPTER, "precision.weights='nf4'", *settings)
                losses = self.losses("kept")
                self.assertLess(losses[-1], losses[0])
                peak, predicted, _ = self.case("kept")
                self.assertEqual(peak, predicted)

    def test_frozen_maps_without_an_adapter_stay_quantised(self):
        self.check_like_dense(self.pack(TINY, "nf4", "nf4"), "[adapter]\ntargets = ['q', 'down']\nrank = 2\n")

    def test_random_weights(self):
        model = "[model]\nmodel_type = 'llama'\nhidden_size = 48\nintermediate_size = 80\nnum_attention_heads = 4\n" \
            "num_key_value_heads = 2\nnum_hidden_layers = 2\nvocab_size = 258\n"
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', model)
        self.run_deck("random", ADAPTER, "precision.weights='q8_0'", "schedule.steps=8")
        losses = self.losses("random")
        self.assertLess(losses[-1], losses[0])
        peak, predicted, _ = self.case("random")
        self.assertEqual(peak, predicted)


@needs_h5py
class Runs(QuantizedTest):
    def test_a_resumed_run_gives_the_same_bits(self):
        keys = ADAPTER + "[checkpoint]\nfolder = 'ck'\nevery_steps = 2\n"
        nf4 = "precision.weights='nf4'"
        self.run_deck("whole", keys, nf4, "output.adapter=whole", "schedule.steps=6", "checkpoint.folder=other")
        self.run_deck("first", keys, nf4, "schedule.steps=3")
        resume = ("schedule.steps=6", "checkpoint.resume=true", "output.adapter=resumed")
        done = self.run_deck("second", keys, nf4, *resume)
        self.assertIn("resumed after step 3", done.stdout)
        files = [(self.folder / name / "adapter_model.safetensors").read_bytes() for name in ("whole", "resumed")]
        self.assertEqual(*files)
        done = self.run_deck("second", keys, *resume, expect=4)
        self.assertIn("quantised weights: 14 NF4 in the checkpoint, nothing in this run", done.stderr)

    def test_kformer_memory_says_what_it_takes(self):
        plan = f"schema = 1\nkind = 'memory_plan'\n[weights]\npath = '{TINY}'\n{ADAPTER}[sweep]\npurpose = 'train'\n" \
            "weights = ['same', 'q8_0', 'nf4']\nbatch = 1\ncontext = 24\n"
        (self.folder / "plan.toml").write_text(plan)
        subprocess.run([os.environ["KFORMER_MEMORY"], "plan.toml"], cwd=self.folder, capture_output=True, check=True)
        with h5py.File(self.folder / "plan.h5") as file:
            planned = file["cases"]["predicted_bytes"][()].tolist()
        ran = []
        for kind in ("same", "q8_0", "nf4"):
            self.run_deck("run", ADAPTER, f"precision.weights='{kind}'")
            ran.append(self.case("run")[0])
        self.assertEqual(planned, ran)
        self.assertGreater(ran[0], ran[1])
        self.assertGreater(ran[1], ran[2])

    def test_the_adapter_is_one_of_the_expanded_model(self):
        """kformer-generate adds it to the same weights, expanded: the logits are those of the learner's samples."""
        base = self.pack(TINY, "nf4", "nf4")
        self.run_deck("kept", ADAPTER, "output.adapter=out", base=base)
        (self.folder / "generate.toml").write_text(
            f"schema = 1\nkind = 'generate'\n[profile]\nmachine_limits = false\n[output]\noverwrite = true\n[weights]\npath = '{base}'\nkeep_quantized = false\n"
            f"[adapter]\npath = '{self.folder}/out'\n[tokenizer]\nformat = 'byte'\n[generate]\nmax_new_tokens = 4\n"
            "[[prompt]]\ntext = 'The software'\n")
        done = subprocess.run([os.environ["KFORMER_GENERATE"], "generate.toml"], cwd=self.folder, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_smoke_deck(self):
        self.run_driver(driver_case.SMOKE / "qlora.toml", "--set", "profile.machine_limits=false", "-o", "smoke.h5")
        loss = self.steps("loss", "smoke.h5")
        self.assertLess(loss[-1], loss[0])


class Faults(QuantizedTest):
    def test_decks(self):
        for keys, settings, sentence in (
                ("", ("precision.weights='nf4'",),
                 "'precision.weights' = \"nf4\" cannot be trained: quantised weights do not learn; add [adapter]"),
                ("[adapter]\n", ("precision.weights='nf4'", "output.model=merged"),
                 "'output.model' merges the adapter into weights that stay quantised, 'precision.weights' = \"nf4\"; set "
                 "'output.adapter', which kformer-generate adds to the dense weights"),
                ("[adapter]\n", ("precision.weights='tq1_0'",),
                 "'precision.weights' = \"tq1_0\": dense weights do not become ternary when they are loaded; kformer-quantize "
                 "makes a checkpoint of ternary ones, which \"same\" keeps")):
            with self.subTest(keys=keys, settings=settings):
                self.assertIn(sentence, self.run_deck("deck", keys, *settings, expect=3).stderr)

    @needs_h5py
    def test_bases(self):
        base = self.pack(TINY, "q8_0", "q8_0")
        done = self.run_deck("deck", ADAPTER, "output.model=merged", base=base, expect=1)
        self.assertIn("kformer-train: output.model merges the adapter into the weights, but these stay quantised (14 Q8_0); "
                      "set output.adapter, which kformer-generate adds to expanded weights, or weights.keep_quantized = false",
                      done.stderr)
        done = self.run_deck("deck", ADAPTER, "precision.weights='nf4'", base=base, expect=1)
        self.assertIn("kformer-train: precision.weights = \"nf4\", but model.layers.0.self_attn.q_proj.weight is quantised to "
                      "Q8_0 already; set \"same\", or name a checkpoint with dense weights", done.stderr)
        # Expanded, it can be merged, and all of it can learn.
        self.run_deck("deck", ADAPTER, "output.model=merged", "weights.keep_quantized=false", base=base)
        self.run_deck("deck", "", base=base)

    @needs_h5py
    def test_ranks_that_would_share_blocks(self):
        """Every plan says so, of weights that stay quantised and of those that are expanded."""
        other = ", or take another number of ranks"
        for kind, matrix, remedy in (("q8_0", "self_attn.o_proj", other), ("tq2_0", "mlp.down_proj", other),
                                     ("nf4", "mlp.down_proj", "")):
            base = self.pack(TINY, kind, kind)
            sentence = (f"'parallel.tensor' = 2 ranks would share blocks of model.layers.0.{matrix}.weight, which is quantised "
                        f"({kind.upper()}) in the checkpoint of 'weights.path'; expand it first{remedy}")
            for keep in ("true", "false"):
                with self.subTest(kind=kind, keep=keep):
                    done = self.run_deck("deck", ADAPTER, f"weights.keep_quantized={keep}", "parallel.tensor=2", base=base,
                                         expect=1, arguments=("--dry-run",))
                    self.assertIn(f"error: kformer-train: {sentence}\n", done.stderr)
                    done = self.run_other("KFORMER_GENERATE", 1, (
                        f"kind = 'generate'\n[weights]\npath = '{base}'\nkeep_quantized = {keep}\n[tokenizer]\nformat = 'byte'\n"
                        "[parallel]\ntensor = 2\n[[prompt]]\ntext = 'The software'\n"), "--dry-run")
                    self.assertIn(f"error: kformer-generate: {sentence}\n", done.stderr)
                    self.run_other("KFORMER_MEMORY", 7, (
                        f"kind = 'memory_plan'\n[weights]\npath = '{base}'\nkeep_quantized = {keep}\n{ADAPTER}[sweep]\n"
                        "purpose = ['train', 'generate']\nbatch = 1\ncontext = 24\n[parallel]\ntensor = 2\n"), "--overwrite")
                    with h5py.File(self.folder / "other.h5") as file:
                        self.assertEqual(texts(file["cases/message"]), [f"kformer-memory: {sentence}"] * 2)

    def run_other(self, program, expect, deck, *arguments):
        (self.folder / "other.toml").write_text(f"schema = 1\n{deck}")
        done = subprocess.run([os.environ[program], "other.toml", *arguments], cwd=self.folder, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done


if __name__ == "__main__":
    unittest.main()
