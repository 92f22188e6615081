# SPDX-License-Identifier: MIT
"""The driver kformer-train from outside: command line, decks, and what it learns against NumPy.

ctest runs this with the programs in KFORMER_TRAIN and KFORMER_GENERATE and the sources in KFORMER_SOURCE.
"""

import json
import os
import re
import subprocess
import unittest

import driver_case
from driver_case import h5py, needs_h5py, read_safetensors, texts, words
from train_case import TEXT, TINY, TrainTest

if h5py is not None:
    import numpy as np

    import train_oracle

BEGIN_OF_TEXT = 256  # of the byte tokenizer


class CommandLine(driver_case.CommandLine, TrainTest):
    pass


class Decks(TrainTest):
    def test_a_dry_run_says_what_would_be_trained(self):
        text = self.run_driver(self.SMOKE_DECK, "--dry-run").stdout
        for part in ("model       26848 parameters", "steps       12 of 4 sequences of 32 tokens", "memory      ",
                     "recompute   pointwise: 2 layers pointwise"):
            self.assertIn(part, text)
        self.assertEqual(self.files(), [])

    def test_every_deck_of_the_project_is_good(self):
        decks = driver_case.decks_of_kind("train", "**/*.toml")
        self.assertGreaterEqual(len(decks), 2)
        for deck in decks:
            with self.subTest(deck=deck.name):
                # The files to learn from may be absent.
                words = deck.read_text()
                there = any(word in words for word in ('format = "synthetic"', 'kind = "completion"', 'kind = "dpo"', 'kind = "grpo"'))
                data = [] if there else ["--set", f'data.train="{TEXT}"', "--set", 'data.cache=""']
                if 'path = "../../guesser"' in words:  # what another deck makes
                    data += ["--set", f'weights.path="{TINY}"']
                self.assertIn("recompute   ", self.run_driver(deck, "--dry-run", *data).stdout)
        self.assertEqual(self.files(), [])

    def test_an_unknown_key_is_refused_with_its_place(self):
        text = self.train("micro_bach = 2\n[schedule]\nsteps = 1\n", expect=3).stderr
        self.assertIn("deck.toml:14:1: error: unknown key 'micro_bach' in [batch]", text)
        self.assertEqual(self.files(), ["deck.toml"])

    def test_a_budget_that_does_not_suffice_is_refused_before_anything_is_trained(self):
        for policy in ("pointwise", "auto"):
            done = self.train(f'[schedule]\nsteps = 1\n[memory]\nrecompute = "{policy}"\nbudget = "100KiB"\n', expect=6)
            self.assertRegex(done.stderr, r"training needs .* \(weights .*\) but the limit is 100\.00 KiB")
            self.assertNotIn("step 1/", done.stdout)

    def test_a_place_where_no_model_can_be_is_known_before_the_training(self):
        for place, reason in (("/proc/none/model", "cannot be written"), ("deck.toml/model", "cannot be written")):
            done = self.train(f'[schedule]\nsteps = 1\n[output]\nmodel = "{place}"\n', expect=4)
            self.assertRegex(done.stderr, rf"error: output.model '.*{place}' {reason}: ")
            self.assertEqual(done.stdout, "")
        self.assertEqual(self.files(), ["deck.toml"])

    def test_a_warm_up_that_is_longer_than_the_epochs(self):
        done = self.train("[schedule]\nepochs = 1\nwarmup_steps = 1000\n", expect=1)
        self.assertRegex(done.stderr, r"schedule.warmup_steps = 1000 is more than the \d+ steps that schedule.epochs = 1 makes")

    def test_a_training_without_targets_says_so(self):
        self.SMALL = self.SMALL.replace(f'train = ["{TEXT}"]', 'format = "synthetic"\nlength = 300\npacking = "pad"')
        done = self.train("[schedule]\nsteps = 2\n", expect=1)
        self.assertIn("\n2 of 2 steps were skipped: ", done.stdout)
        self.assertIn("error: no step had a target with a loss", done.stderr)

    @needs_h5py
    def test_a_training_that_diverges_is_a_failure(self):
        deck = '[schedule]\nsteps = 4\n[optimizer]\nlr = 1e30\n[output]\nmodel = "model"\n'
        done = self.train(deck, expect=1)
        self.check_failure(done, "the weights are those after step 1 of 4; ")
        self.assertIn("model.safetensors", [path.name for path in (self.folder / "model").iterdir()])

    def test_a_tokenizer_of_another_size_is_named(self):
        (self.folder / "large").mkdir()
        config = json.loads((TINY / "config.json").read_text()) | {"tie_word_embeddings": True}
        self.assertNotIn("note: the tokenizer", self.train("[schedule]\nsteps = 1\n", "--dry-run").stdout)
        deck = self.deck("[schedule]\nsteps = 1\n[output]\nmodel = \"large\"\n")
        text = deck.read_text().replace(f'[weights]\npath = "{TINY}"', "[model]\n" + "".join(
            f"{key} = {config[key]}\n" for key in ("hidden_size", "num_attention_heads", "intermediate_size",
                                                  "num_hidden_layers")) + "vocab_size = 400\n")
        deck.write_text(text)
        self.run_driver("deck.toml", "--set", "output.overwrite=true")
        self.SMALL = self.SMALL.replace(str(TINY), "large")
        self.assertIn("note: the tokenizer has 258 tokens, but the model of [weights] has 400; use that model's tokenizer",
                      self.train("[schedule]\nsteps = 1\n", "--dry-run").stdout)

    def test_files_that_are_not_read_are_named(self):
        deck = f'[data]\ntrain = "{TEXT}"\nvalidation = "{TEXT}"\ncache = ""\n[schedule]\nsteps = 1\n'
        self.SMALL = self.SMALL.replace(f'[data]\ntrain = ["{TEXT}"]\ncache = ""\n', "")
        self.assertRegex(self.train(deck, "--dry-run").stderr, r"deck.toml:\d+:\d+: warning: 'data.validation' is not read")

    @needs_h5py
    def test_new_weights_have_the_deviation_of_their_scheme(self):
        model = ('[model]\nmodel_type = "qwen2"\nattention_bias = true\nhidden_size = 64\nnum_attention_heads = 4\n'
                 "intermediate_size = 96\nnum_hidden_layers = 3\nvocab_size = 258\n")
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', model)
        models = {}
        for scheme, seed in (("normal", 1), ("scaled", 1), ("normal", 2)):
            self.train(f'[init]\nscheme = "{scheme}"\nstd = 0.3\nseed = {seed}\n[schedule]\nsteps = 1\n[optimizer]\nlr = 0\n'
                       '[output]\nmodel = "new"\n')
            models[scheme, seed] = read_safetensors(self.folder / "new/model.safetensors")
        for (scheme, _), weights in models.items():
            for name, weight in weights.items():
                if weight.ndim == 1:
                    self.assertEqual(set(weight.tolist()), {0.0 if name.endswith("bias") else 1.0}, name)
                    continue
                ends = scheme == "scaled" and name.endswith(("o_proj.weight", "down_proj.weight"))
                expected = 0.3 / np.sqrt(2 * 3) if ends else 0.3
                # Six deviations of what normal numbers have as their mean and as their deviation.
                self.assertLess(abs(weight.std() / expected - 1), 6 / np.sqrt(2 * weight.size), name)
                self.assertLess(abs(weight.mean()), 6 * expected / np.sqrt(weight.size), name)
        matrices = [models["normal", seed][f"model.layers.{layer}.self_attn.q_proj.weight"] for seed in (1, 2) for layer in (0, 1)]
        for i, one in enumerate(matrices):
            self.assertTrue(all((one != other).mean() > 0.9 for other in matrices[:i]))

    def test_a_model_that_is_there_is_kept(self):
        (self.folder / "out").mkdir()
        (self.folder / "out/mine").write_text("mine")
        self.deck('[schedule]\nsteps = 1\n[output]\nmodel = "out"\n')
        self.assertIn("overwrite", self.run_driver("deck.toml", expect=4).stderr)
        self.assertEqual(self.files(), ["deck.toml", "out"])


class SmokeDeck(TrainTest):
    @needs_h5py
    def test_everything_is_written(self):
        done = self.run_driver(self.SMOKE_DECK, "--set", "profile.kernels=true")
        self.assertIn("step 12/12", done.stdout)
        waits = re.search(r"3 checkpoints; the steps waited (\S+) s for them \((\S+) % of their time\), and the end (\S+) s", done.stdout)
        with h5py.File(self.folder / "train.h5") as file:
            seconds, *waited = (file[f"cases/{name}"][0] for name in ("time", "checkpoint_wait", "last_checkpoint_wait"))
            tokens = int(file["cases/tokens"][0])
            self.assertIn(f"\n{tokens} tokens in {seconds:.3g} s; memory ", done.stdout)
            for text, number, digits in zip(waits.groups(), (waited[0], 100 * waited[0] / seconds, waited[1]), (3, 2, 3)):
                self.assertEqual(float(text), float(f"{number:.{digits}g}"))
            self.assertEqual(file.attrs["complete"], 1)
            self.assertEqual(file["steps/step"][()].tolist(), list(range(12)))
            self.assertEqual(set(words(file["steps/skipped"])), {"no"})
            times = file["steps/time"][()]  # without that of the step with a profile
            self.assertEqual((times > 0).tolist(), [step != 1 for step in range(12)])
            # The longest document has 11 tokens, and lengths are multiples of 8.
            self.assertEqual(tokens % 8, 0)
            self.assertLessEqual(tokens, 11 * 4 * 16)
            self.assertGreater(tokens, file["steps/tokens"][()][times > 0].sum())
            self.assertAlmostEqual(file["cases/time"][0], times[times > 0].sum())
            self.assertTrue((file["steps/tokens"][()] > 0).all())
            self.assertEqual(file["evaluations/step"][()].tolist(), [6, 12])
            losses = file["evaluations/loss"][()]
            self.assertLess(losses[1], losses[0])
            self.assertEqual(file["samples/step"][()].tolist(), [6, 12])
            self.assertEqual(texts(file["samples/prompt"]), ["abc="] * 2)
            self.assertEqual(file["cases/peak_bytes"][0], file["cases/predicted_bytes"][0])
            self.assertEqual(words(file["cases/status"]), ["ok"])
            rate, flops, limit, share = (file[f"cases/{name}"][0] for name in
                                         ("token_rate", "flops_per_token", "flop_rate_limit", "share_of_limit"))
            self.assertAlmostEqual(rate * times[times > 0].sum(), tokens)
            self.assertAlmostEqual(share, flops * rate / limit)
            self.assertGreater(share, 0)
            self.assertGreaterEqual(file["cases/limits_change"][0], 0)
            self.check_disturbances(file["cases"])
            self.assertIn("begin", texts(file["memory/timeline/event"]))
            self.assertEqual(file["checkpoints/step"][()].tolist(), [5, 10, 12])
            waited = file["checkpoints/waited"][()]
            self.assertTrue((waited > 0).all())
            self.assertEqual(file["cases/checkpoint_wait"][0], waited[0] + waited[1])
            self.assertGreaterEqual(file["cases/last_checkpoint_wait"][0], waited[2])
            self.assertIn("attention", texts(file["regions/path"]))
            self.assertRegex(done.stdout, r"scratch     \d\S+ .iB of the kernels, beside it\n")
            # Tokens and losses of micro-batches, and three checkpoints of several arrays.
            self.assertGreater(file["memory/transfers/transfers"][()].sum(), 12 * 3)
            size = (self.folder / "train-checkpoints/step-00000012.safetensors").stat().st_size
            self.assertGreater(file["memory/transfers/bytes"][()].sum(), 2.5 * size)
        self.assertEqual(sorted(path.name for path in (self.folder / "train-model").iterdir()),
                         ["config.json", "model.safetensors"])
        checkpoints = sorted(path.name for path in (self.folder / "train-checkpoints").iterdir())
        self.assertEqual(checkpoints, [f"step-{step:08}.safetensors" for step in (5, 10, 12)])

    @needs_h5py
    def test_no_kernel_allocates(self):
        self.run_driver(self.SMOKE_DECK, "--set", "profile.machine_limits=true")
        self.check_scratch(self.folder / "train.h5")

    def test_the_same_deck_gives_the_same_model(self):
        models = []
        for folder in ("a", "b"):
            self.run_driver(self.SMOKE_DECK, "--set", f"output.model={folder}", "--set", f"checkpoint.folder=c{folder}",
                            "--set", "profile.machine_limits=false", "-o", f"{folder}.h5")
            models.append((self.folder / folder / "model.safetensors").read_bytes())
        self.assertEqual(*models)

    @needs_h5py
    def test_texts_do_not_depend_on_the_micro_batch(self):
        written = []
        # Large weights: what the model writes depends on all that it has read.
        for micro_batch in (1, 2, 3):
            self.run_driver(self.SMOKE_DECK, "--set", f"batch.micro_batch={micro_batch}", "--set", "precision.storage=f64",
                            "--set", 'samples.prompts=["abc=", "bc", "cab=b"]', "--set", "samples.max_new_tokens=6",
                            "--set", "init.std=0.5", "--set", "schedule.min_lr=0", "--set", "output.overwrite=true",
                            "--set", f"checkpoint.folder=c{micro_batch}", "--set", "profile.machine_limits=false")
            with h5py.File(self.folder / "train.h5") as file:
                self.assertEqual(texts(file["samples/prompt"]), ["abc=", "bc", "cab=b"] * 2)
                written.append(texts(file["samples/text"]))
        self.assertGreater(len(set(written[0])), 2)
        self.assertEqual(written[1:], written[:1] * 2)

    def test_the_model_generates(self):
        self.run_driver(self.SMOKE_DECK, "--set", "profile.machine_limits=false")
        (self.folder / "say.toml").write_text('schema = 1\nkind = "generate"\n[profile]\nmachine_limits = false\n[weights]\npath = "train-model"\n[tokenizer]\n'
                                              'format = "byte"\n[generate]\nmax_new_tokens = 4\n[[prompt]]\ntext = "abc="\n')
        done = subprocess.run([os.environ["KFORMER_GENERATE"], "say.toml"], cwd=self.folder, capture_output=True, text=True,
                              errors="replace")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("abc="))


@needs_h5py
class Oracle(TrainTest):
    """Text and model of the project in double precision, against NumPy."""

    STEPS = 20

    def setUp(self):
        super().setUp()
        self.config = json.loads((TINY / "config.json").read_text())
        self.start = read_safetensors(TINY / "model.safetensors")
        tokens = [BEGIN_OF_TEXT, *TEXT.read_bytes()]
        self.sequences = train_oracle.stream(tokens, 24)

    def learn(self, batch, schedule, pieces=None, after_step=lambda done, weights: None, **optimizer):
        """The oracle's losses, norms and weights."""
        weights = {name: w.copy() for name, w in self.start.items()}
        pieces = pieces or train_oracle.steps_of(self.sequences, batch)
        losses, norms = train_oracle.train(self.config, weights, pieces, self.STEPS, schedule,
                                           lambda done: after_step(done, weights), **optimizer)
        return losses, norms, weights

    def check_run(self, keys, losses, norms, weights):
        self.train(keys + '[precision]\nstorage = "f64"\n[output]\nmodel = "model"\n', "--set", f"schedule.steps={self.STEPS}")
        np.testing.assert_allclose(self.steps("loss"), losses, rtol=1e-10, atol=0)
        np.testing.assert_allclose(self.steps("gradient_norm"), norms, rtol=1e-10, atol=0)
        trained = read_safetensors(self.folder / "model/model.safetensors")
        self.assertEqual(trained.keys(), weights.keys())
        for name, w in weights.items():
            np.testing.assert_allclose(trained[name], w, rtol=0, atol=1e-10 * np.abs(w).max(), err_msg=name)

    def check(self, keys, *arguments, **options):
        self.check_run(keys, *self.learn(*arguments, **options))

    def test_gradients_of_the_oracle(self):
        generator = np.random.default_rng(1)
        ids, targets = (a[:2, :6].copy() for a in self.sequences)
        targets[0, 2] = -100
        weights = {name: w.copy() for name, w in self.start.items()}
        _, gradients = train_oracle.loss_and_gradients(self.config, weights, ids, targets)
        for name, w in weights.items():
            direction, h = generator.standard_normal(w.shape), 1e-5
            value = []
            for sign in (1, -2):
                w += sign * h * direction
                value.append(train_oracle.loss_and_gradients(self.config, weights, ids, targets)[0])
            w += h * direction
            slope = (value[0] - value[1]) / (2 * h)
            # The second term is h² times a third derivative of the size of the slope, and rounding over h.
            self.assertAlmostEqual(slope, (gradients[name] * direction).sum(), delta=1e-6 * max(1, abs(slope)), msg=name)

    def test_cosine_with_clipping_and_decay(self):
        self.check("micro_batch = 2\nsequences = 4\n"
                   "[optimizer]\nlr = 1e-3\nbetas = [0.9, 0.95]\neps = 1e-8\nweight_decay = 0.1\nmax_norm = 0.5\n"
                   '[schedule]\nkind = "cosine"\nwarmup_steps = 5\nmin_lr = 1e-4\n',
                   4, {"kind": "cosine", "lr": 1e-3, "warmup": 5, "min_lr": 1e-4},
                   betas=(0.9, 0.95), weight_decay=0.1, max_norm=0.5)
        self.assertTrue((self.steps("gradient_norm") > 0.5).all(), "no step was clipped")

    def test_a_warm_up_of_all_steps(self):
        expected = self.learn(2, {"kind": "constant", "lr": 1e-3, "warmup": self.STEPS})
        for kind in ("constant", "linear", "cosine", "wsd"):
            self.check_run(f'sequences = 2\n[optimizer]\nlr = 1e-3\n[schedule]\nkind = "{kind}"\nwarmup_steps = {self.STEPS}\n',
                           *expected)

    def test_a_decay_of_few_steps(self):
        self.STEPS = 3
        self.check('sequences = 2\n[optimizer]\nlr = 1e-3\n[schedule]\nkind = "wsd"\n', 2, {"kind": "wsd", "lr": 1e-3})

    def write_texts(self, *more):
        """Three files, none of which fills its last sequence, and their tokens."""
        texts = [b"A file is a document that begins with its own token, and goes on where it ends. ", b"Short one.",
                 "Äußerst kurz, and again some more of the same.".encode()]
        for number, text in enumerate(texts):
            (self.folder / f"{number}.txt").write_bytes(text)
        files = ", ".join(f'"{number}.txt"' for number in range(len(texts)))
        self.SMALL = self.SMALL.replace(f'train = ["{TEXT}"]', "\n".join([f"train = [{files}]", *more]))
        return [[BEGIN_OF_TEXT, *text] for text in texts]

    def test_several_files_and_epochs(self):
        documents = self.write_texts()
        sequences = train_oracle.stream(sum(documents, []), 24)
        self.assertLess(2 * len(sequences[0]), 3 * self.STEPS)
        self.check("micro_batch = 2\nsequences = 3\n[optimizer]\nlr = 1e-3\n[schedule]\nwarmup_steps = 2\n", 3,
                   {"kind": "constant", "lr": 1e-3, "warmup": 2}, pieces=train_oracle.steps_of(sequences, 3))

    def test_every_epoch_has_every_sequence_in_another_order(self):
        ids, targets = train_oracle.stream(sum(self.write_texts("shuffle = true"), []), 24)
        self.train('[optimizer]\nlr = 0\n[precision]\nstorage = "f64"\n', "--set", f"schedule.steps={3 * len(ids)}")
        expected = sorted(train_oracle.loss_and_gradients(self.config, self.start, ids[i:i + 1], targets[i:i + 1])[0]
                          for i in range(len(ids)))
        epochs = self.steps("loss").reshape(3, -1)
        for losses in epochs:
            np.testing.assert_allclose(sorted(losses), expected, rtol=1e-12)
        self.assertGreater(len({tuple(losses) for losses in epochs}), 1)

    def test_evaluations(self):
        (self.folder / "judge.txt").write_bytes(b"What is not learnt. " * 9)
        ids, targets = train_oracle.stream([BEGIN_OF_TEXT, *b"What is not learnt. " * 9], 24)
        self.SMALL = self.SMALL.replace(f'train = ["{TEXT}"]', f'train = ["{TEXT}"]\nvalidation = "judge.txt"')
        losses = {}

        def evaluate(done, weights):
            if done in (7, 14, self.STEPS):
                losses[done] = train_oracle.loss_and_gradients(self.config, weights, ids, targets)[0]
        self.check("micro_batch = 3\nsequences = 4\n[evaluation]\nevery_steps = 7\n[optimizer]\nlr = 1e-3\n[schedule]\n", 4,
                   {"kind": "constant", "lr": 1e-3}, after_step=evaluate)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(file["evaluations/step"][()].tolist(), list(losses))
            np.testing.assert_allclose(file["evaluations/loss"][()], list(losses.values()), rtol=1e-10)

    def test_packed_documents_learn_for_many_steps(self):
        documents = self.write_texts('packing = "best_fit"')
        pieces = [piece for document in documents for piece in train_oracle.pieces_of(document, 24)]
        targets = sum(len(document) - 1 for document in documents)
        plan = self.train("[schedule]\nsteps = 1\n", "--dry-run").stdout
        count = int(re.search(r"data +(\d+) sequences", plan)[1])  # all of them are in each step
        self.check(f"micro_batch = 2\nsequences = {count}\n[optimizer]\nlr = 1e-3\nweight_decay = 0.1\n[schedule]\n", count,
                   {"kind": "constant", "lr": 1e-3}, pieces=lambda step: pieces, weight_decay=0.1)
        self.assertEqual(self.steps("tokens").tolist(), [targets] * self.STEPS)

    def test_any_split_into_micro_batches(self):
        expected = self.learn(5, {"kind": "constant", "lr": 1e-3, "warmup": 2})
        for micro_batch in (1, 3, 5):
            self.check_run(f"micro_batch = {micro_batch}\nsequences = 5\n[optimizer]\nlr = 1e-3\n[schedule]\nwarmup_steps = 2\n",
                           *expected)

    def test_biases_and_a_head_of_its_own(self):
        """Biases do not decay; the head does, and it is not the embedding."""
        weights = f'[weights]\npath = "{TINY}"\n'
        model = ('[model]\nmodel_type = "qwen2"\nattention_bias = true\ntie_word_embeddings = false\nhidden_size = 32\n'
                 "num_attention_heads = 4\nnum_key_value_heads = 2\nintermediate_size = 48\nnum_hidden_layers = 2\nvocab_size = 258\n")
        small = self.SMALL
        self.SMALL = small.replace(weights, model)
        self.train('[schedule]\nsteps = 4\n[optimizer]\nlr = 1e-2\n[precision]\nstorage = "f64"\n[output]\nmodel = "qwen"\n')
        self.SMALL = small.replace(str(TINY), "qwen")
        self.start = read_safetensors(self.folder / "qwen/model.safetensors")
        self.config = json.loads((self.folder / "qwen/config.json").read_text())
        self.assertGreater(np.abs(self.start["model.layers.0.self_attn.v_proj.bias"]).min(), 0)
        self.assertIn("lm_head.weight", self.start)
        self.check("sequences = 2\n[optimizer]\nlr = 1e-2\nweight_decay = 0.5\n[schedule]\n", 2,
                   {"kind": "constant", "lr": 1e-2}, weight_decay=0.5)

    def test_linear_and_wsd(self):
        for kind, more, decay in (("linear", "", 0), ("wsd", "decay_steps = 7\n", 7)):
            self.check(f'sequences = 2\n[optimizer]\nlr = 2e-3\n[schedule]\nkind = "{kind}"\nmin_lr = 1e-5\n{more}',
                       2, {"kind": kind, "lr": 2e-3, "min_lr": 1e-5, "decay": decay})

    def test_every_policy_of_recomputation_gives_the_same_bits(self):
        files = set()
        for policy in ("none", "pointwise", "layer", "nested", "auto"):
            self.train(f'[schedule]\nsteps = 3\n[memory]\nrecompute = "{policy}"\n[output]\nmodel = "model"\n')
            files.add((self.folder / "model/model.safetensors").read_bytes())
        self.assertEqual(len(files), 1)

    def test_packed_documents_learn_as_if_they_were_alone(self):
        """Two texts in one sequence, against NumPy on each of them."""
        documents = [b"attention does not cross", b"a start"]
        for number, text in enumerate(documents):
            (self.folder / f"{number}.txt").write_bytes(text)
        self.SMALL = self.SMALL.replace(f'train = ["{TEXT}"]', 'train = ["0.txt", "1.txt"]\npacking = "best_fit"')
        self.SMALL = self.SMALL.replace("seq_len = 24", "seq_len = 40")
        self.train('[schedule]\nsteps = 1\n[precision]\nstorage = "f64"\n')
        total = targets = 0
        for text in documents:
            tokens = np.array([[BEGIN_OF_TEXT, *text]])
            loss, _ = train_oracle.loss_and_gradients(self.config, self.start, tokens[:, :-1], tokens[:, 1:])
            total, targets = total + loss * len(text), targets + len(text)
        self.assertEqual(self.steps("tokens").tolist(), [targets])
        np.testing.assert_allclose(self.steps("loss"), [total / targets], rtol=1e-10)

    def test_lower_precisions_learn_the_same(self):
        keys = "micro_batch = 4\n[optimizer]\nlr = 1e-3\n"
        last = {}
        for storage in ("f64", "f32", "bf16", "f16"):
            self.train(keys + f'[precision]\nstorage = "{storage}"\n', "--set", "schedule.steps=30")
            loss = self.steps("loss")
            self.assertLess(loss[-1], loss[0] - 0.5, storage)
            last[storage] = loss
        # Rounding of weights and activations to 8 bits of significand, over 30 steps.
        np.testing.assert_allclose(last["f32"], last["f64"], rtol=1e-4)
        np.testing.assert_allclose(last["bf16"], last["f64"], rtol=2 ** -5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
