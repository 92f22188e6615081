# SPDX-License-Identifier: MIT
"""What kformer-train learns of completions that the model samples, and of their rewards.

ctest runs this with the programs in KFORMER_TRAIN and KFORMER_QUANTIZE, and the sources in KFORMER_SOURCE.
"""

import json
import sys
import unittest

import driver_case
from driver_case import h5py, needs_h5py, read_safetensors
from train_case import TINY, SettingsTest, set_options

if h5py is not None:
    import numpy as np

    import llama_oracle

PROMPTS = driver_case.SMOKE / "prompts.jsonl"


class PolicyTest(SettingsTest):
    SMALL = f"""schema = 1
kind = "train"
[profile]
machine_limits = false
[weights]
path = "{TINY}"
[tokenizer]
format = "byte"
[objective]
kind = "grpo"
[policy]
group_size = 4
max_new_tokens = 6
[data]
train = "{PROMPTS}"
shuffle = true
[batch]
seq_len = 24
micro_batch = 3
sequences = 16
[schedule]
steps = 4
[optimizer]
lr = 1e-2
"""
    LETTERS = "[[reward]]\nkind = 'regex'\npattern = '[a-k]'\n"

    def refused(self, keys, *settings):
        return self.train(keys, *settings, expect=3).stderr


@needs_h5py
class Policies(PolicyTest):
    def test_the_smoke_deck_learns_from_rewards(self):
        done = self.run_driver(driver_case.SMOKE / "grpo.toml", "--set", "profile.machine_limits=false", "-o", "deck.h5")
        self.assertIn("objective   grpo, dapo loss, groups of 8; rewards: 1 x regex", done.stdout)
        self.assertRegex(done.stdout, r"evaluation after step 30: loss -\S+  completion_tokens \S+  reward \S+  "
                                      r"truncated \S+ of 8 completions in ")
        reward = self.column("reward")
        self.assertLess(reward[0], 0.4)
        self.assertGreater(reward[-5:].mean(), 0.9)
        np.testing.assert_array_equal(self.column("loss", "evaluations"), -self.column("reward", "evaluations"))
        self.assertGreater(self.column("reward", "evaluations")[-1], self.column("reward", "evaluations")[0])
        # The sampler and the trainer agree to the bit in every step.
        self.assertEqual(self.column("unequal_logp").tolist(), [0] * 30)
        self.assertEqual(self.column("ratio").tolist(), [1] * 30)
        self.check_memory()

    def test_so_it_does_on_a_base_that_stays_quantised(self):
        for kind in ("q8_0", "nf4"):
            with self.subTest(kind=kind):
                self.run_driver(driver_case.SMOKE / "grpo.toml", *set_options("profile.machine_limits=false", f"precision.weights={kind}"),
                                "-o", "deck.h5")
                reward = self.column("reward")
                self.assertLess(reward[0], 0.4)
                self.assertGreater(reward[-5:].mean(), 0.9)
                self.assertEqual(self.column("unequal_logp").tolist(), [0] * 30)
                self.assertEqual(self.column("ratio").tolist(), [1] * 30)
                self.check_memory()

    def test_sampler_and_trainer_agree_to_the_bit(self):
        for storage in ("f32", "bf16", "f16", "f64"):
            for keys in ("", "[adapter]\nrank = 3\ntargets = ['q', 'v', 'down']\n",
                         "[adapter]\nrank = 3\ntargets = ['q', 'v', 'up', 'down']\ndora = true\n"):
                self.train(self.LETTERS + keys, f"precision.storage={storage}", "schedule.steps=3")
                self.assertEqual(self.column("unequal_logp").tolist(), [0, 0, 0], storage + keys)
                self.assertEqual(self.column("ratio").tolist(), [1, 1, 1])
                self.check_memory()

    def check_agreement(self, adapter, *settings):
        done = self.train(f"{self.LETTERS}[adapter]\nrank = 3\n{adapter}", *settings, "schedule.steps=3")
        self.assertIn("quantised   14 of 14 projections stay so: 14 ", done.stdout)
        self.assertEqual(self.column("unequal_logp").tolist(), [0, 0, 0], settings)
        self.assertEqual(self.column("ratio").tolist(), [1, 1, 1])
        self.assertGreater(self.column("gradient_norm").max(), 0)
        self.check_memory()

    def test_so_they_do_on_a_base_that_stays_quantised(self):
        for kind in ("q8_0", "q4_0", "q4_1", "nf4"):
            for storage, adapter in (("f32", ""), ("bf16", "targets = ['q', 'v', 'down']\n"),
                                     ("f16", "targets = ['q', 'v', 'up', 'down']\ndora = true\n"), ("f64", "dora = true\n")):
                with self.subTest(kind=kind, storage=storage):
                    self.check_agreement(adapter, f"precision.weights={kind}", f"precision.storage={storage}")

    def test_so_they_do_on_a_quantised_checkpoint(self):
        for kind in ("q8_0", "q4_0", "q4_1", "tq2_0", "tq1_0", "nf4"):
            with self.subTest(kind=kind):
                self.check_agreement("", f"weights.path='{self.pack(TINY, kind, kind)}'")

    def test_without_batch_invariance_they_differ(self):
        done = self.train(self.LETTERS, "precision.batch_invariant=false", "precision.storage=bf16")
        self.assertIn("the log-probabilities of the sampler differ from those of the trainer", done.stderr + done.stdout)
        self.assertGreater(self.column("unequal_logp").max(), 0)

    def test_other_distributions_are_a_warning(self):
        done = self.train(self.LETTERS, "policy.temperature=0.5", "policy.top_k=7", "schedule.steps=1")
        for key, warns in (("temperature", True), ("top_k", True), ("top_p", False)):
            self.assertEqual(f"'policy.{key}': completions are drawn from another distribution" in done.stderr + done.stdout, warns)
        self.assertEqual(self.column("ratio").tolist(), [1])

    def test_a_distribution_of_one_token_gives_equal_completions(self):
        for setting in ("policy.temperature=1e-4", "policy.top_k=1", "policy.top_p=1e-9"):
            self.train(self.LETTERS, setting, "schedule.steps=1")
            self.assertEqual(self.column("equal_groups").tolist(), [1], setting)
        self.train(self.LETTERS, "schedule.steps=1")
        self.assertLess(self.column("equal_groups")[0], 1)

    def test_completions_without_a_reward_teach_nothing(self):
        (self.folder / "judge.py").write_text("import sys\nfor line in sys.stdin:\n    print('{\"reward\": null}', flush=True)\n")
        judge = f"[evaluation]\n[[reward]]\nkind = 'program'\ncommand = ['{sys.executable}', 'judge.py']\n"
        done = self.train(judge, f"data.validation='{PROMPTS}'", "schedule.steps=1", expect=1)
        self.assertIn("error: no completion of any step had a reward", done.stderr)
        self.assertIn("evaluation after step 1: loss nan", done.stdout)

    def test_a_training_that_diverges_is_a_failure(self):
        keys = f"[checkpoint]\nfolder = 'ck'\n[evaluation]\n[data]\nvalidation = '{PROMPTS}'\n"
        self.SMALL = self.SMALL.replace("[data]\n", keys)
        # The sampler finds it in the second step, and with several updates the trainer does.
        for keys, settings in (("", ()), ("", ("policy.updates=2",)), ("", ("policy.beta=0.2",)),
                               ("[adapter]\nrank = 3\n", ("policy.beta=0.2",))):
            with self.subTest(keys=keys, settings=settings):
                done = self.train(self.LETTERS + keys, "optimizer.lr=1e30", "output.model=model", *settings, expect=1)
                self.check_failure(done, "the weights are those after step 1 of 4; ")
                self.assertRegex(done.stdout, "evaluation after step 4: loss -?nan")
                for name in ("loss", "gradient_norm"):
                    self.assertEqual(np.isfinite(self.column(name)).tolist(), [True, False, False, False])
                self.assertTrue(np.isnan(self.column("reward")[2:]).all())
                self.assertTrue((self.folder / "model/model.safetensors").exists())
                self.assertEqual([path.name for path in (self.folder / "ck").iterdir()], ["step-00000004.safetensors"])

    def test_weights_that_are_no_numbers_are_named(self):
        self.train(self.LETTERS, "optimizer.lr=1e30", "output.model=broken", expect=1)
        done = self.train(self.LETTERS, "weights.path=broken", expect=1)
        self.check_failure(done, "no step changed the weights; look at the weights that it began with")

    def test_at_a_learning_rate_of_zero_ratios_are_exactly_one(self):
        self.train(self.LETTERS, "optimizer.lr=0", "policy.updates=2")
        self.assertEqual(self.column("ratio").tolist(), [1] * 4)
        self.assertEqual(self.column("reward")[0], self.column("reward")[1])
        for kind in ("q8_0", "nf4"):
            self.train(self.LETTERS + "[adapter]\nrank = 3\n", "optimizer.lr=0", "policy.updates=2", f"precision.weights={kind}")
            self.assertEqual(self.column("ratio").tolist(), [1] * 4)

    def test_several_updates_learn_from_the_same_completions(self):
        self.train(self.LETTERS, "policy.updates=2", "policy.epsilon_low=0.01", "policy.epsilon_high=0.01",
                   "schedule.steps=6")
        ratio, reward, unequal = self.column("ratio"), self.column("reward"), self.column("unequal_logp")
        self.assertEqual(ratio[::2].tolist(), [1] * 3)
        self.assertTrue((ratio[1::2] != 1).any())
        np.testing.assert_array_equal(reward[::2], reward[1::2])
        self.assertEqual(unequal[::2].tolist(), [0] * 3)
        self.assertTrue(np.isnan(unequal[1::2]).all())
        self.assertGreater((self.column("clip_low") + self.column("clip_high")).max(), 0)

    def test_operations_count_sampling(self):
        flops = []
        # The same completions in all steps: operations depend on their lengths.
        for setting, steps in (("policy.updates=1", 1), ("policy.updates=2", 2), ("policy.beta=0.2", 1)):
            self.train(self.LETTERS, setting, f"schedule.steps={steps}")
            flops.append(self.column("flops_per_token", "cases")[0])
        self.assertAlmostEqual(flops[1] / flops[0], (1 + 1 / 6) / (1 + 1 / 3))
        self.assertAlmostEqual(flops[2] / flops[0], (1 + 2 / 3) / (1 + 1 / 3))
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertIn("with grpo that of sampling, over policy.updates", file["cases"].attrs["flops_formula"])
            self.assertIn("grpo", file["steps/loss"].attrs["long_name"])

    def test_several_updates_are_of_one_epoch(self):
        self.SMALL = self.SMALL.replace("steps = 4\n", "epochs = 1\n")
        for updates, steps in ((1, 2), (3, 6)):
            self.assertIn(f"steps       {steps} of 16 sequences of 24 tokens, 1 epochs, ",
                          self.train(self.LETTERS, f"policy.updates={updates}", arguments=["--dry-run"]).stdout)

    def test_completions_do_not_depend_on_how_they_are_computed(self):
        runs = []
        for settings in ((), ("policy.sample_batch=4",), ("policy.sample_batch=1",), ("batch.micro_batch=16",)):
            self.train(self.LETTERS, *settings)
            runs.append({name: self.column(name) for name in ("reward", "completion_tokens", "loss", "gradient_norm")})
        for run in runs[1:3]:
            for name, values in run.items():
                np.testing.assert_array_equal(values, runs[0][name], name)
        # Another micro-batch sums gradients in another order.
        np.testing.assert_allclose(runs[3]["gradient_norm"][0], runs[0]["gradient_norm"][0], rtol=1e-5)
        self.assertEqual(runs[3]["reward"][0], runs[0]["reward"][0])

    def test_each_completion_of_an_evaluation_has_draws_of_its_own(self):
        """However many are evaluated at a time; no step of the training has them."""
        (self.folder / "judge.py").write_text(
            "import json, sys\n"
            "for line in sys.stdin:\n"
            "    print(json.dumps({'reward': sum(json.loads(line)['completion'].encode()) % 97}), flush=True)\n")
        (self.folder / "same.jsonl").write_text('{"prompt": "a"}\n' * 16)
        judge = f"[evaluation]\n[[reward]]\nkind = 'program'\ncommand = ['{sys.executable}', 'judge.py']\n"
        judged = []
        for size in (1, 3, 16):
            self.train(judge, "data.train='same.jsonl'", "data.validation='same.jsonl'", f"batch.micro_batch={size}", "optimizer.lr=0",
                       "schedule.steps=1")
            judged.append(self.column("reward", "evaluations")[0])
        self.assertEqual(judged[1:], judged[:1] * 2)
        self.assertNotEqual(judged[0], self.column("reward")[0])

    def test_a_reference_is_the_model_without_its_adapter(self):
        keys = self.LETTERS + "[adapter]\nrank = 3\n"
        done = self.train(keys, "policy.beta=0.2", "schedule.steps=8")
        self.assertIn("beta 0.2; reference: the model without adapters", done.stdout)
        kl = self.column("kl")
        self.assertLess(abs(kl[0]), 1e-10)
        self.assertGreater(kl[-1], 1e-6)
        self.train(keys, "schedule.steps=2", "output.adapter=first")
        self.assertEqual(self.column("kl").tolist(), [0, 0])
        going_on = self.LETTERS + "[adapter]\npath = 'first'\n"
        for beta, noted in ((0.2, True), (0, False)):
            done = self.train(going_on, f"policy.beta={beta}", "schedule.steps=1")
            self.assertEqual("note: the reference is the model without the adapter of adapter.path; " in done.stdout, noted)

    def test_without_an_adapter_it_is_the_model_before_the_first_step(self):
        for settings in ((), ("precision.storage=bf16", "precision.batch_invariant=false"),
                         ("precision.storage=bf16", "optimizer.master=none"), ("precision.storage=f16", "memory.recompute='layer'"),
                         ("precision.storage=f64", "batch.micro_batch=16")):
            with self.subTest(settings=settings):
                done = self.train(self.LETTERS, *settings, "policy.beta=0.2", "schedule.steps=8")
                self.assertIn("beta 0.2; reference: the weights before the first step; ", done.stdout)
                self.assertEqual(self.column("kl")[0], 0)
                self.assertGreater(self.column("kl")[-1], 1e-6)
                if "precision.batch_invariant=false" not in settings:
                    self.assertEqual(self.column("unequal_logp").tolist(), [0] * 8)
                self.check_memory()
                # The bits are those of the model, so that weights that stay are no departure.
                self.train(self.LETTERS, *settings, "policy.beta=0.2", "policy.updates=2", "optimizer.lr=0")
                self.assertEqual(self.column("kl").tolist(), [0] * 4)

    def test_the_divergence_is_that_from_the_first_weights(self):
        """After two steps, of the most probable completions, which NumPy finds out. They teach nothing: a group has one reward."""
        self.SMALL = self.SMALL.replace("shuffle = true\n", "")
        keys = self.LETTERS + "[checkpoint]\nfolder = 'ck'\n"
        settings = ("policy.beta=0.5", "precision.storage=f64")
        self.train(keys, *settings, "schedule.steps=2", "output.model=now")
        self.train(keys, *settings, "schedule.steps=3", "checkpoint.resume=true", "policy.top_k=1")
        config = json.loads((TINY / "config.json").read_text())
        first, now = (read_safetensors(folder / "model.safetensors") for folder in (TINY, self.folder / "now"))
        terms = []
        for line in PROMPTS.read_text().splitlines()[:4]:
            ids = [config["bos_token_id"], *json.loads(line)["prompt"].encode()]
            begin = len(ids)
            while len(ids) < begin + 6 and ids[-1] != config["eos_token_id"]:
                ids.append(int(llama_oracle.log_probabilities(config, now, ids)[-1].argmax()))
            of_first, of_now = (llama_oracle.log_probabilities(config, weights, ids)[np.arange(begin, len(ids)) - 1, ids[begin:]]
                                for weights in (first, now))
            terms.extend(np.expm1(of_first - of_now) - (of_first - of_now))
        self.assertEqual(self.column("equal_groups")[2], 1)
        self.assertEqual(self.column("completion_tokens")[2], len(terms) / 4)
        self.assertGreater(np.mean(terms), 1e-4)
        self.assertAlmostEqual(self.column("kl")[2] / np.mean(terms), 1, delta=1e-8)
        self.assertAlmostEqual(self.column("loss")[2] / self.column("kl")[2], 0.5, delta=1e-12)

    def test_every_loss_learns(self):
        for loss in ("grpo", "dr_grpo", "dapo", "bnpo"):
            for scale in ("group", "batch", "none"):
                self.train(self.LETTERS, f"policy.loss={loss}", f"policy.scale_rewards={scale}", "schedule.steps=15")
                reward = self.column("reward")
                self.assertGreater(reward[-4:].mean(), reward[:4].mean(), (loss, scale))

    def test_rewards_add_up(self):
        self.train(self.LETTERS + "[[reward]]\nkind = 'length'\ntarget = 5\nweight = 2\n"
                   "[[reward]]\nkind = 'exact_match'\nweight = -1\n")
        each = [self.column(f"reward_{name}") for name in ("1_regex", "2_length", "3_exact_match")]
        np.testing.assert_allclose(self.column("reward"), each[0] + 2 * each[1] - each[2], atol=1e-12)
        self.assertGreater(each[1].max(), 0)

    def test_a_program_gives_rewards(self):
        (self.folder / "judge.py").write_text(
            "import json, sys\n"
            "for line in sys.stdin:\n"
            "    asked = json.loads(line)\n"
            "    assert asked['answer'] in (4, 5, 6, 7), asked\n"
            "    print(json.dumps({'reward': 0.5}), flush=True)\n")
        self.train(f"[[reward]]\nkind = 'program'\ncommand = ['{sys.executable}', 'judge.py']\n")
        self.assertEqual(self.column("reward").tolist(), [0.5] * 4)
        # All rewards are equal: nothing is learnt.
        self.assertEqual(self.column("equal_groups").tolist(), [1] * 4)
        self.assertEqual(self.column("gradient_norm").tolist(), [0] * 4)

    def test_evaluations_are_of_what_a_program_can_judge(self):
        (self.folder / "judge.py").write_text(
            "import json, sys\n"
            "for line in sys.stdin:\n"
            "    answer = json.loads(line)['answer']\n"
            "    print(json.dumps({'reward': None if answer == 9 else answer}), flush=True)\n")
        judge = f"[evaluation]\n[[reward]]\nkind = 'program'\ncommand = ['{sys.executable}', 'judge.py']\n"
        lines = [json.dumps({"prompt": "a", "answer": answer}) for answer in (1, 9, 0, 0, 9, 9, 2, 9)]
        (self.folder / "validation.jsonl").write_text("\n".join(lines) + "\n")
        runs = []
        for size in (1, 2, 4, 8):
            done = self.train(judge, "data.validation='validation.jsonl'", f"batch.micro_batch={size}", "schedule.steps=1")
            self.assertIn(" of 4 completions in ", done.stdout)
            runs.append([self.column(name, "evaluations")[0] for name in ("reward", "loss", "completion_tokens", "truncated")])
        for run in runs:
            self.assertAlmostEqual(run[0], 3 / 4)
            self.assertAlmostEqual(run[1], -3 / 4)
            np.testing.assert_allclose(run, runs[0], rtol=1e-12)
        self.train(judge + self.LETTERS, "data.validation='validation.jsonl'", "batch.micro_batch=1", "schedule.steps=1")
        self.assertAlmostEqual(self.column("reward_1_program", "evaluations")[0], 3 / 4)

    RANDOM = ("[model]\nhidden_size = 32\nnum_attention_heads = 4\nvocab_size = 258\nintermediate_size = 64\n"
              "num_hidden_layers = 1\n[init]\nstd = 0.2\n")

    def test_a_resumed_run_gives_the_same_bits(self):
        keys = self.LETTERS + "[checkpoint]\nfolder = 'ck'\nevery_steps = 2\n"
        weights = f'[weights]\npath = "{TINY}"\n'
        for start, settings in ((weights, ()), (weights, ("policy.beta=0.2", "precision.storage=bf16")),
                                (self.RANDOM, ("policy.beta=0.2",))):
            self.SMALL = PolicyTest.SMALL.replace(weights, start)
            settings += ("policy.updates=2",)
            with self.subTest(start=start, settings=settings):
                self.train(keys, *settings, "output.model=whole", "checkpoint.folder=ck-whole", "schedule.steps=6")
                columns = {name: self.column(name) for name in ("loss", "reward", "ratio", "unequal_logp", "kl")}
                self.assertEqual(columns["kl"][-1] > 0, len(settings) > 1)
                self.train(keys, *settings, "schedule.steps=2")
                done = self.train(keys, *settings, "output.model=resumed", "checkpoint.resume=true",
                                  "schedule.steps=6", "policy.sample_batch=8", "memory.recompute='layer'")
                self.assertIn("resumed after step 2", done.stdout)
                for name, values in columns.items():
                    np.testing.assert_array_equal(self.column(name), values, name)
                whole, resumed = ((self.folder / name / "model.safetensors").read_bytes() for name in ("whole", "resumed"))
                self.assertEqual(whole, resumed)

    def test_a_resumed_run_has_the_same_reference(self):
        keys, beta, resume = self.LETTERS + "[checkpoint]\nfolder = 'ck'\n", "policy.beta=0.2", "checkpoint.resume=true"
        self.train(keys, beta, "output.model=other")
        self.assertRegex(self.train(keys, beta, resume, "weights.path=other", expect=4).stderr,
                         r"\n  first weights: [0-9a-f]{32} in the checkpoint, [0-9a-f]{32} in this run\n")
        self.assertIn("note: this run differs from the one it continues: policy.beta was 0.2 and is 0\n",
                      self.train(keys, resume).stdout)
        # Without a reference a checkpoint does not say what the run began with.
        self.train(keys, "checkpoint.folder=plain")
        self.assertRegex(self.train(keys, beta, resume, "checkpoint.folder=plain", expect=4).stderr,
                         r"\n  first weights: nothing in the checkpoint, [0-9a-f]{32} in this run\n")

    def test_a_resumed_run_says_which_rewards_are_others(self):
        keys, resume = "[checkpoint]\nfolder = 'ck'\n", "checkpoint.resume=true"
        note = "note: this run differs from the one it continues: "
        self.train(self.LETTERS + keys)
        self.assertIn(f"{note}reward[0].pattern was [a-k] and is [l-z]\n",
                      self.train(self.LETTERS.replace("[a-k]", "[l-z]") + keys, resume).stdout)
        self.assertIn(f"{note}rewards was 1 and is 2\n",
                      self.train(self.LETTERS + "[[reward]]\nkind = 'length'\ntarget = 5\n" + keys, resume).stdout)
        self.assertNotIn(note, self.train(self.LETTERS + keys, resume).stdout)

    def test_truncated_completions_may_not_count(self):
        self.train(self.LETTERS, "policy.mask_truncated=true", "policy.max_new_tokens=1", "schedule.steps=8")
        # A random model rarely ends a text by itself.
        truncated, norm = self.column("truncated"), self.column("gradient_norm")
        self.assertGreater((truncated == 1).sum(), 0)
        self.assertEqual(set(norm[truncated == 1].tolist()), {0})


class Refusals(PolicyTest):
    def test_more_steps_than_can_be_counted(self):
        (self.folder / "prompts.jsonl").write_text('{"prompt": "a"}\n' * 20000)
        self.SMALL = self.SMALL.replace("steps = 4\n", "epochs = 1000000000000\n").replace(str(PROMPTS), "prompts.jsonl")
        self.assertIn("batches with 'policy.updates' = 65536 are more steps than can be counted",
                      self.refused(self.LETTERS, "policy.updates=65536"))

    def test_keys_that_contradict_each_other(self):
        for keys, setting, sentence in (
            ("", "policy.group_size=4", "missing [[reward]]: 'objective.kind' = \"grpo\" learns from at least one reward"),
            (self.LETTERS, "policy.group_size=5",
             "'batch.sequences' = 16 must be a multiple of policy.group_size = 5: a step has whole groups"),
            (self.LETTERS, "policy.sample_batch=5", "'policy.sample_batch' = 5 must divide batch.sequences = 16"),
            (self.LETTERS, "policy.updates=3",
             "'schedule.steps' = 4 must be a multiple of policy.updates = 3: completions are not saved"),
            (self.LETTERS + "[early_stop]\npatience = 1\n[evaluation]\nevery_steps = 3\n", "policy.updates=2",
             "'evaluation.every_steps' = 3 must be a multiple of policy.updates = 2: completions are not saved"),
            (self.LETTERS + "[checkpoint]\nfolder = 'ck'\nevery_steps = 3\n", "policy.updates=2",
             "'checkpoint.every_steps' = 3 must be a multiple of policy.updates = 2: completions are not saved"),
            (self.LETTERS, "policy.top_p=0", "'policy.top_p' must be more than 0"),
            (self.LETTERS, "policy.max_new_tokens=24",
             "'policy.max_new_tokens' = 24 leaves no room for a prompt in batch.seq_len = 24"),
            (self.LETTERS, "policy.temperature=0", "'policy.temperature' must be more than 0"),
            (self.LETTERS, "policy.delta=1.1", "'policy.delta' = 1.1 must be more than 1 + policy.epsilon_high = 1.2"),
            (self.LETTERS + "[adapter]\ndropout = 0.1\n", "run.seed=1",
             "'adapter.dropout' would make the model that learns another one than the model that samples; remove it"),
            (self.LETTERS, "data.format=chat", "'data.format' is not for prompts"),
            (self.LETTERS, "objective.kind=next_token", "[policy] is for 'objective.kind' = \"grpo\", not \"next_token\""),
            (self.LETTERS, "objective.beta=0.1", "'objective.beta' is for 'objective.kind' = \"dpo\", not \"grpo\""),
        ):
            self.assertIn(sentence, self.refused(keys, setting))

    def test_dropout_of_an_adapter_that_goes_on(self):
        self.train(self.LETTERS + "[adapter]\n", "output.adapter=out", "schedule.steps=1")
        config = self.folder / "out/adapter_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"lora_dropout": 0.25}))
        keys = self.LETTERS + "[adapter]\npath = 'out'\n"
        self.assertIn("the adapter of adapter.path has a dropout of 0.25, which would make the model that learns another one "
                      "than the model that samples; set adapter.dropout = 0", self.train(keys, expect=1).stderr)
        self.train(keys, "adapter.dropout=0.0", "schedule.steps=1")

    def test_rewards_are_checked_before_any_work(self):
        for reward, said in (("kind = 'exact_match'\nfield = 'solution'\n", 'no field "solution"'),
                             ("kind = 'regex'\npattern = '['\n", "is not a regular expression"),
                             ("kind = 'program'\ncommand = './no_judge'\n", "cannot start './no_judge'")):
            for arguments in ((), ("--dry-run",)):
                with self.subTest(said=said, arguments=arguments):
                    self.assertIn(said, self.train("[[reward]]\n" + reward, expect=1, arguments=arguments).stderr)
        self.assertIn("'reward[0].target' is required for kind = \"length\"",
                      self.train("[[reward]]\nkind = 'length'\n", expect=3).stderr)


if __name__ == "__main__":
    unittest.main()
