# SPDX-License-Identifier: MIT
"""What kformer-train learns of pairs of completions, and what [objective] means for other data.

ctest runs this with the program in KFORMER_TRAIN and the sources in KFORMER_SOURCE.
"""

import json
import math
import unittest

import driver_case
from driver_case import h5py, needs_h5py, read_safetensors
from train_case import TINY, SettingsTest

if h5py is not None:
    import numpy as np

PAIRS = driver_case.SMOKE / "preferences.jsonl"
VALIDATION = driver_case.SMOKE / "preferences_validation.jsonl"
FIGURES = ("accuracy", "margin", "chosen_reward", "rejected_reward")


class PreferenceTest(SettingsTest):
    SMALL = f"""schema = 1
kind = "train"
[profile]
machine_limits = false
[weights]
path = "{TINY}"
[tokenizer]
format = "byte"
[objective]
kind = "dpo"
[data]
train = "{PAIRS}"
validation = "{VALIDATION}"
shuffle = true
[batch]
seq_len = 80
micro_batch = 4
sequences = 8
[schedule]
steps = 4
[optimizer]
lr = 1e-3
"""



@needs_h5py
class Preferences(PreferenceTest):
    def test_the_smoke_deck_prefers_what_does_not_shout(self):
        done = self.run_driver(driver_case.SMOKE / "dpo.toml", "--set", "profile.machine_limits=false", "-o", "deck.h5")
        self.assertIn("objective   dpo, sigmoid loss, beta 0.1, label smoothing 0; reference: the model without adapters",
                      done.stdout)
        self.assertRegex(done.stdout, r"evaluation after step 15: loss 0\.\d+  accuracy 1 .* of 6 pairs in ")
        loss = self.column("loss")
        self.assertAlmostEqual(loss[0], math.log(2), delta=1e-6)
        self.assertLess(loss[-1], 0.2)
        self.assertEqual(self.column("accuracy", "evaluations")[-1], 1)
        self.assertGreater(self.column("margin", "evaluations")[-1], 1)
        np.testing.assert_allclose(self.column("margin"), self.column("chosen_reward") - self.column("rejected_reward"),
                                   atol=1e-12)
        self.assertTrue(self.column("tokens").min() > 0)
        self.check_memory()

    def test_the_first_loss_is_that_of_equal_models(self):
        for loss, expected in (("sigmoid", math.log(2)), ("ipo", (1 / (2 * 0.25)) ** 2), ("hinge", 1)):
            for keys in ("", "[adapter]\nrank = 2\n"):
                self.train(keys, f"objective.loss={loss}", "objective.beta=0.25", "schedule.steps=1",
                           "precision.batch_invariant=true")
                # The reference is the model itself, to the bit, or the same without an adapter that is nothing.
                delta = 1e-6 if keys else 0
                self.assertAlmostEqual(self.column("loss")[0], expected, delta=1e-15 + delta, msg=loss)
                self.assertAlmostEqual(self.column("margin")[0], 0, delta=delta)
                self.check_memory()

    def test_training_without_adapters_has_the_first_weights_as_its_reference(self):
        done = self.train("[evaluation]\n", "output.model=out", "precision.batch_invariant=true")
        self.assertIn("reference: the weights before the first step", done.stdout)
        self.assertLess(self.column("loss")[-1], math.log(2))
        margin = self.column("margin")
        self.assertEqual(margin[0], 0)
        self.assertGreater(margin[-1], margin[1])
        self.assertGreater(self.column("margin", "evaluations")[-1], 0)
        base, trained = read_safetensors(TINY / "model.safetensors"), read_safetensors(self.folder / "out/model.safetensors")
        self.assertTrue(any((base[name] != trained[name]).any() for name in base))

    def test_a_training_that_diverges_is_a_failure(self):
        for keys, output in (("", "model"), ("[adapter]\nrank = 2\n", "adapter")):
            with self.subTest(output=output):
                done = self.train(f"[evaluation]\n[checkpoint]\nfolder = 'ck'\n{keys}", "optimizer.lr=1e30",
                                  f"output.{output}=out-{output}", expect=1)
                self.check_failure(done, "the weights are those after step 1 of 4; ")
                self.assertRegex(done.stdout, "evaluation after step 4: loss -?nan of 6 pairs")
                for name in ("loss", "gradient_norm", *FIGURES):
                    self.assertEqual(np.isfinite(self.column(name)).tolist(), [True, False, False, False], name)
                self.assertTrue(any((self.folder / f"out-{output}").glob("*.safetensors")))
                self.assertTrue((self.folder / "ck/step-00000004.safetensors").exists())
        done = self.train("", "weights.path=out-model", expect=1)
        self.check_failure(done, "no step changed the weights; look at the weights that it began with")

    def test_a_reference_lacks_the_adapter_that_goes_on(self):
        note = "note: the reference is the model without the adapter of adapter.path; that of TRL would have a frozen copy of it"
        self.assertNotIn(note, self.train("[adapter]\nrank = 2\n", "output.adapter=first").stdout)
        done = self.train("[adapter]\npath = 'first'\n", "schedule.steps=1")
        self.assertIn(note, done.stdout)
        self.assertNotEqual(self.column("margin")[0], 0)

    def test_micro_batches_change_nothing_but_rounding(self):
        for keys in ("", "[adapter]\nrank = 2\n"):
            runs = []
            for size in (2, 4, 8):
                self.train(keys, f"batch.micro_batch={size}")
                runs.append([self.column(name) for name in ("loss", "gradient_norm", *FIGURES)])
            for run in runs[1:]:
                np.testing.assert_allclose(run, runs[0], rtol=2e-4, atol=1e-5)

    def test_a_resumed_run_gives_the_same_bits(self):
        for keys, output, file in (("", "output.model", "model.safetensors"),
                                   ("[adapter]\nrank = 2\n", "output.adapter", "adapter_model.safetensors")):
            folder = "full" if output == "output.model" else "adapted"
            keys += f"[checkpoint]\nfolder = '{folder}'\nevery_steps = 2\n[evaluation]\nevery_steps = 2\n"
            self.train(keys, f"{output}=whole", "schedule.steps=6", f"checkpoint.folder={folder}-whole")
            columns = {(table, name): self.column(name, table) for table in ("steps", "evaluations")
                       for name in ("loss", *FIGURES)}
            self.train(keys, "schedule.steps=3")
            done = self.train(keys, f"{output}=resumed", "schedule.steps=6", "checkpoint.resume=true",
                              "memory.recompute='layer'")
            self.assertIn("resumed after step 3", done.stdout)
            weights = [(self.folder / name / file).read_bytes() for name in ("whole", "resumed")]
            self.assertEqual(*weights)
            for (table, name), values in columns.items():
                found = self.column(name, table)
                if table == "steps":
                    np.testing.assert_array_equal(found, values, f"{table}/{name}")
                else:  # the end of the part was evaluated, too
                    self.assertEqual(found[-1], values[-1])

    def test_a_resumed_run_has_the_same_loss(self):
        keys = "[checkpoint]\nfolder = 'ck'\n"
        self.train(keys, "schedule.steps=1")
        resume = "checkpoint.resume=true"
        self.assertIn("objective.loss: sigmoid in the checkpoint, hinge in this run",
                      self.train(keys, resume, "objective.loss=hinge", expect=4).stderr)
        self.assertIn("note: this run differs from the one it continues: objective.beta was 0.1 and is 0.2",
                      self.train(keys, resume, "objective.beta=0.2").stdout)

    def test_a_resumed_run_has_the_same_reference(self):
        keys = "[checkpoint]\nfolder = 'ck'\n"
        self.train(keys, "output.model=other")
        self.assertIn("\n  first weights: ",
                      self.train(keys, "checkpoint.resume=true", "weights.path=other", expect=4).stderr)


@needs_h5py
class Data(PreferenceTest):
    def write(self, lines):
        (self.folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def test_pairs_that_are_left_out_are_counted(self):
        pair = {"prompt": "a", "chosen": "b", "rejected": "c"}
        self.write([pair, pair | {"rejected": "b"}, pair | {"prompt": "long " * 30}, pair | {"chosen": "long " * 30}])
        data = ("data.train='pairs.jsonl'", "schedule.steps=1", "batch.sequences=4")
        text = self.train("", *data).stdout
        self.assertIn("data        2 pairs,", text)
        self.assertIn("note: 1 pairs were cut to batch.seq_len = 80", text)
        self.assertIn("note: 1 pairs are left out, too long for batch.seq_len = 80", text)
        self.assertIn("note: 1 pairs are left out, both of their completions are the same", text)
        text = self.train("", *data, "data.truncation=drop").stdout
        self.assertIn("data        1 pairs,", text)
        self.assertIn("note: 2 pairs are left out, too long", text)

    def test_messages_are_written_by_a_chat_style(self):
        self.write([{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": answer}],
                     "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "no"}]}
                    for answer in ("yes", "yea")])
        text = self.train("", "data.train='pairs.jsonl'", "data.chat_style=chatml", "batch.micro_batch=2",
                          "batch.sequences=4").stdout
        self.assertIn("data        2 pairs,", text)

    def test_a_line_that_is_no_pair_is_named(self):
        self.write([{"prompt": "a", "chosen": "b", "rejected": "c"}, {"prompt": "a", "chosen": "b"}])
        self.assertRegex(self.train("", "data.train='pairs.jsonl'", expect=4).stderr, r"pairs\.jsonl', line 2: the line is not a pair")

    def test_half_a_pair_is_refused(self):
        self.assertIn("'batch.micro_batch' = 3 must be even", self.train("", "batch.micro_batch=3", expect=3).stderr)
        self.assertIn("'batch.sequences' = 9 must be even", self.train("", "batch.sequences=9", expect=3).stderr)


@needs_h5py
class Targets(SettingsTest):
    """Which tokens of conversations and tasks are targets."""

    def tokens(self, *settings):
        self.train("[schedule]\nsteps = 1\n", *settings)
        return int(self.column("tokens")[0])

    def test_answers_or_all(self):
        self.SMALL = self.SMALL.split("[data]")[0] + """[data]
format = "synthetic"
length = 4
packing = "pad"
[batch]
seq_len = 24
micro_batch = 8
"""
        answers = self.tokens()
        self.assertEqual(self.tokens("objective.kind=completion"), answers)
        # "bca=bca": the prompt and the sign are as long as the answer and the token that ends it.
        self.assertEqual(self.tokens("objective.kind=next_token"), 2 * answers)

    def test_the_smoke_deck_learns_completions_alone(self):
        done = self.run_driver(driver_case.SMOKE / "completion.toml", "--set", "profile.machine_limits=false", "-o", "deck.h5")
        lines = [json.loads(line) for line in (driver_case.SMOKE / "completions.jsonl").read_text().splitlines()]
        # Bytes, and the token that ends a completion.
        targets = sum(len(line["completion"]) + 1 for line in lines)
        self.assertIn(f"data        {len(lines)} sequences, {targets} target tokens", done.stdout)
        self.assertRegex(done.stdout, r"steps       30 of 8 sequences of 80 tokens, 8 epochs")
        self.assertEqual(self.column("tokens").sum(), 8 * targets)
        loss = self.column("loss")
        self.assertLess(loss[-1], 0.75 * loss[0])
        self.assertLess(self.column("loss", "evaluations")[-1], loss[0] - 1)
        self.assertTrue((self.folder / "completion_adapter/adapter_model.safetensors").exists())

    def test_text_has_no_answers(self):
        self.deck("[schedule]\nsteps = 1\n")
        done = self.run_driver("deck.toml", "--set", "objective.kind=completion", expect=3)
        self.assertIn("trains on answers, but data of format \"text\" have none", done.stderr)


if __name__ == "__main__":
    unittest.main()
