# SPDX-License-Identifier: MIT
"""What crashes, signals and full disks leave of a run of kformer-train.

ctest runs this with the program in KFORMER_TRAIN and the sources in KFORMER_SOURCE. KFORMER_KILLS is the number of random
instants at which runs are interrupted in every way there is (5 if it is not set).
"""

import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from driver_case import SMOKE, h5py
from train_case import TEXT, TrainTest

KILLS = int(os.environ.get("KFORMER_KILLS", "5"))


class Interruption(TrainTest):
    """A run that is interrupted and resumed gives the files of one that was not."""

    KEYS = ('sequences = 2\n[optimizer]\nlr = 1e-3\nmax_norm = 1\n[schedule]\nkind = "cosine"\nsteps = 300\n'
            '[data]\ntrain = ["%s"]\ncache = ""\nshuffle = true\n[output]\nmodel = "model"\n'
            '[checkpoint]\nfolder = "checkpoints"\nevery_steps = 7\nresume = true\n'
            '[evaluation]\nevery_steps = 50\nsequences = 4\n[samples]\nevery_steps = 100\nprompts = ["The "]\n'
            'max_new_tokens = 4\ntemperature = 1\n' % TEXT)

    FIGURES = ()
    whole_runs = {}  # by class: the folder of the run that nothing interrupted, and its seconds

    def setUp(self):
        super().setUp()
        self.whole = self.folder  # has whole.h5 and its model, whole
        # The table [data] comes with the keys.
        self.SMALL = self.SMALL.replace(f'[data]\ntrain = ["{TEXT}"]\ncache = ""\n', "")
        keys = self.KEYS.replace('cache = ""', f'cache = ""\nvalidation = "{TEXT}"')
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
        """Sets `whole`, and returns the seconds of that run. It serves all tests of a class."""
        cls = type(self)
        if cls not in self.whole_runs:
            folder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(folder.cleanup)
            path = pathlib.Path(folder.name)
            begin = time.monotonic()
            self.run_driver("deck.toml", "--set", f"output.model={path}/whole", "--set", f"checkpoint.folder={path}/other",
                            "-o", path / "whole.h5")
            self.whole_runs[cls] = path, time.monotonic() - begin
        self.whole, seconds = self.whole_runs[cls]
        return seconds

    def check_equal(self):
        models = [{path.name: path.read_bytes() for path in folder.iterdir()}
                  for folder in (self.folder / "model", self.whole / "whole")]
        self.assertIn("model.safetensors", models[0])
        self.assertEqual(*models)
        if h5py is None:
            return
        with h5py.File(self.folder / "deck.h5") as a, h5py.File(self.whole / "whole.h5") as b:
            for group, columns in (("steps", ("step", "loss", "learning_rate", "gradient_norm", "tokens", "skipped",
                                              *self.FIGURES)),
                                   ("evaluations", ("step", "loss", *self.FIGURES)), ("samples", ("step", "prompt", "text"))):
                for column in columns:
                    self.assertEqual(a[group][column][()].tolist(), b[group][column][()].tolist(), f"{group}/{column}")

    @staticmethod
    def catches(run, number):
        """Whether a process has a handler for a signal: before main nobody can."""
        try:
            status = pathlib.Path(f"/proc/{run.pid}/status").read_text()
        except OSError:
            return False
        return bool(int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16) >> (number - 1) & 1)

    def interrupt(self, number):
        """Sends a signal at KILLS instants, drawn from the time of a run. A run that comes to its end is compared with one
        that was never stopped, and the next one starts from nothing."""
        whole = self.uninterrupted()
        generator = random.Random(number)
        hits = ends = halves = 0
        while hits < KILLS:
            with open(self.folder / "said", "w") as said:
                run = subprocess.Popen([self.PROGRAM, "deck.toml"], cwd=self.folder, stdout=said, stderr=said)
            self.addCleanup(run.kill)
            expected = 75
            try:
                run.wait(generator.uniform(0, whole))
            except subprocess.TimeoutExpired:
                if not self.catches(run, number):
                    expected = -number
                run.send_signal(number)
            code = run.wait()
            if code == 0:
                ends += 1
                self.check_equal()
                self.assertEqual(self.half_written(), [])
                shutil.rmtree(self.folder / "checkpoints")
                shutil.rmtree(self.folder / "model")
                (self.folder / "deck.h5").unlink()
                continue
            # It may begin to listen between the look and the signal.
            self.assertIn(code, {expected, 75} - ({75} if number == signal.SIGKILL else set()),
                          (self.folder / "said").read_text(errors="replace"))
            hits += 1
            halves += bool(self.half_written())
        self.run_driver("deck.toml")
        self.check_equal()
        self.assertEqual(self.half_written(), [])
        print(f"{signal.Signals(number).name}: {hits} runs ended by it ({halves} with half a checkpoint), "
              f"{ends + 1} runs of resumed parts equal the one that was never stopped", file=sys.stderr)

    def half_written(self):
        return [path.name for path in (*self.folder.glob("*.tmp"), *self.folder.glob("checkpoints/*.tmp"))]

    def test_kills_at_any_moment(self):
        self.interrupt(signal.SIGKILL)

    def test_what_a_kill_left_half_written_is_removed(self):
        names = [self.folder / "deck.h5.part.123.tmp", self.folder / "checkpoints/step-00000007.safetensors.123.tmp"]
        others = [self.folder / "deck.h5.part.tmp", self.folder / "checkpoints/mine.123.tmp"]
        (self.folder / "checkpoints").mkdir()
        for path in names + others:
            path.write_text("half")
        self.run_driver("deck.toml", "--set", "schedule.steps=6")
        self.assertEqual([path for path in names + others if path.exists()], others)

    def test_signals_at_any_moment(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(signal=number):
                self.interrupt(number)

    def test_signals_are_heard_from_the_beginning(self):
        run = self.start()
        end = time.monotonic() + 60
        while not (self.folder / "checkpoints.lock").exists() and time.monotonic() < end:
            time.sleep(0.001)  # the first thing that a run leaves on the disk
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
            self.assertTrue(self.catches(run, number), number)
        run.send_signal(signal.SIGTERM)
        rest = run.stdout.read()
        self.assertEqual(run.wait(), 75, rest)
        self.assertIn("stopped after step ", rest)

    def test_another_signal_does_not_cut_a_save_off(self):
        """A batch system sends SIGUSR1 some time before the end, then SIGTERM."""
        run = self.start()
        self.wait_for_checkpoint(run)
        run.send_signal(signal.SIGUSR1)
        run.send_signal(signal.SIGTERM)
        rest = run.stdout.read()
        self.assertEqual(run.wait(), 75, rest)
        self.assertIn("stopped after step ", rest)
        self.run_driver("deck.toml")
        self.uninterrupted()
        self.check_equal()

    def test_signals_save_and_end_with_75(self):
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
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

    def test_a_signal_cuts_a_long_evaluation_off(self):
        (self.folder / "long").write_text("All work and no play. " * 200_000)
        keys = self.KEYS.replace("steps = 300", "steps = 4").replace("every_steps = 50\nsequences = 4", "every_steps = 1")
        self.deck(keys.replace('cache = ""', f'cache = ""\nvalidation = "{self.folder}/long"'))
        run = self.start()
        self.assertTrue(any(line.startswith("step 1/") for line in run.stdout))
        begin = time.monotonic()
        run.send_signal(signal.SIGTERM)
        rest = run.stdout.read()
        self.assertEqual(run.wait(), 75, rest)
        self.assertLess(time.monotonic() - begin, 10, rest)
        self.assertIn("stopped after step 1", rest)
        short = ("--set", "evaluation.sequences=4")
        done = self.run_driver("deck.toml", *short)
        self.assertIn("evaluation after step 1", done.stdout)
        self.run_driver("deck.toml", *short, "--set", "output.model=whole", "--set", "checkpoint.folder=other", "-o",
                        "whole.h5")
        self.check_equal()

    def test_the_time_limit_saves(self):
        done = self.run_driver("deck.toml", "--set", "run.walltime_s=1e-3", expect=75)
        self.assertIn("walltime_s", done.stdout)

    def test_a_run_that_ends_before_its_first_step_is_continued(self):
        done = self.run_driver("deck.toml", "--set", "run.walltime_s=1e-9", expect=75)
        self.assertIn("stopped after step 0", done.stdout)
        self.run_driver("deck.toml")
        self.uninterrupted()
        self.check_equal()

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

    def run_with_small_files(self, *arguments):
        """It fails for that: files have at most 300,000 bytes, enough for results."""
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        done = subprocess.run([self.PROGRAM, "deck.toml", *arguments], cwd=self.folder, capture_output=True, text=True,
                              errors="replace", preexec_fn=small_files)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        return done.stderr

    def test_a_full_disk_ends_the_run_and_leaves_the_last_good_checkpoint(self):
        self.run_driver("deck.toml", "--set", "schedule.kind=constant", "--set", "schedule.steps=10")
        before = {path.name: path.read_bytes() for path in self.checkpoints()}
        self.assertRegex(self.run_with_small_files("--set", "schedule.kind=constant"), r"error: .*step-\d+\.safetensors")
        self.assertEqual({path.name: path.read_bytes() for path in self.checkpoints()}, before)

    def test_a_full_disk_leaves_the_adapter_that_was_there(self):
        self.deck(f'[data]\ntrain = ["{TEXT}"]\ncache = ""\n[schedule]\nsteps = 1\n[precision]\nstorage = "f64"\n'
                  '[adapter]\nrank = 32\n[output]\nadapter = "adapter"\nadapter_gguf = true\noverwrite = true\n')

        def adapter():
            return {path.name: path.read_bytes() for path in (self.folder / "adapter").iterdir()}
        self.run_driver("deck.toml")
        before = adapter()
        self.assertEqual(sorted(before), ["adapter.gguf", "adapter_config.json", "adapter_model.safetensors"])
        for setting in ("output.adapter_gguf=true", "output.adapter_gguf=false"):
            self.assertRegex(self.run_with_small_files("--set", setting, "--set", "run.seed=2"), r"error: .*adapter")
            self.assertEqual(adapter(), before)

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
        self.run_driver(self.SMOKE_DECK, "--set", "schedule.steps=4", "--set", "profile.machine_limits=false")
        done = self.run_driver(self.SMOKE_DECK, "--set", "checkpoint.resume=true", "--set", "model.rope_theta=500",
                               "--set", "profile.machine_limits=false", expect=4)
        self.assertIn("\n  model.rope_theta: 10000.0 in the checkpoint, 500.0 in this run\n", done.stderr)

    def test_a_training_is_not_continued_behind_its_end(self):
        self.run_driver(self.SMOKE_DECK, "--set", "schedule.steps=6", "--set", "profile.machine_limits=false")
        done = self.run_driver(self.SMOKE_DECK, "--set", "checkpoint.resume=true", "--set", "schedule.steps=4",
                               "--set", "profile.machine_limits=false", expect=4)
        self.assertIn("was saved at step 6, but this run has only 4 steps; set schedule.steps to at least 6", done.stderr)

    def test_checkpoints_of_another_run_are_not_mixed_in(self):
        self.run_driver("deck.toml", "--set", "schedule.steps=2")
        done = self.run_driver("deck.toml", "--set", "checkpoint.resume=false", "--set", "output.model=new", "-o", "new.h5",
                               expect=4)
        self.assertIn("has checkpoints of an earlier run", done.stderr)


class PreferenceInterruption(Interruption):
    """The same of pairs. Their reference is computed anew from the first weights."""

    KEYS = ('sequences = 4\nmicro_batch = 2\n[optimizer]\nlr = 1e-3\n[schedule]\nsteps = 60\n[objective]\nkind = "dpo"\n'
            '[data]\ntrain = "%s/preferences.jsonl"\nvalidation = "%s/preferences_validation.jsonl"\nshuffle = true\n'
            '[output]\nmodel = "model"\n[checkpoint]\nfolder = "checkpoints"\nevery_steps = 7\nresume = true\n'
            '[evaluation]\nevery_steps = 20\nsequences = 4\n[samples]\nevery_steps = 30\nprompts = ["Question: "]\n'
            'max_new_tokens = 4\ntemperature = 1\n' % (SMOKE, SMOKE))
    SMALL = Interruption.SMALL.replace("seq_len = 24", "seq_len = 80")
    FIGURES = ("accuracy", "margin", "chosen_reward", "rejected_reward")


# What no objective plays a part in.
for name in dir(Interruption):
    if name.startswith("test_") and name not in ("test_kills_at_any_moment",
                                                 "test_signals_save_and_end_with_75",
                                                 "test_a_run_that_ends_before_its_first_step_is_continued"):
        setattr(PreferenceInterruption, name, None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
