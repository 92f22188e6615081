# SPDX-License-Identifier: MIT
"""What kformer-train writes into folders, and what it must leave there; what it says before a training and after.

ctest runs this with the programs in KFORMER_TRAIN and KFORMER_GENERATE and the sources in KFORMER_SOURCE.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import driver_case
from driver_case import h5py, needs_h5py
from train_case import TEXT, TINY, TrainTest

if h5py is not None:
    import numpy as np

    from packed_weights import random_model, write_gguf

CORPUS = driver_case.SOURCE / "tests/fuzz/corpus"


class FolderTest(TrainTest):
    SMALL = TrainTest.SMALL + "[schedule]\nsteps = 2\n"

    def train(self, *settings, expect=0, arguments=()):
        if not (self.folder / "deck.toml").exists():
            self.deck("")
        sets = [word for setting in settings for word in ("--set", setting)]
        return self.run_driver("deck.toml", *sets, *arguments, expect=expect)

    def contents(self, folder):
        return {path.name: path.read_bytes() for path in (self.folder / folder).iterdir() if path.is_file()}

    def header(self, path):
        data = (self.folder / path).read_bytes()
        return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


class ForeignFiles(FolderTest):
    """Whatever is told to replace, files of others stay."""

    def put_note(self, folder):
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        (self.folder / folder / "notes.txt").write_text("mine")

    def check_note(self, folder):
        self.assertEqual((self.folder / folder / "notes.txt").read_text(), "mine")

    def test_two_runs_do_not_write_one_model(self):
        with open(self.folder / "out.lock", "w") as lock:  # as a run holds it
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.train("output.model=out", expect=4)
            self.assertRegex(done.stderr, "'[^']*out' is being written by another run")
        self.train("output.model=out")
        self.assertEqual(self.files(), ["deck.h5", "deck.toml", "out"])

    def test_two_runs_do_not_share_a_folder_of_checkpoints(self):
        for folder in ("ck", "made/for/ck"):
            place = self.folder / f"{folder}.lock"
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(place, "w") as lock:  # as a run holds it
                fcntl.flock(lock, fcntl.LOCK_EX)
                for name in (folder, f"./{folder}/", f"{self.folder}/{folder}"):
                    done = self.train(f"checkpoint.folder={name}", expect=4)
                    self.assertRegex(done.stderr, f"error: '[^']*/{folder}' is being written by another run; wait")
                    self.assertEqual(done.stdout, "")
                self.train(f"checkpoint.folder={folder}", arguments=["--dry-run"])
            self.train(f"checkpoint.folder={folder}", "output.overwrite=true")
            self.assertFalse(place.exists())

    def test_a_run_that_is_refused_leaves_no_folder_of_its_lock(self):
        self.train("checkpoint.folder=made/for/ck", "batch.seq_len=100000", expect=4)
        self.assertNotIn("made", self.files())

    def test_a_run_that_is_refused_leaves_no_folder_of_its_model(self):
        self.train("output.model=out", "batch.seq_len=100000", expect=4)
        self.assertEqual(self.files(), ["deck.toml"])

    def test_a_model_says_in_what_type_it_is(self):
        for storage, name in (("f32", "float32"), ("f64", "float64"), ("bf16", "bfloat16"), ("f16", "float16")):
            self.train(f"precision.storage={storage}", "output.model=out", "output.overwrite=true")
            self.assertEqual(json.loads((self.folder / "out/config.json").read_text())["torch_dtype"], name)

    def test_they_stay_beside_a_model_that_is_replaced(self):
        self.put_note("out")
        (self.folder / "out/config.json").write_text("an old model")
        done = self.train("output.model=out", expect=4)
        self.assertIn("exists and is not empty; output.overwrite = true replaces a model there and leaves other files",
                      done.stderr)
        self.assertEqual((self.folder / "out/config.json").read_text(), "an old model")
        self.train("output.model=out", "output.overwrite=true")
        self.check_note("out")
        self.assertEqual(sorted(self.contents("out")), ["config.json", "model.safetensors", "notes.txt"])
        self.assertEqual(self.files(), ["deck.h5", "deck.toml", "out"])

    def test_the_shards_of_a_model_that_is_replaced_go_with_it(self):
        self.put_note("out")
        out = self.folder / "out"
        for name in ("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "other.safetensors"):
            (out / name).write_text("old")
        shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "notes.txt"}
        (out / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
        (out / "tokenizer.json").write_text("kept: the trained model brings none")
        self.train("output.model=out", "output.overwrite=true")
        self.check_note("out")
        self.assertEqual(sorted(self.contents("out")),
                         ["config.json", "model.safetensors", "notes.txt", "other.safetensors", "tokenizer.json"])

    def test_an_index_that_is_damaged_stays_with_what_it_names(self):
        self.put_note("out")
        for text in ('{"weight_map": {"a": "../deck.toml"}}', "not JSON"):
            with self.subTest(text=text):
                (self.folder / "out/model.safetensors.index.json").write_text(text)
                self.train("output.model=out", "output.overwrite=true")
                self.assertEqual((self.folder / "out/model.safetensors.index.json").read_text(), text)
                self.assertTrue((self.folder / "deck.toml").exists())

    def test_a_first_run_that_may_resume_replaces_nothing(self):
        self.put_note("out")
        self.train()
        keys = ("output.model=out", "checkpoint.folder=ck", "checkpoint.resume=true")
        self.assertIn("output.model", self.train(*keys, expect=4).stderr)
        self.check_note("out")
        self.assertIn("'deck.h5' exists already", self.train(*keys, "output.model=new", expect=4).stderr)

    def test_a_run_that_resumes_replaces_its_model_alone(self):
        keys = ("output.model=out", "checkpoint.folder=ck", "checkpoint.resume=true")
        self.train(*keys)
        before = self.contents("out")
        self.put_note("out")
        self.train(*keys, "schedule.steps=4")
        self.check_note("out")
        self.assertNotEqual(self.contents("out")["model.safetensors"], before["model.safetensors"])

    def test_a_model_and_an_adapter_have_a_folder_each(self):
        self.deck("[adapter]\n")
        for arguments in ([], ["--dry-run"]):
            done = self.train("output.model=out", f"output.adapter={self.folder}/./out/", arguments=arguments, expect=4)
            self.assertRegex(done.stderr, r"output\.adapter '[^']*/out' is the folder of output\.model, too; name one for each")
        self.assertEqual(self.files(), ["deck.toml"])
        self.train("output.model=out", "output.adapter=out/adapter")

    def test_a_folder_that_holds_more_than_the_model_is_refused_before_the_training(self):
        self.deck("")
        for settings, reason in (
                (("output.model=run", "checkpoint.folder=run/ck"), "is or contains the folder of the checkpoints, "),
                (("output.model=ck", "checkpoint.folder=ck"), "is or contains the folder of the checkpoints, "),
                (("output.model=.",), "is or contains the folder of the deck, "),
                (("output.model=..",), "is or contains the folder of the deck, ")):
            for more in ((), ("output.overwrite=true",), ("output.overwrite=true", "--dry-run")):
                sets = [word for s in (*settings, *more) for word in ((s,) if s.startswith("--") else ("--set", s))]
                done = self.run_driver("deck.toml", *sets, expect=4)
                self.assertIn(reason, done.stderr)
                self.assertEqual(done.stdout, "")
        with tempfile.TemporaryDirectory() as elsewhere:
            shutil.move(self.folder / "deck.toml", elsewhere)
            done = self.run_driver(f"{elsewhere}/deck.toml", "--set", f"output.model={self.folder}", expect=4)
            self.assertIn("is or contains the working directory, ", done.stderr)
        self.assertEqual(self.files(), [])

    def test_checkpoints_survive_a_run_that_is_refused(self):
        keys = ("checkpoint.folder=ck", "output.overwrite=true")
        self.train(*keys)
        (self.folder / "ck/step-0.safetensors").write_bytes(b"no checkpoint of a training run")
        before = self.contents("ck")
        for setting, code in (("memory.budget=100KiB", 6), ("data.train=none.txt", 3), ("batch.seq_len=100000", 4)):
            self.train(*keys, setting, expect=code)
            self.assertEqual(self.contents("ck"), before, setting)
        self.train(*keys, "schedule.steps=1")
        self.assertNotIn("step-00000002.safetensors", self.contents("ck"))


class Model(FolderTest):
    """The files of the trained model."""

    def generates(self):
        (self.folder / "say.toml").write_text('schema = 1\nkind = "generate"\n[profile]\nmachine_limits = false\n[weights]\npath = "out"\n[output]\noverwrite = true\n[generate]\n'
                                              'max_new_tokens = 2\n[[prompt]]\ntext = "a"\n')
        done = subprocess.run([os.environ["KFORMER_GENERATE"], "say.toml"], cwd=self.folder, capture_output=True, text=True,
                              errors="replace")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_tokenizer_of_any_name_is_saved_under_the_published_one(self):
        for number, (source, published, other) in enumerate((
                ("sentencepiece/bpe.model", "tokenizer.model", "tokenizer.json"),
                ("tokenizer_json/byte_level.json", "tokenizer.json", "tokenizer.model"))):
            with self.subTest(published=published):
                suffix = source.rsplit(".")[-1]
                place = self.folder / f"tokenizers{number}"
                place.mkdir()
                shutil.copy(CORPUS / source, place / f"my-tok.{suffix}")
                for name in ("tokenizer.json", "tokenizer.model", "vocab.json"):
                    (place / name).write_text("of another tokenizer")
                (place / "special_tokens_map.json").write_text("{}")
                self.SMALL = FolderTest.SMALL.replace('format = "byte"', f'path = "{place}/my-tok.{suffix}"').replace(
                    f'[weights]\npath = "{TINY}"', "[model]\nhidden_size = 32\nnum_attention_heads = 4\nvocab_size = 600\n"
                    "intermediate_size = 64\nnum_hidden_layers = 1")
                self.deck("")
                done = self.train("output.model=out", "output.overwrite=true")
                self.assertNotIn("the tokenizer is inside", done.stdout)
                files = self.contents("out")
                self.assertEqual(sorted(files), ["config.json", "model.safetensors", "special_tokens_map.json", published])
                self.assertEqual(files[published], (CORPUS / source).read_bytes())
                self.assertNotIn(other, files)
                self.generates()

    def test_text_begins_with_the_token_that_only_the_model_knows(self):
        tokenizer = json.loads((CORPUS / "tokenizer_json/byte_level.json").read_text())
        (self.folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
        model = ("[model]\nhidden_size = 32\nnum_attention_heads = 4\nvocab_size = 600\nintermediate_size = 64\n"
                 "num_hidden_layers = 1\n")
        small, targets = FolderTest.SMALL.replace('format = "byte"', 'path = "tokenizer.json"'), []
        for token in ("", "bos_token_id = 7\n"):
            self.SMALL = small.replace(f'[weights]\npath = "{TINY}"\n', model + token)
            self.deck("")
            plan = self.train("data.packing=pad", arguments=["--dry-run"]).stdout
            targets.append(int(re.search(r"(\d+) target tokens", plan)[1]))
        self.assertEqual(targets[1], targets[0] + 1)

    @needs_h5py
    def test_a_tokenizer_inside_gguf_weights_is_said_not_to_be_saved(self):
        write_gguf(self.folder / "start.gguf", random_model())
        np.save(self.folder / "tokens.npy", np.arange(200, dtype=np.uint16) % 40)
        self.SMALL = FolderTest.SMALL.replace(str(TINY), "start.gguf").replace('[tokenizer]\nformat = "byte"\n', "")
        self.SMALL = self.SMALL.replace(f'train = ["{TEXT}"]', 'train = ["tokens.npy"]\nformat = "tokens"')
        note = "note: the tokenizer is inside 'start.gguf' and is not written to output.model"
        self.assertNotIn(note, self.train(arguments=["--dry-run"]).stdout)
        self.assertIn(note, self.train("output.model=out", arguments=["--dry-run"]).stdout)
        self.assertIn(note, self.train("output.model=out").stdout)
        self.assertEqual(sorted(self.contents("out")), ["config.json", "model.safetensors"])

    def test_other_programs_find_what_they_look_for(self):
        for storage, name in (("f32", "float32"), ("bf16", "bfloat16"), ("f16", "float16"), ("f64", "float64")):
            self.train("output.model=out", "output.overwrite=true", f"precision.storage={storage}")
            self.assertEqual(self.header("out/model.safetensors")["__metadata__"], {"format": "pt"})
            config = json.loads((self.folder / "out/config.json").read_text())
            self.assertEqual((config["architectures"], config["torch_dtype"]), (["LlamaForCausalLM"], name))


class Chats(FolderTest):
    def setUp(self):
        super().setUp()
        (self.folder / "chats.jsonl").write_text(json.dumps({"messages": [
            {"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A test of a conversation."}]}) + "\n")
        self.SMALL = self.SMALL.replace(f'train = ["{TEXT}"]', 'train = ["chats.jsonl"]\nformat = "chat"\npacking = "pad"')
        self.SMALL = self.SMALL.replace("seq_len = 24", "seq_len = 200")

    def test_the_deck_names_the_template(self):
        targets = []
        for style in ("chatml", "llama3", "llama2", "mistral", "zephyr"):
            plan = self.train(f"data.chat_style={style}", arguments=["--dry-run"]).stdout
            targets.append(plan.split("data        ")[1].split("\n")[0])
        self.assertGreater(len(set(targets)), 1, targets)
        self.train("data.chat_style=chatml")

    def test_without_it_the_tokenizer_must_have_one_that_is_known(self):
        self.assertRegex(self.train(expect=4).stderr, r"error: .*chats\.jsonl', line 1: .*the model has no chat template; "
                         r"supported: chatml, llama3, llama2, mistral, zephyr; a chat style says how messages are written")
        self.assertIn('must be one of "chatml", ', self.train("data.chat_style=other", expect=3).stderr)

    def test_the_deck_says_whether_they_have_a_beginning(self):
        full = []
        for setting in ("tokenizer.add_bos=true", "tokenizer.add_bos=false"):
            plan = self.train("data.chat_style=chatml", setting, arguments=["--dry-run"]).stdout
            full.append(float(re.search(r"([\d.]+) % full", plan)[1]))
        self.assertAlmostEqual(full[0] - full[1], 100 / 200, delta=0.11)  # one of 200 tokens

    def test_it_is_for_conversations(self):
        self.assertIn("'data.chat_style' is for conversations, but 'data.format' = \"text\"",
                      self.train("data.format=text", "data.chat_style=chatml", expect=3).stderr)


class Checkpoints(FolderTest):
    def test_their_header_does_not_grow_with_the_steps(self):
        lengths = []
        for steps in (10, 60):
            self.train("checkpoint.folder=ck", f"schedule.steps={steps}", "output.overwrite=true")
            path = f"ck/step-{steps:08}.safetensors"
            lengths.append(len(self.header(path)["__metadata__"]["metadata"]))
            self.assertEqual(self.header(path)["columns/steps.loss"]["shape"], [steps])
        self.assertLess(abs(lengths[1] - lengths[0]), 10)

    def test_what_changed_is_named_when_a_run_is_continued(self):
        keys = ("checkpoint.folder=ck", "checkpoint.resume=true")
        self.train(*keys)
        self.assertNotIn("differs", self.train(*keys).stdout)
        said = self.train(*keys, "schedule.steps=3", "optimizer.lr=0.5", "optimizer.max_norm=1").stdout
        self.assertIn("note: this run differs from the one it continues: optimizer.lr was 0.001 and is 0.5, "
                      "optimizer.max_norm was 0 and is 1, schedule.steps was 2 and is 3\n", said)
        said = self.train(*keys, "schedule.steps=3", "optimizer.lr=0.5", "optimizer.max_norm=1", "batch.sequences=1",
                          "precision.loss_scale=static", "precision.initial_loss_scale=2", "spikes.window=9").stdout
        self.assertIn("precision.initial_loss_scale was 4096 and is 2, precision.loss_scale was none and is static, "
                      "spikes.loss_z was 0 and is 6, spikes.norm_z was 0 and is 6, spikes.window was 128 and is 9\n", said)

    @needs_h5py
    def test_a_run_continues_with_a_loss_scale_within_its_bounds(self):
        keys = ("checkpoint.folder=ck", "checkpoint.resume=true", "precision.loss_scale=dynamic")
        self.train(*keys, "precision.initial_loss_scale=4", "precision.growth_interval=100", "schedule.steps=5")
        shutil.copytree(self.folder / "ck", self.folder / "inside")
        bounds = ("precision.initial_loss_scale=64", "precision.growth_interval=7", "precision.greatest_loss_scale=1024", "schedule.steps=13")
        # Out of its bounds it begins anew, and so do the steps until it grows.
        self.train(*keys, "precision.least_loss_scale=32", *bounds)
        self.assertEqual(self.steps("loss_scale").tolist(), [4] * 5 + [64] * 7 + [128])
        self.train(*keys, "checkpoint.folder=inside", *bounds)
        self.assertEqual(self.steps("loss_scale").tolist(), [4] * 7 + [8] * 6)

    def test_a_run_continues_with_a_shorter_window_of_spikes(self):
        keys = ("checkpoint.folder=ck", "checkpoint.resume=true")
        self.train(*keys, "spikes.window=30", "schedule.steps=12")
        said = self.train(*keys, "spikes.window=4", "schedule.steps=14").stdout
        self.assertIn("note: this run differs from the one it continues: schedule.steps was 12 and is 14, "
                      "spikes.window was 30 and is 4\n", said)

    def test_another_micro_batch_is_named(self):
        keys = ("checkpoint.folder=ck", "checkpoint.resume=true", "batch.sequences=2")
        self.train(*keys)
        self.assertIn(": batch.micro_batch was 1 and is 2\n", self.train(*keys, "batch.micro_batch=2").stdout)


class Words(FolderTest):
    """What is said before, during and after."""

    def test_offloading_on_a_host_is_refused_before_anything_is_done(self):
        # Not even the data are opened.
        for arguments in ([], ["--dry-run"]):
            done = self.train("memory.recompute=offload", "profile.machine_limits=true", "batch.seq_len=100000",
                              arguments=arguments, expect=1)
            self.assertRegex(done.stderr, r'error: kformer-train: memory\.recompute = "offload" moves inputs of layers to host '
                             r'memory, but execution_space = "\w+" computes there already; choose "layer" or "nested"')
            self.assertNotIn("GFLOP/s", done.stdout)

    def test_the_machine_is_measured_after_what_may_refuse_the_deck(self):
        for setting, code in (("batch.seq_len=100000", 4), ("memory.budget=100KiB", 6)):
            self.assertNotIn("GFLOP/s", self.train("profile.machine_limits=true", setting, expect=code).stdout)

    @needs_h5py
    def test_a_machine_that_was_measured_does_not_change_the_schedule(self):
        self.SMALL = FolderTest.SMALL.replace(f'[weights]\npath = "{TINY}"\n', "[model]\nhidden_size = 64\nvocab_size = 258\n"
                                              "num_attention_heads = 4\nintermediate_size = 256\nnum_hidden_layers = 12\n")
        # With these budgets the best mixture depends on the rates.
        for budget in ("18MB", "20MB", "24MB", "27MB"):
            keys = ("batch.seq_len=64", "batch.micro_batch=4", "memory.recompute=auto", f"memory.budget={budget}",
                    "output.overwrite=true")
            self.deck("")
            planned = re.search(r"recompute +auto: (.*); about", self.train(*keys, arguments=["--dry-run"]).stdout)[1]
            forecasts = set()
            for measured in ("true", "false") if budget == "24MB" else ("false",):
                self.train(*keys, f"profile.machine_limits={measured}")
                with h5py.File(self.folder / "deck.h5") as file:
                    self.assertEqual(driver_case.texts(file["cases/recompute"]), [planned], budget)
                    forecasts.add(int(file["cases/predicted_bytes"][0]))
            self.assertEqual(len(forecasts), 1)

    @needs_h5py
    def test_the_limit_is_that_of_the_storage_type(self):
        self.train("profile.machine_limits=true", "precision.storage=f64")
        with h5py.File(self.folder / "deck.h5") as file:
            limit = file["cases/flop_rate_limit"][0]
            f32, f64 = (file[f"machine/fma_rate_{name}"][0] for name in ("f32", "f64"))
        # Samples vary; the ratio of the two does not.
        self.assertLess(abs(np.log(limit / f64)), abs(np.log(limit / f32)))

    def test_more_steps_than_can_be_counted(self):
        done = self.train("schedule.steps=1000000000000", "batch.sequences=1000000", expect=3)
        self.assertIn("error: 1000000000000 steps of 1000000 sequences of 24 tokens are more than can be counted", done.stderr)

    def test_a_decay_that_is_longer_than_the_epochs(self):
        self.SMALL = TrainTest.SMALL
        self.deck('[schedule]\nkind = "wsd"\nepochs = 1\nwarmup_steps = 2\ndecay_steps = 1000\n')
        self.assertRegex(self.train(expect=1).stderr, r"schedule.warmup_steps \+ decay_steps = 1002 is more than the \d+ steps")

    @needs_h5py
    def test_the_memory_is_booked_from_the_beginning(self):
        self.train("checkpoint.folder=ck")
        with h5py.File(self.folder / "deck.h5") as file:
            time, total, classes = (file[f"memory/bookings/{name}"][()] for name in ("time", "total_bytes", "bytes"))
            self.assertGreater(len(total), 5)
            self.assertTrue((np.diff(time) >= 0).all())
            self.assertEqual(classes.sum(1).tolist(), total.tolist())
            self.assertEqual(total[0], 0)
            self.assertEqual(total.max(), file["cases/peak_bytes"][0])
            self.assertEqual(classes[-1].tolist(), file["memory/timeline/bytes"][-1].tolist())

    def test_what_is_more_than_free_is_refused_by_a_dry_run_too(self):
        (self.folder / "large.toml").write_text(
            'schema = 1\nkind = "train"\n[profile]\nmachine_limits = false\n[model]\nhidden_size = 16384\n'
            "num_attention_heads = 128\nintermediate_size = 65536\nnum_hidden_layers = 80\nvocab_size = 258\n"
            f'[tokenizer]\nformat = "byte"\n[data]\ntrain = ["{TEXT}"]\ncache = ""\n[batch]\nseq_len = 24\n[schedule]\nsteps = 1\n')
        for policy in ("pointwise", "auto"):
            for arguments in ([], ["--dry-run"]):
                done = self.run_driver("large.toml", "--set", f"memory.recompute={policy}", *arguments, expect=6)
                self.assertRegex(done.stderr, "training needs .* but the limit is ")

    def test_an_error_stands_behind_the_plan(self):
        self.deck("")
        done = subprocess.run([self.PROGRAM, "deck.toml", "--set", "memory.budget=100KiB"], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 6)
        self.assertLess(done.stdout.index("optimizer   lr"), done.stdout.index("error: "))

    @needs_h5py
    def test_a_training_of_one_step_profiles_that_step(self):
        self.train("schedule.steps=1", "profile.kernels=true")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertIn("attention", driver_case.texts(file["regions/path"]))

    def test_a_run_that_ends_before_the_step_that_is_profiled_says_so(self):
        note = "note: no step was profiled: the run ended before the second one"
        said = self.train("profile.kernels=true", "run.walltime_s=1e-9", expect=75).stdout
        self.assertIn(note, said)
        self.assertNotIn(note, self.train("profile.kernels=true", "output.overwrite=true").stdout)

    def test_a_sequence_that_is_longer_than_the_model_of_the_weights_knows(self):
        note = "note: batch.seq_len = 600 is more than max_position_embeddings = 512 of the model of [weights]"
        self.assertIn(note, self.train("batch.seq_len=600", arguments=["--dry-run"]).stdout)
        self.assertNotIn("max_position_embeddings", self.train("batch.seq_len=512", arguments=["--dry-run"]).stdout)

    @needs_h5py
    def test_a_training_that_runs_can_be_read_after_its_first_step(self):
        self.deck("")
        run = subprocess.Popen([self.PROGRAM, "deck.toml", "--set", "schedule.steps=100000"], cwd=self.folder,
                               stdout=subprocess.DEVNULL)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        begin = time.monotonic()
        part = self.folder / "deck.h5.part"

        def steps():
            """That can be read. The file is replaced as a whole."""
            if not part.exists():
                return 0
            with h5py.File(part) as file:
                return len(file["steps/step"]) if "steps" in file else 0
        while steps() == 0 and run.poll() is None and time.monotonic() - begin < 25:
            time.sleep(0.05)
        self.assertGreaterEqual(steps(), 1)
        with h5py.File(part) as file:
            self.assertIn("first step", driver_case.texts(file["memory/timeline/event"]))
        self.assertLess(time.monotonic() - begin, 25, "later than the next time that it is written")


if __name__ == "__main__":
    unittest.main(verbosity=2)
