# SPDX-License-Identifier: MIT
"""kformer-scaling: what grids of ranks send and need is what formulae and forecasts say, and simulations are marked.

ctest runs this with the program in KFORMER_SCALING, mpiexec in KFORMER_MPIEXEC and the sources in KFORMER_SOURCE.
"""

import json
import os
import signal
import subprocess
import time
import unittest

import driver_case
from driver_case import CommandLine, DriverTest, check_file, h5py, needs_h5py, needs_xarray, texts, words

MPIEXEC = os.environ.get("KFORMER_MPIEXEC")


def grids_in(part):
    """That are finished. The file is replaced as a whole."""
    if not part.exists():
        return 0
    with h5py.File(part) as file:
        return len(file["cases/grid"]) if "cases" in file else 0


class ScalingTest(DriverTest):
    NAME = "kformer-scaling"
    PROGRAM = os.environ["KFORMER_SCALING"]
    SMOKE_DECK = driver_case.SMOKE / "scaling.toml"
    SMALL = """schema = 1
kind = "scaling"
[run]
threads = 1
[model]
hidden_size = 32
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 64
num_hidden_layers = 2
vocab_size = 259
[batch]
seq_len = 16
micro_batch = 1
sequences = 4
[timing]
repeats = 1
warmup = 1
min_time_s = 0
[sweep]
"""

    def study(self, keys, *settings, ranks=None, launcher=(), expect=0):
        self.deck(keys)
        start = [] if ranks is None else [MPIEXEC, "-n", str(ranks), *launcher]
        options = [word for setting in ("output.overwrite=true", *settings) for word in ("--set", setting)]
        done = subprocess.run([*start, self.PROGRAM, "deck.toml", *options], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout


class TheCommandLine(CommandLine, ScalingTest):
    pass


@needs_h5py
class OneRank(ScalingTest):
    def test_decks_of_the_project(self):
        self.check_decks_of_the_project("scaling", 2)

    def test_what_cannot_run_says_why(self):
        output = self.study('grids = ["1x1x1", "2x1x1"]\n')
        self.assertIn("the grid needs 2 ranks, but 1 was started; run mpiexec -n 2 kformer-scaling …", output)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok", "unsupported"])
            self.assertEqual(file["cases/efficiency"][0], 1)
        self.assertIn("no case ran", self.study('grids = ["2x1x1"]\n', expect=7))

    def test_noise_is_marked_and_said(self):
        # A lone short sample is always noise; samples of a second each are what they are.
        for timing, lone in (([], True), (["timing.repeats=3", "timing.min_time_s=0.2"], False)):
            with self.subTest(lone=lone):
                output = self.study('grids = ["1x1x1"]\n', *timing)
                with h5py.File(self.folder / "deck.h5") as file:
                    found, seconds = words(file["cases/noisy"]), file["cases/time"][0]
                p10, median, p90 = driver_case.np.nanquantile(seconds, (0.1, 0.5, 0.9))
                expected = "yes" if lone or p90 - p10 > 0.25 * median else "no"
                self.assertEqual(found, [expected])
                self.assertEqual("! " in output, expected == "yes", output)
                self.assertEqual("noise: 1 of 1 cases (marked !)" in output, expected == "yes", output)
                self.assertEqual("100.0 %" in output, expected == "no", output)  # of itself

    def test_a_grid_that_lacks_memory_is_recorded(self):
        preload = os.environ.get("KFORMER_FAILING_NEW")
        if preload is None:
            self.skipTest("the build has no MPI")
        for setting, code in (("record", 7), ("abort", 6)):
            self.deck('grids = ["1x1x1"]\n')
            command = [self.PROGRAM, "deck.toml", "--overwrite", "--set", "timing.min_time_s=2", "--set", f"run.on_oom={setting}"]
            with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "LD_PRELOAD": preload}) as run:
                while run.poll() is None and not (self.folder / "deck.h5.part").exists():
                    time.sleep(0.05)
                time.sleep(2)  # while the grid runs, an allocation fails
                run.send_signal(signal.SIGRTMIN)
                output = run.communicate(timeout=60)[0]
            self.assertEqual(run.returncode, code, output)
            self.assertIn("memory ran out (std::bad_alloc)", output)
            if setting == "record":
                with h5py.File(self.folder / "deck.h5") as file:
                    self.assertEqual(words(file["cases/status"]), ["out_of_memory"])
        self.run_driver("deck.toml", "--overwrite")

    def test_decks_that_are_wrong(self):
        for keys, sentence in (
                ('grids = ["2x1"]\n', "'sweep.grids' has '2x1', which is no grid"),
                ('grids = ["0x1x1"]\n', "'sweep.grids' has '0x1x1', which is no grid"),
                ('grids = ["1x1x1", "1x1x1"]\n', "'sweep.grids' has '1x1x1' twice"),
                ("grids = []\n", "'sweep.grids' is empty"),
                ('grids = ["1x1x1x0"]\n', "'sweep.grids' has '1x1x1x0', which is no grid"),
                ('grids = ["1x1x1x2x1"]\n', "'sweep.grids' has '1x1x1x2x1', which is no grid"),
                ('grids = ["256x257x1"]\n', "'sweep.grids' has '256x257x1', which is no grid"),
                # 2^64 ranks.
                ('grids = ["65536x65536x65536x65536"]\n', "'sweep.grids' has '65536x65536x65536x65536', which is no grid"),
                ('grids = ["1x1x1x2"]\nparts = 2\n', "'sweep.parts' = 2 needs 'sweep.schedule' = \"interleaved\""),
                ('grids = ["1x1x1x2"]\nschedule = "interleaved"\n', "'sweep.schedule' = \"interleaved\" needs 'sweep.parts' > 1"),
                ('grids = ["1x1x1"]\n[simulate]\ngrids = ["2x1x1"]\n', "[simulate] needs [machine]")):
            self.assertIn(sentence, self.study(keys, expect=3))

    def test_simulations_are_marked(self):
        machine = ('[simulate]\ngrids = ["1x1x1", "4x1x1", "2x1x2", "3x1x1"]\n[machine]\nflop_rate = 1e9\nmemory_bandwidth = 1e9\n'
                   "bandwidth_inside = 1e30\nbandwidth_between = 1e30\n")
        output = self.study('grids = ["1x1x1"]\n' + machine)
        self.assertRegex(output, r"4x1x1 .* ~[\d.]+ %.* ~[\d.]+ ms .* simulated")
        self.assertIn("~: simulated, not measured", output)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(texts(file["cases/grid"]), ["1x1x1"])
            grids = file["simulation/grids"]
            self.assertEqual(grids.attrs["simulated"], 1)
            self.assertEqual(texts(grids["grid"]), ["1x1x1", "1x1x1", "4x1x1", "2x1x2"])
            self.assertEqual(grids["case"][()].tolist(), [0, -1, -1, -1])
            self.assertTrue((grids["measured_time"][1:] != grids["measured_time"][1:]).all())
            times = grids["simulated_time"][()]
        # Without messages only the optimizer is not divided.
        self.assertLess(times[2], times[1] / 2)
        self.assertGreater(times[2], times[1] / 4)

    @needs_xarray
    def test_a_study_of_which_nothing_ran_fits_its_schema(self):
        self.study('grids = ["2x1x1"]\n[simulate]\ngrids = ["1x1x1"]\n[machine]\nflop_rate = 1e9\nmemory_bandwidth = 1e9\n'
                   "bandwidth_inside = 1e30\nbandwidth_between = 1e30\n")
        self.assertEqual(check_file(self.folder / "deck.h5"), [])


@unittest.skipIf(MPIEXEC is None, "the build has no MPI")
@needs_h5py
class Grids(ScalingTest):
    def check_numbers(self, grids):
        """What ranks send is what the formulae say, in each operation; memory is as forecast."""
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok"] * grids)
            sent = file["communication"]
            self.assertEqual(sent["bytes"][()].tolist(), sent["expected_bytes"][()].tolist())
            self.assertGreater(sent["bytes"].size, 0)
            memory = file["memory/ranks"]
            self.assertEqual(memory["predicted_bytes"][()].tolist(), memory["peak_bytes"][()].tolist())
            self.assertEqual(memory["rank"].size, int(file["cases/ranks"][()].sum()))
            return {name: file["cases"][name][()].tolist() for name in ("tokens", "efficiency", "time_median", "ranks")}

    def test_steps_on_all_axes(self):
        for zero in (0, 1, 2):
            self.study('grids = ["1x1x1", "4x1x1", "1x2x2", "2x1x2", "2x2x1"]\n', f"sweep.zero={zero}", ranks=4)
            cases = self.check_numbers(5)
            self.assertEqual(cases["tokens"], [64] * 5)

    def test_stages_of_a_pipeline(self):
        grids = 'grids = ["1x1x1x2", "2x1x1x2", "1x2x1x2", "1x1x2x2", "1x1x1x4"]\n'
        for settings in (["model.num_hidden_layers=5", "sweep.zero=1"], ["model.num_hidden_layers=5", "sweep.zero=2"],
                         ["model.num_hidden_layers=9", 'sweep.schedule="interleaved"', "sweep.parts=2", "sweep.zero=2",
                          "model.tie_word_embeddings=true"],
                         ["model.num_hidden_layers=9", 'sweep.schedule="interleaved"', "sweep.parts=2", "sweep.sequence=true",
                          "model.tie_word_embeddings=true"],
                         ["model.num_hidden_layers=4", 'sweep.schedule="zero_bubble"', "sweep.zero=2", "sweep.sequence=true", 'model.model_type="qwen3"']):
            self.study(grids, *settings, ranks=4)
            self.check_numbers(5)
            with h5py.File(self.folder / "deck.h5") as file:
                for table in ("cases", "simulation/grids"):
                    bubbles = file[table]["bubble_share"][()]
                    self.assertTrue(((bubbles > 0) & (bubbles < 1)).all(), bubbles)

    def test_tokens_that_ranks_divide(self):
        self.study('grids = ["1x1x2", "2x1x2", "1x2x2"]\nsequence = true\n', "sweep.zero=2", ranks=4)
        self.check_numbers(3)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(file["cases/sequence"][()].tolist(), [1, 1, 1])

    def test_heads_with_norms_and_a_long_message(self):
        self.study('grids = ["1x1x2", "2x1x2"]\n', 'model.model_type="qwen3"', "sweep.zero=2", "batch.seq_len=512", 'precision.storage="bf16"',
                   ranks=4)
        self.check_numbers(2)

    def test_keys_that_go_round(self):
        for settings in (["sweep.zero=1", 'precision.storage="bf16"'],
                         ["model.num_hidden_layers=4", 'sweep.schedule="zero_bubble"', "sweep.sequence=true"]):
            self.study('grids = ["1x2x1", "1x4x1", "1x2x2", "2x2x1", "1x2x1x2"]\ncontext_exchange = "ring"\n', *settings, ranks=4)
            self.check_numbers(5)
            with h5py.File(self.folder / "deck.h5") as file:
                self.assertEqual(words(file["cases/context_exchange"]), ["ring"] * 5)
                self.assertIn("shift", texts(file["communication/operation"]))
                self.assertEqual(file["simulation/grids/simulated_time"].size, 5)
        output = self.study('grids = ["1x1x1", "1x2x1"]\ncontext_exchange = "ring"\n', "model.sliding_window=4", ranks=2)
        self.assertIn("a window lies across the parts of a ring", output)

    def test_layers(self):
        for settings in ([], ["sweep.sequence=true"], ['sweep.context_exchange="ring"']):
            self.study('grids = ["1x1x1", "1x1x2", "1x2x1", "1x2x2"]\nwhat = "layer"\n', *settings, ranks=4)
            self.check_numbers(4)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertNotIn("simulation", file)

    def test_weak_scaling(self):
        self.study('grids = ["1x1x1", "2x1x1", "1x1x2"]\nscaling = "weak"\n', ranks=2)
        cases = self.check_numbers(3)
        self.assertEqual(cases["tokens"], [64, 128, 64])
        rates = [tokens / time / ranks for tokens, time, ranks in zip(cases["tokens"], cases["time_median"], cases["ranks"])]
        for efficiency, rate in zip(cases["efficiency"], rates):
            self.assertAlmostEqual(efficiency, rate / rates[0], 12)

    def test_grids_that_divide_nothing(self):
        output = self.study('grids = ["1x1x1", "3x1x1", "1x3x1", "1x1x3"]\n', ranks=3)
        output += self.study('grids = ["1x1x3", "1x1x1x3"]\nsequence = true\n', "model.num_attention_heads=6",
                             "model.num_key_value_heads=3", "model.intermediate_size=96", "model.hidden_size=48", ranks=3, expect=7)
        output += self.study('grids = ["1x1x1x2"]\nwhat = "layer"\n', ranks=2, expect=7)
        for sentence in ("3 ranks along tensor do not divide the 16 tokens of a rank, as 'sweep.sequence' wants",
                         "'parallel.pipeline' = 3 ranks with 1 part of the model each need as many layers",
                         "stages of a pipeline do not divide a layer; set 'sweep.what' = \"step\"",
                         "4 sequences of a step are not as many micro-batches of 1 for each of 3 ranks along data",
                         "3 ranks along context need a 'batch.seq_len' that is a multiple of 6, not 16",
                         "'parallel.tensor' = 3 ranks do not divide 'num_attention_heads' = 4"):
            self.assertIn(sentence, " ".join(output.split()))  # which a terminal breaks

    def test_ranks_share_the_cores_of_their_machine_whatever_the_launcher_says(self):
        wrong = [f"{name}=1" for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")]
        self.study('grids = ["1x1x1", "2x1x1"]\n', ranks=2, launcher=("env", *wrong))
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(len(set(file["simulation/grids/cores"][()].tolist())), 1)

    def test_a_study_is_resumed(self):
        self.deck('grids = ["1x1x1", "2x1x1", "1x2x1"]\n[simulate]\ngrids = ["4x1x1"]\n[machine]\nflop_rate = 1e9\n'
                  "memory_bandwidth = 1e9\nbandwidth_inside = 1e30\nbandwidth_between = 1e30\n")
        command = [MPIEXEC, "-n", "2", self.PROGRAM, "deck.toml", "--set", "timing.min_time_s=0.5"]
        part = self.folder / "deck.h5.part"
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            while run.poll() is None and grids_in(part) == 0:
                time.sleep(0.05)
            self.signal_rank(0, signal.SIGTERM)  # while the second one runs
            output = run.communicate(timeout=120)[0]
        self.assertEqual(run.returncode, 75, output)
        self.assertIn("the finished grids are in deck.h5.part, and --resume goes on with them", output)
        with h5py.File(part) as file:
            before = file["cases/time"][()].tolist()
        self.assertEqual(len(before), 2)
        done = subprocess.run([*command, "--resume"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("resumed: 2 of 3 grids are from deck.h5.part", done.stdout)
        self.assertRegex(done.stdout, r"(?s)1x1x1 .*2x1x1 .*1x2x1 .*4x1x1 ")
        self.check_numbers(3)
        with h5py.File(self.folder / "deck.h5") as file:
            cases, simulated = file["cases"], file["simulation/grids"]
            self.assertEqual(cases["time"][:2].tolist(), before)
            rates = cases["token_rate"][()] / cases["ranks"][()]
            for found, wanted in zip(cases["efficiency"][()], rates / rates[0], strict=True):
                self.assertAlmostEqual(found, wanted)
            self.assertEqual(simulated["case"][()].tolist(), [0, 1, 2, -1])
            times = simulated["simulated_time"][()]
            self.assertAlmostEqual(simulated["efficiency"][2], times[0] / times[2] / 2)

    def test_ranks_may_do_nothing_but_simulate(self):
        self.study('grids = ["64x1x1"]\n[simulate]\ngrids = ["4x1x1"]\n[machine]\nflop_rate = 1e9\nmemory_bandwidth = 1e9\n'
                   "bandwidth_inside = 1e30\nbandwidth_between = 1e30\n", ranks=2)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(texts(file["simulation/grids/grid"]), ["4x1x1"])

    def test_a_study_on_fewer_ranks_is_not_resumed(self):
        self.deck('grids = ["2x1x1", "1x1x1", "1x2x1"]\n')
        command = [self.PROGRAM, "deck.toml", "--set", "timing.min_time_s=2"]
        part = self.folder / "deck.h5.part"
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            while run.poll() is None and grids_in(part) == 0:
                time.sleep(0.05)
            run.send_signal(signal.SIGTERM)  # while the second one runs
            output = run.communicate(timeout=120)[0]
        self.assertEqual(run.returncode, 75, output)
        done = subprocess.run([MPIEXEC, "-n", "2", *command, "--resume"], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("cannot be continued: grid 2x1x1 lacked ranks then and does not now", done.stdout)
        self.assertTrue(part.exists())

    def test_a_table_for_programs(self):
        self.deck('grids = ["2x1x1"]\n')
        # mpiexec of Open MPI 5 now and then forwards a line of a standard output to the standard error.
        for _ in range(5):
            done = subprocess.run([MPIEXEC, "-n", "2", self.PROGRAM, "deck.toml", "--overwrite", "--format", "json"], cwd=self.folder,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120, check=True)
            if rows := json.loads(done.stdout):
                break
        row, = rows
        self.assertEqual((row["grid"], row["ranks"], row["status"]), ("2x1x1", 2, "ok"))


if __name__ == "__main__":
    unittest.main()
