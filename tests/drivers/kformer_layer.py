# SPDX-License-Identifier: MIT
"""The driver kformer-layer from outside: command line, decks, exit codes, result files, and what a kill leaves behind.

ctest runs this with the program in KFORMER_LAYER, the sources in KFORMER_SOURCE and the given data in KFORMER_DATA.
"""

import json
import os
import subprocess
import sys
import tomllib
import unittest
from pathlib import Path

import driver_case
from driver_case import (DriverTest, counts_waits, decks_of_kind, h5py, needs_h5py, read_safetensors, texts, words,
                         write_safetensors)

if h5py is not None:
    import numpy as np

RANDOM_LAYER = driver_case.SOURCE / "tests/data/layer_case/random_layer"  # see scripts/make_layer_case
TRAINED_LAYER = Path(os.environ.get("KFORMER_DATA", "")) / "layer_case/stories260K_layer0"


class LayerTest(DriverTest):
    NAME = "kformer-layer"
    PROGRAM = os.environ["KFORMER_LAYER"]
    SMOKE_DECK = driver_case.SMOKE / "layer.toml"
    FEW = ("profile.machine_limits=false", "sweep.dtype=f32", "sweep.impl=flash", "sweep.direction=forward")
    # A layer whose cases take milliseconds; the cases come from the test.
    SMALL = """schema = 1
kind = "layer_sweep"
[model]
hidden_size = 64
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 96
[timing]
repeats = 2
min_time_s = 0.0
[profile]
machine_limits = false
[sweep]
"""


class CommandLine(driver_case.CommandLine, LayerTest):
    def test_a_published_model_needs_no_deck(self):
        deck = self.run_driver("--model", "llama-3.2-1b", "--print-deck").stdout
        self.assertEqual(tomllib.loads(deck)["model"]["hidden_size"], 2048)
        (self.folder / "printed.toml").write_text(deck)
        self.assertEqual(self.run_driver("printed.toml", "--print-deck").stdout, deck)

    def test_a_published_model_replaces_that_of_a_deck(self):
        deck = tomllib.loads(self.run_driver(self.SMOKE_DECK, "--model", "Qwen/Qwen2.5-0.5B-Instruct", "--set",
                                             "model.rope_theta=7", "--print-deck").stdout)
        self.assertEqual([deck["model"][key] for key in ("hidden_size", "num_key_value_heads", "rope_theta")], [896, 2, 7])
        self.assertEqual(deck["run"]["name"], "layer-Qwen2.5-0.5B-Instruct")
        self.assertIn("a published model is named by --model llama-3.2-1b", self.run_driver("llama-3.2-1b", expect=2).stderr)
        self.assertIn("did you mean 'llama-3.2-1b'", self.run_driver("--model", "lama-3.2-1b", expect=4).stderr)

    def test_a_folder_replaces_all_of_the_model_of_a_deck(self):
        config = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 80}
        (self.folder / "other").mkdir()
        (self.folder / "other/config.json").write_text(json.dumps({"model_type": "llama"} | config))
        self.deck("seq_len = 4\n")
        text = (self.folder / "deck.toml").read_text()
        (self.folder / "deck.toml").write_text(text.replace("[model]\n", "[model]\nrope_theta = 7.0\n"))
        deck = tomllib.loads(self.run_driver("deck.toml", "--model", "other", "--print-deck").stdout)
        self.assertEqual({key: deck["model"][key] for key in config}, config)
        self.assertEqual((deck["model"]["rope_theta"], deck["run"]["name"]), (10000, "deck-other"))
        deck = tomllib.loads(self.run_driver("deck.toml", "--model", "other", "--set", "model.intermediate_size=96",
                                             "--print-deck").stdout)
        self.assertEqual((deck["model"]["intermediate_size"], deck["model"]["hidden_size"]), (96, 48))

    def test_words_without_quotes(self):
        self.deck("seq_len = 4\ndtype = bf16\n")
        self.assertIn('strings need quotes: "bf16"', self.run_driver("deck.toml", expect=3).stderr)

    def test_names_of_other_libraries(self):
        self.deck("seq_len = 4\n")
        for given, meant in (("bfloat16", "bf16"), ("float32", "f32"), ("half", "f16"), ("F64", "f64")):
            self.assertIn(f"did you mean '{meant}'?", self.run_driver("deck.toml", "-s", f"sweep.dtype={given}", expect=3).stderr)

    def test_tables_for_programs(self):
        self.deck('seq_len = [4, 5]\nexecution_space = "default"\ndirection = "forward"\n')
        rows = json.loads(self.run_driver("deck.toml", "--format", "json").stdout)
        self.assertEqual([row["seq_len"] for row in rows], [4, 5])
        self.assertTrue(all(row["status"] == "ok" and row["median_s"] > 0 for row in rows))
        head, *lines = self.run_driver("deck.toml", "--overwrite", "-f", "csv").stdout.splitlines()
        self.assertEqual((head.split(",")[0], len(lines)), ("execution_space", 2))
        self.assertIn("| ok |", self.run_driver("deck.toml", "--overwrite", "-f", "markdown").stdout)

    def test_lines_are_short_and_logs_quiet(self):
        self.deck('seq_len = [4, 5]\nimpl = ["standard", "flash"]\nbatch = [1, 2]\ndtype = ["f32", "bf16"]\n')
        done = self.run_driver("deck.toml")
        self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 100], [])
        self.assertNotIn("\x1b", done.stdout + done.stderr)
        self.assertNotIn("[1/", done.stderr)


class Output(driver_case.Output, LayerTest):
    pass


@needs_h5py
class Interruption(driver_case.Interruption, LayerTest):
    pass


class Decks(LayerTest):
    def test_every_deck_of_the_project_is_good(self):
        self.check_decks_of_the_project("layer_sweep", 6)

    def test_an_unknown_key_is_refused_with_its_place(self):
        self.deck("seqlen = 4\n")
        text = self.run_driver("deck.toml", expect=3).stderr
        self.assertIn("deck.toml:14:1: error: unknown key 'seqlen' in [sweep]", text)
        self.assertIn("did you mean 'seq_len'?", text)
        self.assertEqual(self.files(), ["deck.toml"])

    def test_a_bad_override_is_refused(self):
        self.deck("seq_len = 4\n")
        text = self.run_driver("deck.toml", "--set", "timing.repeats=0", expect=3).stderr
        self.assertIn("--set[1]:1:16: error: 'timing.repeats' must be an integer in [1, 100000], got integer 0", text)

    def test_a_missing_deck_is_a_file_error(self):
        self.assertIn("no-deck.toml", self.run_driver("no-deck.toml", expect=4).stderr)


@needs_h5py
class Results(LayerTest):
    def test_the_formula_of_noise_knows_lone_samples(self):
        self.run_driver(self.SMOKE_DECK, "-o", "out.h5", "--set", "timing.repeats=1", "--set", "sweep.seq_len=1",
                        "--set", "profile.machine_limits=false", "--set", "sweep.dtype=f32")
        with h5py.File(self.folder / "out.h5") as file:
            self.assertIn("core_wait_share > 0.25, or one sample alone, shorter than 0.1 s", file["cases"].attrs["noisy_formula"])

    @unittest.skipUnless(counts_waits(), "the system does not count how long threads wait for cores")
    def test_a_steady_load_is_noise(self):
        """Another program wants the core that both have. Whatever else the machine does makes the wait longer."""
        self.deck('impl = "flash"\ndirection = "forward"\ndtype = "f32"\nexecution_space = "default"\nseq_len = 4\n')
        core = {min(os.sched_getaffinity(0))}
        bind = lambda: os.sched_setaffinity(0, core)  # noqa: E731
        with subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=bind) as other:
            try:
                done = self.run_driver("deck.toml", "--set", "run.threads=1", "--set", "timing.repeats=3",
                                       "--set", "timing.min_time_s=0.3", before=bind)
            finally:
                other.kill()
        self.assertIn("noise: 1 of 1 cases (marked !)", done.stdout + done.stderr)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertGreater(file["cases/core_wait_share"][0], 0.25)
            self.assertEqual(words(file["cases/noisy"]), ["yes"])

    def test_smoke_decks(self):
        for deck in decks_of_kind("layer_sweep", "smoke/*.toml"):
            with self.subTest(deck=deck.name):
                self.check_smoke_deck(deck)

    def check_smoke_deck(self, deck):
        listed = self.run_driver(deck, "--dry-run").stdout.splitlines()[1:]
        if deck == self.SMOKE_DECK:
            path, _ = driver_case.smoke_run(self.PROGRAM, deck)
        else:
            path = self.folder / "out.h5"
            self.run_driver(deck, "-o", path, "--set", "profile.machine_limits=false")
        with h5py.File(path) as file:
            cases = file["cases"]
            self.assertEqual(file.attrs["complete"], 1)
            self.assertEqual(words(cases["status"]), ["ok"] * len(listed))
            columns = zip(texts(cases["execution_space"]), texts(cases["dtype"]), words(cases["direction"]),
                          cases["batch"][()].tolist(), cases["seq_len"][()].tolist(), texts(cases["impl"]))
            self.assertEqual([line.split() for line in listed],
                             [[space, dtype, direction, "batch", str(batch), "seq_len", str(seq_len), impl]
                              for space, dtype, direction, batch, seq_len, impl in columns])
            np.testing.assert_allclose(cases["time_median"][()], np.median(cases["time"][()], axis=1), rtol=1e-15)
            self.assertTrue((cases["time"][()] > 0).all() and (cases["flops"][()] > 0).all())
            # Of a single token the gradients of queries and keys are 0, and what is there is error alone.
            self.assertTrue((cases["max_rel_err"][()] < 0.1)[cases["seq_len"][()] > 1].all())
            np.testing.assert_array_equal(cases["predicted_bytes"][()], cases["peak_bytes"][()])
            self.check_kernels(cases)
            self.check_independence(cases, len(listed))
            self.check_limits(cases)
            self.check_memory(file)
            self.assertIn('kind = "layer_sweep"', file["provenance/deck_text"][()].decode())
            if deck == self.SMOKE_DECK:
                self.check_machine(file)
            if "kernels = true" in deck.read_text():
                self.check_profile(file)

    def check_machine(self, file):
        self.assertEqual(set(texts(file["machine/execution_space"])), set(texts(file["cases/execution_space"])))
        for dtype in ("f32", "f64", "bf16", "f16"):
            rate = file[f"machine/matmul_rate_{dtype}"]
            self.assertTrue((rate[()] > 1e6).all(), dtype)
            self.assertEqual(np.asarray(rate.attrs["units"]).astype(str), "1/s")
            self.assertIn("FLOP/s", str(rate.attrs["long_name"]))

    FORCED = """impl = ["standard", "flash"]
dtype = ["f32", "f64"]
seq_len = 40
execution_space = "default"
"""

    def test_a_slow_kernel_has_a_smaller_share(self):
        self.deck('impl = "flash"\ndtype = "f32"\nseq_len = 32\nexecution_space = "default"\ndirection = "forward"\n')
        shares = []
        for kernels in ["", "linear:reference"]:
            self.run_driver("deck.toml", "--set", "output.overwrite=true", "--set", "model.hidden_size=256",
                            "--set", "model.intermediate_size=1024", "--set", "timing.repeats=40", "--set", "timing.min_time_s=0",
                            KFORMER_KERNEL=kernels, OMP_NUM_THREADS="1")
            with h5py.File(self.folder / "deck.h5") as file:
                self.check_limits(file["cases"])
                # Of the fastest call, each of which is a sample: others may use the machine, but not all the time.
                shares.append(file["cases/share_of_limit"][0] * file["cases/time_median"][0] / file["cases/time"][0].min())
        self.assertLess(shares[1], 0.5 * shares[0])

    def test_forced_kernels_are_held_against_others(self):
        self.deck(self.FORCED)
        for forced in ["linear:kokkos", "attention:kokkos", "attention:reference", "attention_backward:kokkos",
                       "rms_norm:kokkos,swiglu:kokkos"]:
            with self.subTest(forced=forced):
                self.run_driver("deck.toml", "--set", "output.overwrite=true", KFORMER_KERNEL=forced)
                with h5py.File(self.folder / "deck.h5") as file:
                    kernels = self.check_independence(file["cases"], 8)
                kernel = forced.split(":")[-1]
                self.assertTrue(any(name.endswith(":" + kernel) for ran in kernels for name in ran))

    def test_a_kernel_of_products_leaves_the_gradient_of_a_bias_alone(self):
        self.deck(self.FORCED)
        bias = ["--set", 'model.model_type="qwen2"', "--set", "model.attention_bias=true",
                "--set", "output.overwrite=true"]
        self.run_driver("deck.toml", *bias, KFORMER_KERNEL="linear:simd_generic")
        with h5py.File(self.folder / "deck.h5") as file:
            for ran, direction in zip(self.check_independence(file["cases"], 8), words(file["cases/direction"])):
                if direction == "backward":
                    self.assertLessEqual({"linear_forward:simd_generic", "linear_backward_bias:kokkos"}, ran)
        for typo in ["liner:kokkos", "linear:koko"]:
            self.assertIn("KFORMER_KERNEL", self.run_driver("deck.toml", *bias, expect=1, KFORMER_KERNEL=typo).stderr)

    def test_wide_heads_of_two_tokens_are_no_false_alarm(self):
        self.deck('execution_space = "default"\nseq_len = 2\nbatch = 2\ndtype = "f16"\n')
        self.run_driver("deck.toml", "--set", "model.head_dim=256")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok"] * len(file["cases/batch"]),
                             texts(file["cases/message"]))
            self.check_independence(file["cases"], 2)

    def test_sums_of_many_rows_are_no_false_alarm(self):
        # The portable kernels add row after row, those that check them do not.
        self.deck('impl = "flash"\ndirection = "backward"\ndtype = "f32"\nexecution_space = "default"\nseq_len = 3000\n')
        for forced in ["", "linear:kokkos"]:
            self.run_driver("deck.toml", "--set", 'model.model_type="qwen2"', "--set", "model.attention_bias=true",
                            "--set", "check.max_seq_len=3000", "--set", "output.overwrite=true", KFORMER_KERNEL=forced)
            with h5py.File(self.folder / "deck.h5") as file:
                self.assertEqual(words(file["cases/status"]), ["ok"], texts(file["cases/message"]))

    def test_a_check_counts_what_earlier_ones_left(self):
        self.deck('impl = "flash"\ndirection = "forward"\ndtype = "f32"\nexecution_space = "default"\nseq_len = 40\n')
        check = []
        for lengths in ["40", "[30, 40]"]:
            self.run_driver("deck.toml", "--set", f"sweep.seq_len={lengths}", "--set", "output.overwrite=true")
            with h5py.File(self.folder / "deck.h5") as file:
                check.append(int(file["cases/check_bytes"][-1]))
        # The outputs of two runs, in double.
        self.assertEqual(check[1] - check[0], 2 * 30 * 64 * 8)

    def test_the_quickstart_leaves_no_case_unchecked(self):
        quickstart = driver_case.SOURCE / "inputs/quickstart.toml"
        printed = tomllib.loads(self.run_driver(quickstart, "--print-deck").stdout)
        self.assertEqual(printed["check"]["reference"], "f64")
        self.assertGreaterEqual(printed["check"]["max_seq_len"], max(printed["sweep"]["seq_len"]))
        small = {"sweep.seq_len": 40, "sweep.exclude": "[]", "timing.repeats": 1, "profile.machine_limits": "false",
                 "model.hidden_size": 128, "model.num_attention_heads": 2, "model.num_key_value_heads": 1,
                 "model.intermediate_size": 256}
        self.run_driver(quickstart, "-o", "small.h5", *(f"--set={key}={value}" for key, value in small.items()))
        with h5py.File(self.folder / "small.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok"] * 8, texts(file["cases/message"]))

    def test_a_case_that_the_deck_wants_no_check_of_says_so(self):
        self.deck('seq_len = [4, 8]\nexecution_space = "default"\ndirection = "forward"\nimpl = "flash"\n')
        self.run_driver("deck.toml", "--set", "check.max_seq_len=4", "-o", "long.h5")
        with h5py.File(self.folder / "long.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok", "unchecked"])
            self.assertEqual(texts(file["cases/message"]), ["", "not checked: seq_len 8 is more than check.max_seq_len = 4"])
        rows = json.loads(self.run_driver("deck.toml", "--set", "check.reference=none", "--format", "json").stdout)
        self.assertEqual([row["message"] for row in rows], ['not checked: check.reference is "none"'] * 2)

    def test_the_memory_of_the_check_is_forecast(self):
        self.deck("""impl = "flash"
direction = "backward"
execution_space = "default"
seq_len = 256
""")
        model = [f"--set=model.{key}" for key in
                 ["hidden_size=1024", "num_attention_heads=8", "num_key_value_heads=4", "intermediate_size=4096"]]
        # A fixed threshold: the allocator returns every array to the system at once, so that none is counted twice.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}

        # By a small process: the peak of a program is at least that of the process that started it.
        measure = """import os, sys
output = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
program = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[output])
_, status, usage = os.wait4(program, 0)
print(status, usage.ru_maxrss)"""

        def peak_resident(*options):
            command = [self.PROGRAM, "deck.toml", *model, "--set=timing.repeats=1", *options]
            done = subprocess.run([sys.executable, "-c", measure, *command], cwd=self.folder, env=environment,
                                  stdout=subprocess.PIPE, text=True, check=True)
            status, kibibytes = map(int, done.stdout.split())
            self.assertEqual(status, 0)
            return kibibytes * 1024

        program = peak_resident("--dry-run")
        checked = peak_resident()
        with h5py.File(self.folder / "deck.h5") as file:
            check, case = int(file["cases/check_bytes"][0]), int(file["cases/peak_bytes"][0])
        # The memory of the case is free again before that of the check is taken, which is more.
        self.assertGreater(check, 2 * case)  # doubles
        self.assertLess(abs(checked - program - check), 0.1 * check)

    def test_the_memory_of_the_check_is_said(self):
        self.deck(self.FORCED)
        text = self.run_driver("deck.toml").stdout
        self.assertRegex(text, r"checks: up to \d.* after a case, not in its peak")

    def test_no_kernel_allocates_in_small_cases_or_large_ones(self):
        self.deck('seq_len = [1, 300]\ndtype = ["f32", "f64", "bf16"]\ndirection = ["forward", "backward", "step"]\n'
                  'execution_space = "default"\n')
        text = self.run_driver("deck.toml", "--set", "model.head_dim=256").stdout
        self.check_scratch(self.folder / "deck.h5")
        self.assertRegex(text, r"scratch: \d\S+ .iB of the kernels, reserved for the whole run, in no peak\n")

    def test_a_run_without_a_case_that_ran_fails(self):
        self.deck('seq_len = 16777216\nexecution_space = "default"\ndirection = "forward"\n')
        self.assertIn("error: no case ran", self.run_driver("deck.toml", expect=7).stderr)

    def check_kernels(self, cases):
        for kernels, impl, direction in zip(texts(cases["kernels"]), texts(cases["impl"]), words(cases["direction"])):
            functions = {entry.split(":")[0] for entry in kernels.split()}
            attention = {"flash": "attention", "standard": "standard_attention"}[impl]
            self.assertIn(f"{attention}_forward", functions)
            self.assertIn("linear_forward", functions)
            self.assertEqual(f"{attention}_backward" in functions, direction != "forward")
            self.assertEqual("adamw" in functions, direction == "step")

    def check_memory(self, file):
        names, peaks = texts(file["memory/classes/memory_class"]), file["memory/classes/peak_bytes"][()]
        self.assertEqual(names, ["weights", "gradients", "optimizer", "activations", "kv_cache", "workspace",
                                 "communication", "io"])
        np.testing.assert_array_equal(peaks.sum(axis=1), file["cases/peak_bytes"][()])
        direction = np.array(words(file["cases/direction"]))
        np.testing.assert_array_equal(peaks[:, names.index("gradients")] > 0, direction != "forward")
        self.assertTrue((peaks[direction == "step", names.index("optimizer")] > 0).all())
        # What Kokkos saw holds at least what the ledger booked.
        witnessed = np.zeros(len(peaks), dtype=np.uint64)
        np.add.at(witnessed, file["memory/spaces/case"][()], file["memory/spaces/peak_bytes"][()])
        self.assertTrue((witnessed >= file["cases/peak_bytes"][()]).all())
        # Only GPUs have a figure of their own.
        on_gpu = np.flatnonzero(np.array(texts(file["cases/execution_space"])) == "cuda")
        if "devices" in file["memory"]:
            self.assertTrue(set(file["memory/devices/case"][()]) <= set(on_gpu))

    def check_profile(self, file):
        paths = set(texts(file["regions/path"]))
        for path in ["forward", "forward/attention", "backward", "backward/attention", "forward/gate_up"]:
            self.assertIn(path, paths)
        self.assertEqual({name.split("::")[0] for name in texts(file["kernels/name"])}, {"kformer"})
        self.assertTrue((file["kernels/time_total"][()] > 0).all())

    def test_flash_needs_less_memory_and_grows_linearly(self):
        self.deck("""impl = ["standard", "flash"]
direction = ["forward", "backward"]
execution_space = "default"
seq_len = [512, 1024, 2048]
[check]
reference = "none"
""")
        self.run_driver("deck.toml", "--set", "timing.repeats=1", "--set", "timing.warmup=0")
        with h5py.File(self.folder / "deck.h5") as file:
            names, peaks = texts(file["memory/classes/memory_class"]), file["memory/classes/peak_bytes"][()]
            held = peaks[:, names.index("activations")] + peaks[:, names.index("workspace")]
            of = {key: int(value) for *key, value in zip(texts(file["cases/impl"]), words(file["cases/direction"]),
                                                         file["cases/seq_len"][()].tolist(), held)
                  for key in [tuple(key)]}
        for direction in ["forward", "backward"]:
            with self.subTest(direction=direction):
                self.assertLess(of["flash", direction, 2048], 0.2 * of["standard", direction, 2048])
                self.assertLess(of["flash", direction, 2048], 2.01 * of["flash", direction, 1024])
                self.assertGreater(of["standard", direction, 2048], 3 * of["standard", direction, 1024])

    STEPS = """execution_space = "default"
impl = "flash"
direction = "step"
dtype = "f16"
batch = [1, 4]
seq_len = [32, 96]
[precision]
loss_scaling = "dynamic"
initial_loss_scale = 65536
"""

    def test_a_dynamic_loss_scale_spares_the_gradient_of_the_input_too(self):
        self.deck(self.STEPS)
        self.run_driver("deck.toml", "--set", "sweep.batch=[1, 2, 4, 8]", "--set", "sweep.seq_len=[32, 64, 96, 128]")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok"] * 16)
            self.assertTrue(np.isfinite(file["cases/gradient_norm"][()]).all())
            scales, skipped = file["cases/loss_scale"][()], file["cases/skipped_steps"][()]
            self.assertTrue((skipped > 0).all())
            np.testing.assert_array_equal(scales, 65536.0 / 2.0**skipped)

    def test_a_case_none_of_whose_steps_counts_has_failed(self):
        self.deck(self.STEPS)
        self.run_driver("deck.toml", "--set", "precision.loss_scaling=static", expect=5)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["failed_check"] * 4)
            self.assertIn("steps were skipped, because gradients were not finite; the loss scale was 65536",
                          texts(file["cases/message"])[0])

    def test_gradients_that_are_not_finite_are_no_result(self):
        self.deck(self.STEPS)
        keys = ["--set=sweep.direction=backward", "--set=check.reference=none"]
        static = ["--set=precision.loss_scaling=static"]
        self.run_driver("deck.toml", *keys, *static, expect=5)
        reason = 'not checked: check.reference is "none"; results are not finite; the loss scale 65536 is too large for f16'
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["failed_check"] * 4)
            self.assertEqual(set(texts(file["cases/message"])), {reason})
        for more, message in (([*static, "--set=check.fail=false"], reason), ([], reason.split(";")[0])):
            self.run_driver("deck.toml", *keys, *more, "--overwrite")
            with h5py.File(self.folder / "deck.h5") as file:
                self.assertEqual(words(file["cases/status"]), ["unchecked"] * 4)
                self.assertEqual(set(texts(file["cases/message"])), {message})

    def test_tensors_that_are_not_finite_are_no_result(self):
        self.layer_tensors(hidden_states=np.full((1, 5, 64), np.inf))
        self.run_driver("deck.toml", "--set", "check.reference=none", expect=5)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(texts(file["cases/message"]), ['not checked: check.reference is "none"; results are not finite'])

    def test_8_bit_states_are_not_for_double(self):
        self.deck(self.STEPS)
        self.run_driver("deck.toml", "--set", "optimizer.states=int8", "--set", "sweep.dtype=f64", expect=7)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["unsupported"] * 4)

    def layer_tensors(self, metadata=None, **more):
        kinds = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
                 "self_attn.o_proj": (64, 64), "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64),
                 "mlp.down_proj": (64, 96), "input_layernorm": (64,), "post_attention_layernorm": (64,)}
        random = np.random.default_rng(1)
        tensors = {f"{name}.weight": random.standard_normal(shape) / 8 for name, shape in kinds.items()}
        more = {name: random.standard_normal(value) if isinstance(value, tuple) else value for name, value in more.items()}
        write_safetensors(self.folder / "in.safetensors",
                          {**tensors, "hidden_states": random.standard_normal((1, 5, 64)), **more}, metadata)
        self.deck('execution_space = "default"\nimpl = "flash"\ndirection = "forward"\n'
                  '[tensors]\ninput = "in.safetensors"\noutput = "out.safetensors"\n')

    def test_a_tensor_that_the_layer_does_not_have_is_refused(self):
        biases = {f"self_attn.{name}_proj.bias": (rows,) for name, rows in [("q", 64), ("k", 32), ("v", 32)]}
        for more, overrides in [({"self_attn.o_proj.bias": (64,)}, []), ({"anything": (3,)}, []),
                                (biases, ["--set", "model.attention_bias=false"])]:
            with self.subTest(more=list(more)):
                self.layer_tensors(**more)
                text = self.run_driver("deck.toml", *overrides, expect=4).stderr
                for name in more:
                    self.assertIn(f"{name} is not a tensor of this layer", text)

    def test_numbers_in_the_metadata_have_the_limits_of_decks(self):
        for key, value, expected in [("sliding_window", "-3", "an integer in [0, 1073741824], got -3"),
                                     ("head_dim", str(1 << 62), "an integer in [0, 16777216]"),
                                     ("rope_theta", "nan", "a number in (0, 1e+38], got nan")]:
            with self.subTest(key=key):
                self.layer_tensors({key: value})
                self.assertIn(f"{key} must be {expected}", self.run_driver("deck.toml", expect=4).stderr)

    def test_tensors_that_were_not_written_are_a_failure(self):
        self.layer_tensors()
        self.run_driver("deck.toml", "--set", 'sweep.dtype="f16"', expect=7, KFORMER_KERNEL="rms_norm:simd_avx512_bf16")
        self.assertNotIn("out.safetensors", self.files())

    def test_forward_needs_no_gradient_of_the_output(self):
        self.layer_tensors()
        self.run_driver("deck.toml")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok"])

    def test_a_case_that_does_not_fit_is_recorded_or_aborts(self):
        self.deck('seq_len = [16777216, 4]\nexecution_space = "default"\ndirection = "forward"\n')
        self.run_driver("deck.toml", "-o", "recorded.h5")
        with h5py.File(self.folder / "recorded.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["out_of_memory", "ok"])
            self.assertIn("the longest sequence that fits is", texts(file["cases/message"])[0])
            self.assertTrue(np.isnan(file["cases/time_median"][0]))
        done = self.run_driver("deck.toml", "-o", "aborted.h5", "--set", "run.on_oom=abort", expect=6)
        self.assertIn("the longest sequence that fits is", done.stderr)


def part(layer, name):
    return layer.with_name(f"{layer.name}.{name}.safetensors")


@needs_h5py
class Tensors(LayerTest):
    LAYER = RANDOM_LAYER
    LIMITS = {"f64": 1e-12, "f32": 5e-6}

    def tensor_deck(self, sweep, source=None):
        (self.folder / "tensors.toml").write_text(f"""schema = 1
kind = "layer_sweep"
[profile]
machine_limits = false
[output]
overwrite = true
[sweep]
{sweep}
[tensors]
input = {json.dumps(str(source or part(self.LAYER, "inputs")))}
output = "out.safetensors"
""")
        return "tensors.toml"

    def test_a_layer_that_somebody_else_computed(self):
        expected = read_safetensors(part(self.LAYER, "expected"))
        deck = self.tensor_deck('impl = ["standard", "flash"]\ndtype = ["f64", "f32"]')
        self.run_driver(deck, "-o", "out.h5", "--set", "timing.repeats=1")
        with h5py.File(self.folder / "out.h5") as file:
            combinations = sorted(set(zip(*(texts(file[f"cases/{name}"])
                                            for name in ["execution_space", "dtype", "impl"]))))
        paths = [self.folder / f"out.{'-'.join(combination)}.safetensors" for combination in combinations]
        missing = [path for path in paths if not path.exists()]
        self.assertEqual(len(missing), 1, "the first combination is in the file that the deck names")
        for (_, dtype, impl), path in zip(combinations, paths):
            results = read_safetensors(path if path.exists() else self.folder / "out.safetensors")
            self.assertEqual(results.keys(), expected.keys())
            for name, reference in expected.items():
                with self.subTest(file=path.name, tensor=name):
                    self.assertEqual(results[name].shape, reference.shape)
                    error = np.abs(results[name] - reference).max() / np.abs(reference).max()
                    self.assertLessEqual(error, self.LIMITS[dtype])

    def test_a_damaged_file_is_refused(self):
        damaged = self.folder / "damaged.safetensors"
        damaged.write_bytes(part(self.LAYER, "inputs").read_bytes()[:-1])
        done = self.run_driver(self.tensor_deck('impl = "flash"', damaged), expect=4)
        self.assertIn("damaged.safetensors", done.stderr)
        self.assertEqual(self.files(), ["damaged.safetensors", "tensors.toml"])

    def test_another_sequence_length_is_refused(self):
        done = self.run_driver(self.tensor_deck('impl = "flash"\nseq_len = 3'), expect=3)
        self.assertIn("leave both keys out", done.stderr)


@unittest.skipUnless(part(TRAINED_LAYER, "inputs").is_file(), "KFORMER_DATA names no folder with layer_case")
class TrainedTensors(Tensors):
    LAYER = TRAINED_LAYER


if __name__ == "__main__":
    unittest.main(verbosity=2)
