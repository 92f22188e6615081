# SPDX-License-Identifier: MIT
"""The driver kformer-train from outside: command line, decks, what it learns against NumPy, and what crashes leave.

ctest runs this with the programs in KFORMER_TRAIN and KFORMER_GENERATE and the sources in KFORMER_SOURCE. KFORMER_KILLS is
the number of random instants at which runs are interrupted in every way there is (5 if it is not set).
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

import driver_case
from driver_case import DriverTest, h5py, needs_h5py, read_safetensors, texts, words

if h5py is not None:
    import numpy as np

    import train_oracle

TINY = driver_case.SOURCE / "inputs/tiny-llama"
TEXT = driver_case.SOURCE / "LICENSE"
BEGIN_OF_TEXT = 256  # of the byte tokenizer
KILLS = int(os.environ.get("KFORMER_KILLS", "5"))


class TrainTest(DriverTest):
    NAME = "kformer-train"
    PROGRAM = os.environ["KFORMER_TRAIN"]
    SMOKE_DECK = driver_case.SMOKE / "train.toml"
    TABLE = "batch"
    SMALL = f"""schema = 1
kind = "train"
[profile]
machine_limits = false
[weights]
path = "{TINY}"
[tokenizer]
format = "byte"
[data]
train = ["{TEXT}"]
cache = ""
[batch]
seq_len = 24
"""

    def train(self, keys, *arguments, expect=0):
        self.deck(keys)
        return self.run_driver("deck.toml", "--set", "output.overwrite=true", *arguments, expect=expect)

    def steps(self, column, name="deck.h5"):
        with h5py.File(self.folder / name) as file:
            return file["steps"][column][()]


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
                synthetic = 'format = "synthetic"' in deck.read_text()
                data = [] if synthetic else ["--set", f'data.train="{TEXT}"', "--set", 'data.cache=""']
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
        self.assertIn("\n2 of 2 steps were skipped: ", self.train("[schedule]\nsteps = 2\n").stdout)

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
        self.assertIn("note: the tokenizer knows 258 tokens, the model of [weights] 400; is it that model's own?",
                      self.train("[schedule]\nsteps = 1\n", "--dry-run").stdout)

    def test_files_that_are_not_read_are_named(self):
        deck = f'[data]\ntrain = "{TEXT}"\nvalidation = "{TEXT}"\ncache = ""\n[schedule]\nsteps = 1\n'
        self.SMALL = self.SMALL.replace(f'[data]\ntrain = ["{TEXT}"]\ncache = ""\n', "")
        self.assertRegex(self.train(deck, "--dry-run").stderr, r"deck.toml:\d+:\d+: warning: 'data.validation' is not read")

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
        self.assertRegex(done.stdout, r"3 checkpoints; the steps waited \S+ s for them \(\S+ % of their time\), and the end \S+ s")
        with h5py.File(self.folder / "train.h5") as file:
            self.assertEqual(file.attrs["complete"], 1)
            self.assertEqual(file["steps/step"][()].tolist(), list(range(12)))
            self.assertEqual(set(words(file["steps/skipped"])), {"no"})
            self.assertTrue((file["steps/time"][()] > 0).all())
            self.assertTrue((file["steps/tokens"][()] > 0).all())
            self.assertEqual(file["evaluations/step"][()].tolist(), [6, 12])
            losses = file["evaluations/loss"][()]
            self.assertLess(losses[1], losses[0])
            self.assertEqual(file["samples/step"][()].tolist(), [6, 12])
            self.assertEqual(texts(file["samples/prompt"]), ["abc="] * 2)
            self.assertEqual(file["cases/peak_bytes"][0], file["cases/predicted_bytes"][0])
            self.assertEqual(words(file["cases/status"]), ["ok"])
            self.assertGreater(file["cases/share_of_limit"][0], 0)
            self.assertIn("begin", texts(file["memory/timeline/event"]))
            self.assertEqual(file["checkpoints/step"][()].tolist(), [5, 10, 12])
            waited = file["checkpoints/waited"][()]
            self.assertTrue((waited > 0).all())
            self.assertEqual(file["cases/checkpoint_wait"][0], waited[0] + waited[1])
            self.assertGreaterEqual(file["cases/last_checkpoint_wait"][0], waited[2])
            self.assertIn("attention", texts(file["regions/path"]))
        self.assertEqual(sorted(path.name for path in (self.folder / "train-model").iterdir()),
                         ["config.json", "model.safetensors"])
        checkpoints = sorted(path.name for path in (self.folder / "train-checkpoints").iterdir())
        self.assertEqual(checkpoints, [f"step-{step:08}.safetensors" for step in (5, 10, 12)])

    def test_the_same_deck_gives_the_same_model(self):
        models = []
        for folder in ("a", "b"):
            self.run_driver(self.SMOKE_DECK, "--set", f"output.model={folder}", "--set", f"checkpoint.folder=c{folder}",
                            "-o", f"{folder}.h5")
            models.append((self.folder / folder / "model.safetensors").read_bytes())
        self.assertEqual(*models)

    def test_the_model_generates(self):
        self.run_driver(self.SMOKE_DECK)
        (self.folder / "say.toml").write_text('schema = 1\nkind = "generate"\n[weights]\npath = "train-model"\n[tokenizer]\n'
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
        # The checkpoint is in bf16, which the reader of the tests does not know: the program writes it in f64.
        self.train('[schedule]\nsteps = 1\n[optimizer]\nlr = 0\n[precision]\nstorage = "f64"\n[output]\nmodel = "start"\n')
        self.start = read_safetensors(self.folder / "start/model.safetensors")
        tokens = [BEGIN_OF_TEXT, *TEXT.read_bytes()]
        self.sequences = train_oracle.stream(tokens, 24)

    def check(self, keys, batch, schedule, **optimizer):
        self.train(keys + '[precision]\nstorage = "f64"\n[output]\nmodel = "model"\n', "--set", f"schedule.steps={self.STEPS}")
        weights = {name: w.copy() for name, w in self.start.items()}
        losses, norms = train_oracle.train(self.config, weights, self.sequences, self.STEPS, batch, schedule, **optimizer)
        np.testing.assert_allclose(self.steps("loss"), losses, rtol=1e-10, atol=0)
        np.testing.assert_allclose(self.steps("gradient_norm"), norms, rtol=1e-10, atol=0)
        trained = read_safetensors(self.folder / "model/model.safetensors")
        self.assertEqual(trained.keys(), weights.keys())
        for name, w in weights.items():
            np.testing.assert_allclose(trained[name], w, rtol=0, atol=1e-10 * np.abs(w).max(), err_msg=name)
        return trained

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

    def test_any_split_into_micro_batches(self):
        for micro_batch in (1, 3, 5):
            self.check(f"micro_batch = {micro_batch}\nsequences = 5\n[optimizer]\nlr = 1e-3\n[schedule]\nwarmup_steps = 2\n",
                       5, {"kind": "constant", "lr": 1e-3, "warmup": 2})

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


class Interruption(TrainTest):
    """A run that is interrupted and resumed gives the files of one that was not."""

    KEYS = ('sequences = 2\n[optimizer]\nlr = 1e-3\nmax_norm = 1\n[schedule]\nkind = "cosine"\nsteps = 300\n'
            '[data]\ntrain = ["%s"]\ncache = ""\nshuffle = true\n[output]\nmodel = "model"\n'
            '[checkpoint]\nfolder = "checkpoints"\nevery_steps = 7\nresume = true\n'
            '[evaluation]\nevery_steps = 50\nsequences = 4\n[samples]\nevery_steps = 100\nprompts = ["The "]\n'
            'max_new_tokens = 4\ntemperature = 1\n' % TEXT)

    def setUp(self):
        super().setUp()
        # The table [data] comes with the keys.
        self.SMALL = self.SMALL.replace(f'[data]\ntrain = ["{TEXT}"]\ncache = ""\n', "")
        keys = self.KEYS.replace("[evaluation]", '[evaluation]').replace('cache = ""', f'cache = ""\nvalidation = "{TEXT}"')
        self.deck(keys)

    def start(self):
        run = subprocess.Popen([self.PROGRAM, "deck.toml"], cwd=self.folder, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, errors="replace")
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.kill)
        return run

    def checkpoints(self):
        return sorted((self.folder / "checkpoints").glob("step-*.safetensors"))

    def wait_for_checkpoint(self, run):
        before = len(self.checkpoints()) and self.checkpoints()[-1].name
        end = time.monotonic() + 60
        while time.monotonic() < end and run.poll() is None:
            if self.checkpoints() and self.checkpoints()[-1].name != before:
                return
            time.sleep(0.01)

    def uninterrupted(self):
        self.run_driver("deck.toml", "--set", "output.model=whole", "--set", "checkpoint.folder=other", "-o", "whole.h5")

    def check_equal(self):
        models = [{path.name: path.read_bytes() for path in (self.folder / name).iterdir()} for name in ("model", "whole")]
        self.assertIn("model.safetensors", models[0])
        self.assertEqual(*models)
        if h5py is None:
            return
        with h5py.File(self.folder / "deck.h5") as a, h5py.File(self.folder / "whole.h5") as b:
            for group, columns in (("steps", ("step", "loss", "learning_rate", "gradient_norm", "tokens", "skipped")),
                                   ("evaluations", ("step", "loss")), ("samples", ("step", "prompt", "text"))):
                for column in columns:
                    self.assertEqual(a[group][column][()].tolist(), b[group][column][()].tolist(), f"{group}/{column}")

    def interrupt(self, number, codes):
        """Sends a signal at KILLS instants, drawn from the time of a run. A run that comes to its end is compared with one
        that was never stopped, and the next one starts from nothing."""
        begin = time.monotonic()
        self.uninterrupted()
        whole = time.monotonic() - begin
        generator = random.Random(number)
        hits = ends = halves = 0
        while hits < KILLS:
            with open(self.folder / "said", "w") as said:
                run = subprocess.Popen([self.PROGRAM, "deck.toml"], cwd=self.folder, stdout=said, stderr=said)
            self.addCleanup(run.kill)
            try:
                run.wait(generator.uniform(0, whole))
            except subprocess.TimeoutExpired:
                run.send_signal(number)
            code = run.wait()
            if code == 0:
                ends += 1
                self.check_equal()
                shutil.rmtree(self.folder / "checkpoints")
                shutil.rmtree(self.folder / "model")
                (self.folder / "deck.h5").unlink()
                continue
            self.assertIn(code, codes, (self.folder / "said").read_text(errors="replace"))
            hits += 1
            halves += bool(list((self.folder / "checkpoints").glob("*.tmp")))
        self.run_driver("deck.toml")
        self.check_equal()
        print(f"{signal.Signals(number).name}: {hits} runs ended by it ({halves} with half a checkpoint), "
              f"{ends + 1} runs of resumed parts equal the one that was never stopped", file=sys.stderr)

    def test_kills_at_any_moment(self):
        self.interrupt(signal.SIGKILL, (-signal.SIGKILL,))

    def test_signals_at_any_moment(self):
        # Before the program listens, a signal ends it as any other.
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            with self.subTest(signal=number):
                self.interrupt(number, (75, -number))

    def test_signals_save_and_end_with_75(self):
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            run = self.start()
            self.wait_for_checkpoint(run)
            run.send_signal(number)
            rest = run.stdout.read()
            self.assertEqual(run.wait(), 75, rest)
            self.assertIn("checkpoint.resume = true continues it", rest)
            step = int(rest.split("stopped after step ")[1].split(":")[0])
            self.assertEqual(self.checkpoints()[-1].name, f"step-{step:08}.safetensors")
        self.run_driver("deck.toml")
        self.uninterrupted()
        self.check_equal()

    def test_the_time_limit_saves(self):
        done = self.run_driver("deck.toml", "--set", "run.walltime_s=1e-3", expect=75)
        self.assertIn("walltime_s", done.stdout)

    def test_a_damaged_checkpoint_is_passed_over(self):
        self.run_driver("deck.toml")
        with open(self.checkpoints()[-1], "r+b") as file:
            file.seek(-100, os.SEEK_END)
            file.write(b"damaged")
        done = self.run_driver("deck.toml")
        self.assertIn(self.checkpoints()[-1].name, done.stderr)
        self.assertIn(f"resumed after step {int(self.checkpoints()[-2].name[5:13])}", done.stdout)
        self.uninterrupted()
        self.check_equal()

    def test_a_full_disk_ends_the_run_and_leaves_the_last_good_checkpoint(self):
        self.run_driver("deck.toml", "--set", "schedule.kind=constant", "--set", "schedule.steps=10")
        before = {path.name: path.read_bytes() for path in self.checkpoints()}
        limit = 300_000  # less than a checkpoint, more than results

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        done = subprocess.run([self.PROGRAM, "deck.toml", "--set", "schedule.kind=constant"], cwd=self.folder,
                              capture_output=True, text=True, errors="replace", preexec_fn=small_files)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"error: .*step-\d+\.safetensors")
        self.assertEqual({path.name: path.read_bytes() for path in self.checkpoints()}, before)

    def test_a_disk_that_is_full_until_there_is_more_room(self):
        """Every size of the disk fails at another place; with enough room the run goes on where it can."""
        self.uninterrupted()
        disk = self.folder / "disk"
        disk.mkdir()
        generator = random.Random(11)
        failed = 0
        for _ in range(KILLS):
            size = generator.randint(50_000, 3_000_000)
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk]
            if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
                self.skipTest("no tmpfs may be mounted here")
            self.addCleanup(subprocess.run, ["umount", disk], capture_output=True)
            shutil.copy(self.folder / "deck.toml", disk)
            done = subprocess.run([self.PROGRAM, "deck.toml"], cwd=disk, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                failed += 1
                self.assertEqual(done.returncode, 4, f"{size} bytes\n{done.stdout}{done.stderr}")
                self.assertIn("No space left on device", done.stderr, f"{size} bytes")
                subprocess.run(["mount", "-o", "remount,size=20000000", disk], check=True)
                subprocess.run([self.PROGRAM, "deck.toml"], cwd=disk, capture_output=True, check=True)
            for name in ("model", "deck.h5"):
                target = self.folder / name
                shutil.rmtree(target, ignore_errors=True)
                (shutil.copytree if name == "model" else shutil.copy)(disk / name, target)
            self.check_equal()
            subprocess.run(["umount", disk], check=True)
        self.assertGreater(failed, 0)
        print(f"{failed} of {KILLS} disks were full, and all runs equal the one that was never stopped", file=sys.stderr)

    def test_another_run_is_not_continued(self):
        self.run_driver("deck.toml", "--set", "schedule.steps=2")
        done = self.run_driver("deck.toml", "--set", "batch.seq_len=16", expect=4)
        self.assertIn("batch.seq_len: 24 in the checkpoint, 16 in this run", done.stderr)

    def test_a_model_with_other_numbers_is_not_continued(self):
        self.run_driver(self.SMOKE_DECK, "--set", "schedule.steps=4")
        done = self.run_driver(self.SMOKE_DECK, "--set", "checkpoint.resume=true", "--set", "model.rope_theta=500", expect=4)
        self.assertIn("\n  model.rope_theta: 10000.0 in the checkpoint, 500.0 in this run\n", done.stderr)

    def test_a_training_is_not_continued_behind_its_end(self):
        self.run_driver(self.SMOKE_DECK, "--set", "schedule.steps=6")
        done = self.run_driver(self.SMOKE_DECK, "--set", "checkpoint.resume=true", "--set", "schedule.steps=4", expect=4)
        self.assertIn("was saved at step 6, but this run has only 4 steps; set schedule.steps to at least 6", done.stderr)

    def test_checkpoints_of_another_run_are_not_mixed_in(self):
        self.run_driver("deck.toml", "--set", "schedule.steps=2")
        done = self.run_driver("deck.toml", "--set", "checkpoint.resume=false", "--set", "output.model=new", "-o", "new.h5",
                               expect=4)
        self.assertIn("has checkpoints of an earlier run", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
