# SPDX-License-Identifier: MIT
"""Trainings of several ranks: they have the bits of one in the fixed order, continue from each other's checkpoints, need the
memory of their forecast and send the bytes of the formulae; a rank that is lost ends the others.

ctest runs this with the program in KFORMER_TRAIN, mpiexec in KFORMER_MPIEXEC, the library of failing_new.cpp in
KFORMER_FAILING_NEW, that of slow_fsync.cpp in KFORMER_SLOW_FSYNC and the sources in KFORMER_SOURCE.
"""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from driver_case import SOURCE, h5py, needs_h5py, read_safetensors
from train_case import TEXT, TINY, TrainTest, set_options

MPIEXEC = os.environ.get("KFORMER_MPIEXEC")

# Six steps of eight micro-batches.
KEYS = """micro_batch = 2
sequences = 15
[run]
threads = 1
[optimizer]
lr = 1e-2
max_norm = 1
weight_decay = 0.1
[schedule]
kind = "cosine"
steps = 6
"""
BATCHES = 8
# Of builds with and without NCCL.
NCCL_REFUSED = "error: 'parallel.backend' = \"nccl\" "


@unittest.skipIf(MPIEXEC is None, "the build has no MPI")
class RanksTest(TrainTest):
    def start(self, ranks, keys, *settings, launcher=(), **options):
        """`launcher`: what starts each rank."""
        self.deck(keys)
        command = [] if ranks is None else [MPIEXEC, "-n", str(ranks), *launcher]
        return subprocess.Popen([*command, self.PROGRAM, "deck.toml", *set_options(*settings)], cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)

    def train_on(self, ranks, keys, *settings, expect=0):
        """`ranks` None: one process without mpiexec."""
        with self.start(ranks, keys, *settings) as run:
            output = run.communicate(timeout=300)[0]
        self.assertEqual(run.returncode, expect, output)
        return output

    def planned_text(self, keys, *settings):
        """What one process says of the ranks."""
        self.deck(keys)
        return self.run_driver("deck.toml", "--dry-run", *set_options(*settings)).stdout

    @staticmethod
    def bytes_text(count):
        unit, size = next((unit, size) for unit, size in (("MiB", 2**20), ("KiB", 2**10)) if count >= size)
        return f"{count / size:.2f} {unit}"

    def model(self, name):
        return (self.folder / name / "model.safetensors").read_bytes()

    def numbers(self):
        return [self.steps(column).tolist() for column in ("loss", "gradient_norm", "tokens")]


@needs_h5py
class Grids(RanksTest):
    def check_same_bits(self, *settings, keys=KEYS, grids=((2, 0), (2, 2), (4, 1), (8, 0), (8, 2))):
        fixed = ("parallel.order=\"fixed\"", "output.model=\"model\"", *settings)
        self.train_on(None, keys, "parallel.data=1", *fixed)
        numbers, model = self.numbers(), self.model("model")
        self.assertTrue(all(loss > 0 for loss in numbers[0]))
        for ranks, zero in grids:
            with self.subTest(ranks=ranks, zero=zero):
                shutil.rmtree(self.folder / "model")
                self.train_on(ranks, keys, f"parallel.data={ranks}", f"parallel.zero={zero}", *fixed)
                self.assertEqual(self.numbers(), numbers)
                self.assertEqual(self.model("model"), model)

    def test_float(self):
        self.check_same_bits()

    def test_bf16_with_states_in_8_bits(self):
        self.check_same_bits('precision.storage="bf16"', 'optimizer.states="int8"', grids=((2, 1), (4, 2)))

    def test_packed_sequences_that_are_recomputed(self):
        self.check_same_bits('data.packing="best_fit"', 'memory.recompute="layer"', grids=((4, 1),))

    def test_adapters_with_dropout(self):
        keys = KEYS + "[adapter]\nrank = 4\ndropout = 0.2\n"
        self.check_same_bits(keys=keys, grids=((4, 1), (2, 2)))

    def test_messages_during_backward(self):
        self.check_same_bits("parallel.overlap=true", "parallel.bucket_mib=1", 'memory.recompute="nested"',
                             grids=((2, 1), (4, 2)))

    def test_a_timeline_shows_messages_during_backward(self):
        # A layer has 3 MB of gradients.
        (self.folder / "wide.toml").write_text(
            'schema = 1\nkind = "train"\n[run]\nthreads = 1\n[profile]\nmachine_limits = false\nkernels = true\ntimeline = true\n'
            "[model]\nhidden_size = 256\nnum_attention_heads = 4\nnum_key_value_heads = 2\nintermediate_size = 768\n"
            'num_hidden_layers = 3\nvocab_size = 259\n[init]\n[tokenizer]\nformat = "byte"\n[data]\n'
            f'train = ["{TEXT}"]\n[batch]\nseq_len = 32\nmicro_batch = 1\nsequences = 2\n[schedule]\nsteps = 2\n'
            "[parallel]\ndata = 2\nbucket_mib = 1\n")
        for overlap in (True, False):
            subprocess.run([MPIEXEC, "-n", "2", self.PROGRAM, "wide.toml",
                            *set_options(f"parallel.overlap={str(overlap).lower()}")], cwd=self.folder, check=True,
                           stdout=subprocess.DEVNULL, timeout=300)
            with h5py.File(self.folder / "wide.h5") as file:
                columns = [file["timeline"][name][()].tolist() for name in ("rank", "kind", "name", "begin", "duration")]
            for rank in (0, 1):
                own = [(kind.decode(), name.decode(), begin, begin + duration) for of, kind, name, begin, duration
                       in zip(*columns) if of == rank]
                sections = [(begin, end) for kind, name, begin, end in own if (kind, name) == ("section", "reduce_shards")]
                self.assertTrue(sections)
                # Sums of what has arrived are always in there.
                under_way = [name for kind, name, time, _ in own if kind in ("for", "reduce") and "Collectives" not in name
                             and any(begin < time < end for begin, end in sections)]
                self.assertEqual(bool(under_way), overlap, (overlap, rank))

    def test_any_order_differs_by_rounding(self):
        settings = ('precision.storage="f64"', 'output.model="model"')
        self.train_on(None, KEYS, *settings)
        numbers, model = self.numbers(), read_safetensors(self.folder / "model" / "model.safetensors")
        for ranks, zero in ((3, 1), (4, 0), (3, 2)):
            self.train_on(ranks, KEYS, f"parallel.data={ranks}", f"parallel.zero={zero}", *settings)
            for ours, theirs in zip(self.numbers(), numbers):
                for a, b in zip(ours, theirs):
                    self.assertLess(abs(a - b), 1e-12 * abs(b) + 1e-300)
            for name, values in read_safetensors(self.folder / "model" / "model.safetensors").items():
                self.assertLess(abs(values - model[name]).max(), 1e-12, name)

    def test_evaluations_are_the_same(self):
        keys = KEYS + "[evaluation]\nevery_steps = 3\nsequences = 7\n"
        validation = f'data.validation=["{Path(os.environ["KFORMER_SOURCE"]) / "LICENSE"}"]'
        losses = []
        for ranks in (1, 2, 4):
            self.train_on(ranks, keys, f"parallel.data={ranks}", 'parallel.order="fixed"', validation)
            losses.append(self.column("loss", "evaluations").tolist())
        self.assertEqual(len(losses[0]), 2)
        self.assertEqual(losses[1:], losses[:1] * 2)

    def test_memory_and_bytes(self):
        for ranks, zero in ((2, 0), (4, 1), (2, 2)):
            self.train_on(ranks, KEYS, f"parallel.data={ranks}", f"parallel.zero={zero}", 'parallel.order="fixed"')
            with h5py.File(self.folder / "deck.h5") as file:
                memory, sent = file["memory/ranks"], file["communication"]
                self.assertEqual(memory["predicted_bytes"][()].tolist(), memory["peak_bytes"][()].tolist())
                self.assertEqual(memory["peak_total_bytes"].shape, (ranks,))
                self.assertEqual(memory["predicted_total_bytes"][()].tolist(), memory["peak_total_bytes"][()].tolist())
                # Each rank reserves its own.
                self.assertEqual(memory["scratch_bytes"][()].tolist(), file["cases/scratch_bytes"][()].tolist() * ranks)
                parameters = int(file["cases/parameters"][0])
                of = {}
                for region, sent_bytes in zip(sent["region"].asstr()[()], sent["bytes"][()]):
                    of[region] = of.get(region, 0) + int(sent_bytes)
            once = 6 * (ranks - 1) * 4 * parameters
            self.assertEqual(of["gradients"], once * (2, 1, BATCHES // ranks)[zero])
            self.assertEqual(of.get("weights", 0), once if zero else 0)

    def test_forecasts_of_ranks_that_are_not_there(self):
        """By kformer-train on one process, and by kformer-memory."""
        for data, zero, order, overlap in ((4, 1, "any", "true"), (2, 0, "fixed", "false"), (8, 1, "any", "false"),
                                           (4, 2, "fixed", "true"), (3, 2, "any", "false")):
            with self.subTest(data=data, zero=zero, order=order):
                settings = (f"parallel.data={data}", f"parallel.zero={zero}", f'parallel.order="{order}"',
                            f"parallel.overlap={overlap}")
                plan = self.planned_text(KEYS, *settings)
                self.train_on(data, KEYS, *settings)
                with h5py.File(self.folder / "deck.h5") as file:
                    peak = int(file["memory/ranks/peak_total_bytes"][0])
                self.assertIn(f"memory      {self.bytes_text(peak)} (", plan)
                (self.folder / "plan.toml").write_text(
                    f'schema = 1\nkind = "memory_plan"\n[run]\nthreads = 1\n[weights]\npath = "{TINY}"\n'
                    '[sweep]\npurpose = "train"\nbatch = 2\ncontext = 24\n[training]\nsequences = 15\n'
                    f'[parallel]\ndata = {data}\nzero = {zero}\norder = "{order}"\noverlap = {overlap}\n')
                subprocess.run([os.environ["KFORMER_MEMORY"], "plan.toml", *set_options()], cwd=self.folder, check=True,
                               stdout=subprocess.DEVNULL)
                self.assertEqual(int(self.column("predicted_bytes", "cases", "plan.h5")[0]), peak)


@needs_h5py
class Checkpoints(RanksTest):
    KEYS = KEYS + '[checkpoint]\nfolder = "saved"\nevery_steps = 2\n'

    def files(self):
        return sorted(path.name for path in (self.folder / "saved").iterdir())

    def test_another_grid_continues_with_the_same_bits(self):
        fixed = ('parallel.order="fixed"', 'output.model="model"')
        for first, then in (((4, 1), (2, 2)), ((1, 0), (4, 1)), ((4, 2), (8, 1)), ((8, 2), (1, 0))):
            with self.subTest(first=first, then=then):
                shutil.rmtree(self.folder / "saved", ignore_errors=True)
                grid = [(f"parallel.data={ranks}", f"parallel.zero={zero}") for ranks, zero in (first, then)]
                self.train_on(first[0], self.KEYS, *fixed, *grid[0])
                numbers, model = self.numbers(), self.model("model")
                for path in (self.folder / "saved").glob("step-00000006*"):
                    path.unlink()
                self.assertEqual(len(self.files()), 2 * first[0])
                shutil.rmtree(self.folder / "model")
                output = self.train_on(then[0], self.KEYS, *fixed, *grid[1], "checkpoint.resume=true")
                self.assertIn("resumed after step 4", output)
                self.assertEqual(self.numbers(), numbers)
                self.assertEqual(self.model("model"), model)

    def test_a_damaged_part_is_passed_over_and_said_once(self):
        self.train_on(2, self.KEYS, "parallel.data=2")
        part = self.folder / "saved/step-00000006.rank-1-of-2.safetensors"
        part.write_bytes(part.read_bytes()[:-1])
        output = self.train_on(2, self.KEYS, "parallel.data=2", "checkpoint.resume=true")
        self.assertIn("resumed after step 4", output)
        self.assertEqual(output.count("warning: 'saved/step-00000006"), 1, output)

    def test_the_newest_stay(self):
        self.train_on(2, self.KEYS, "parallel.data=2", "checkpoint.keep=1")
        self.assertEqual(self.files(), ["step-00000006.rank-1-of-2.safetensors", "step-00000006.safetensors"])

    def test_a_signal_stops_all_ranks(self):
        with self.start(2, self.KEYS, "parallel.data=2", "schedule.steps=100000") as run:
            self.wait_for_steps()
            self.signal_rank(1, signal.SIGUSR1)
            output = run.communicate(timeout=60)[0]
        self.assertEqual(run.returncode, 75, output)
        self.assertIn("another rank stops", output)

    def wait_for_steps(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and not list((self.folder / "saved").glob("step-00000004.safetensors")):
            time.sleep(0.02)

    def start_slowly(self, path):
        """Its file takes longer to write than ranks may take to answer."""
        return self.start(2, self.KEYS, "parallel.data=2", 'output.model="model"', "parallel.timeout_s=1", "schedule.steps=4",
                          launcher=("env", f"LD_PRELOAD={os.environ['KFORMER_SLOW_FSYNC']}", f"KFORMER_SLOW_FILE={path}"))

    def test_a_rank_that_is_stopped_while_it_writes_ends_the_others(self):
        with self.start_slowly("model.safetensors") as run:
            end = time.monotonic() + 60
            while time.monotonic() < end and not list(self.folder.rglob("model.safetensors*")):
                time.sleep(0.02)
            time.sleep(0.5)
            self.signal_rank(0, signal.SIGSTOP)
            try:
                output = run.communicate(timeout=60)[0]
            finally:
                if run.poll() is None:
                    self.signal_rank(0, signal.SIGCONT)
        self.assertNotEqual(run.returncode, 0, output)
        self.assertRegex(output.replace("\n", " "), r"rank 1 of 'writers' \(2 ranks\) waited \d+ s in vain for .*rank 0")

    def test_ranks_wait_for_a_model_that_is_written(self):
        """However slow the disk is: here slower than ranks may be."""
        for path in ("model.safetensors", "step-0000000"):
            with self.start_slowly(path) as run:
                output = run.communicate(timeout=120)[0]
            self.assertEqual(run.returncode, 0, output)
            shutil.rmtree(self.folder / "saved")
            shutil.rmtree(self.folder / "model")

    @staticmethod
    def is_hydra():
        """Whether the launcher is MPICH's, which names no rank. If one was killed, it may even say nothing and end with 0."""
        return "HYDRA" in subprocess.run([MPIEXEC, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout

    def test_a_lost_rank_ends_the_others(self):
        """The last checkpoint is good, and a run that goes on from it has the bits of one that lost no rank."""
        fixed = ('parallel.order="fixed"', "parallel.data=2", 'output.model="model"')
        self.train_on(2, self.KEYS, *fixed, "schedule.steps=120")
        numbers, model = self.numbers(), self.model("model")
        for number, sentence in (
                # In a step, or between steps, where ranks wait for each other's part of a checkpoint.
                (signal.SIGSTOP, r"rank 0 of '(world|writers)' \(2 ranks\) waited 2 s in vain for .*rank 1"),
                # So does the system where memory runs out. The launcher names the rank.
                (signal.SIGKILL, r"(?i)rank 1.*signal 9|signal 9.*rank 1"),
                # Where an allocation fails: failing_new.cpp.
                (signal.SIGRTMIN, r"error: memory ran out \(std::bad_alloc\).*rank 1 of 2 ends with exit code 6, and ends the others")):
            with self.subTest(number=number):
                shutil.rmtree(self.folder / "saved")
                shutil.rmtree(self.folder / "model")
                with self.start(2, self.KEYS, *fixed, "schedule.steps=120", "parallel.timeout_s=2",
                                launcher=("env", f"LD_PRELOAD={os.environ['KFORMER_FAILING_NEW']}")) as run:
                    self.wait_for_steps()
                    self.signal_rank(1, number)
                    output = run.communicate(timeout=60)[0]
                if number != signal.SIGKILL or not self.is_hydra():
                    self.assertNotEqual(run.returncode, 0, output)
                    self.assertRegex(output.replace("\n", " "), sentence)
                self.assertFalse((self.folder / "model").exists())
                output = self.train_on(2, self.KEYS, *fixed, "schedule.steps=120", "checkpoint.resume=true")
                self.assertIn("resumed after step", output)
                self.assertEqual(self.numbers(), numbers)
                self.assertEqual(self.model("model"), model)


class Refusals(RanksTest):
    def test_sentences(self):
        for ranks, settings, sentence in (
                (2, (), "error: 2 ranks were started, but the deck has no [parallel]; set parallel.data = 2, or start one"),
                (None, ("parallel.data=4",),
                 "error: 'parallel.data' = 4 needs 4 ranks, but 1 was started; run mpiexec -n 4 kformer-train …"),
                (2, ("parallel.data=4",), "error: 'parallel.data' = 4 needs 4 ranks, but 2 were started"),
                (2, ("parallel.data=2", 'parallel.backend="nccl"', 'run.execution_space="openmp"'), NCCL_REFUSED),
                (2, ("parallel.data=16",),
                 "'parallel.data' = 16 ranks cannot share a step: a step has 8 micro-batches ('batch.sequences' = 15, "
                 "'batch.micro_batch' = 2), and with 1 on each some ranks have none; 8 ranks can, or change [batch]"),
                (None, ("parallel.data=3", 'parallel.order="fixed"'),
                 "'parallel.order' = \"fixed\" needs a power of two of micro-batches on each rank, not 3: a step has 8 "
                 "micro-batches"),
                (None, ("parallel.data=3", "parallel.zero=2", 'parallel.order="fixed"'),
                 "'parallel.order' = \"fixed\" with 'parallel.zero' = 2 needs a power of two of ranks, each with as many "
                 "micro-batches, not 3 ranks: a step has 8 micro-batches")):
            with self.subTest(sentence=sentence):
                output = self.train_on(ranks, KEYS, *settings, expect=3)
                self.assertIn(sentence, output)
                self.assertEqual(output.count(sentence), 1)
                self.assertFalse(list(self.folder.glob("*.h5*")))

    def train_apart(self, of_second, keys=KEYS):
        """Two ranks, of which the second has settings of its own."""
        (self.folder / "start.sh").write_text('[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || exec "$@" $SECOND\nexec "$@"\n')
        with self.start(2, keys, "parallel.data=2", launcher=("sh", "./start.sh"),
                        env={**os.environ, "SECOND": of_second}) as run:
            output = run.communicate(timeout=120)[0]
        return run.returncode, output

    def test_a_rank_alone_finds_a_fault(self):
        """The other one does not wait for it until its time-out."""
        code, output = self.train_apart("--set optimizer.rate=1")
        self.assertEqual(code, 3, output)
        self.assertEqual(output.count("rank 1 of 2 cannot begin:\n"), 1)
        self.assertEqual(output.count("error: unknown key 'rate' in [optimizer]"), 1, output)

    def test_a_rank_that_does_not_start(self):
        """MPI has no time-out of its own."""
        (self.folder / "start.sh").write_text('[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || kill -STOP $$\nexec "$@"\n')
        with self.start(2, KEYS, "parallel.data=2", launcher=("sh", "./start.sh"),
                        env={**os.environ, "KFORMER_MPI_START_S": "2"}) as run:
            output = run.communicate(timeout=120)[0]
        self.assertEqual(run.returncode, 1, output)
        self.assertIn("error: MPI did not start in time: a rank is stopped, or does not run; KFORMER_MPI_START_S", output)

    def test_ranks_with_different_decks(self):
        for key, value, first in (("optimizer.lr", "0.5", "0.01"), ("batch.seq_len", "16", "24"), ("parallel.zero", "1", "0")):
            code, output = self.train_apart(f"--set {key}={value}")
            self.assertEqual(code, 3, output)
            sentence = f"error: '{key}' is {value} in the deck of this rank, and {first} in that of rank 0"
            self.assertEqual(output.count(sentence), 1, output)

    def test_ranks_with_different_files(self):
        (self.folder / "other.txt").write_text(TEXT.read_text().replace("the", "teh"))
        shutil.copytree(TINY, self.folder / "tiny")
        weights = bytearray((self.folder / "tiny/model.safetensors").read_bytes())
        weights[-1] ^= 1
        (self.folder / "tiny/model.safetensors").write_bytes(weights)
        for key, value in (("data.train", '["other.txt"]'), ("weights.path", '"tiny"')):
            code, output = self.train_apart(f"--set {key}={value}")
            self.assertEqual(code, 4, output)
            self.assertIn(f"error: what '{key}' names is not the same on rank 1 as on rank 0", output)

    def test_ranks_with_different_adapters(self):
        """In one number of B, in the dropout alone, or on one rank only."""
        adapter = SOURCE / "tests/data/adapter_case"
        for name in ("first", "numbers", "dropout"):
            (self.folder / name).mkdir()
            for file in ("adapter_config.json", "adapter_model.safetensors"):
                shutil.copy(adapter / file, self.folder / name)
        numbers = bytearray((self.folder / "numbers/adapter_model.safetensors").read_bytes())
        numbers[-1] ^= 1
        (self.folder / "numbers/adapter_model.safetensors").write_bytes(numbers)
        config = json.loads((self.folder / "dropout/adapter_config.json").read_text())
        self.assertNotEqual(config["lora_dropout"], 0.25)
        (self.folder / "dropout/adapter_config.json").write_text(json.dumps(config | {"lora_dropout": 0.25}))
        first = '[adapter]\npath = "first"\n'
        for keys, second in ((first, "numbers"), (first, "dropout"), ("[adapter]\n", "first")):
            with self.subTest(keys=keys, second=second):
                code, output = self.train_apart(f'--set adapter.path="{second}"', KEYS + keys)
                self.assertEqual(code, 4, output)
                self.assertIn("error: what 'adapter.path' names is not the same on rank 1 as on rank 0", output)
        shutil.copytree(self.folder / "first", self.folder / "copy")
        code, output = self.train_apart('--set adapter.path="copy"', KEYS + first)
        self.assertEqual(code, 0, output)

    def test_ranks_with_different_tokenizers(self):
        """Which make the same tokens of the data."""
        self.SMALL = self.SMALL.replace('format = "byte"', 'format = "hf"\npath = "tokenizer.json"')
        text = (SOURCE / "tests/fuzz/corpus/tokenizer_json/byte_level.json").read_text()
        (self.folder / "tokenizer.json").write_text(text)
        self.assertIn("<|x|>", text)
        (self.folder / "other.json").write_text(text.replace("<|x|>", "<|y|>"))
        code, output = self.train_apart('--set tokenizer.path="other.json"')
        self.assertEqual(code, 4, output)
        self.assertIn("error: what 'tokenizer.path' names is not the same on rank 1 as on rank 0", output)

    def test_ranks_with_settings_and_files_of_their_own(self):
        shutil.copytree(TINY, self.folder / "tiny")
        shutil.copy(TEXT, self.folder / "copy.txt")
        code, output = self.train_apart('--set weights.path="tiny" --set data.train=["copy.txt"] --set run.threads=2')
        self.assertEqual(code, 0, output)

    def test_objectives_of_whole_models(self):
        for kind, key, why in (("dpo", "context", "whose log-probabilities are of whole sequences and models"),
                               ("dpo", "pipeline", "whose log-probabilities are of whole sequences and models"),
                               ("grpo", "tensor", "whose completions are sampled by whole models")):
            output = self.train_on(None, KEYS + f'[objective]\nkind = "{kind}"\n', f"parallel.{key}=2", expect=3)
            self.assertIn(f"'parallel.{key}' = 2 is not for 'objective.kind' = \"{kind}\", {why}; set it to 1", output)


if __name__ == "__main__":
    unittest.main()
