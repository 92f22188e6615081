# SPDX-License-Identifier: MIT
"""Drivers under a limit of the address space, as `ulimit -v` and some batch systems set it: they run or say in a sentence
that memory ran out, and none waits for ever.

ctest runs this with the programs in KFORMER_MEMORY, KFORMER_LAYER, KFORMER_ATTENTION, KFORMER_GENERATE, KFORMER_TRAIN and
KFORMER_SCALING and the sources in KFORMER_SOURCE.
"""

import os
import re
import resource
import subprocess
import unittest
from pathlib import Path

import driver_case
from driver_case import DriverTest, h5py, needs_h5py

LAYER, ATTENTION, MEMORY, GENERATE, TRAIN, SCALING = (
    os.environ[f"KFORMER_{name}"] for name in ("LAYER", "ATTENTION", "MEMORY", "GENERATE", "TRAIN", "SCALING"))
DECKS = {LAYER: driver_case.SMOKE / "head_dim.toml", ATTENTION: driver_case.SMOKE / "attention.toml",
         MEMORY: driver_case.SOURCE / "inputs/memory-llama-3.1-8b.toml",
         GENERATE: driver_case.SMOKE / "generate.toml", TRAIN: driver_case.SMOKE / "train.toml",
         SCALING: driver_case.SMOKE / "scaling.toml"}
FEW_CASES = {GENERATE: ["check.reference=none", "profile.machine_limits=false"],
             TRAIN: ["profile.machine_limits=false", "output.overwrite=true"],
             SCALING: ["timing.repeats=1"],
             LAYER: ["sweep.dtype=f32"], MEMORY: ["sweep.context=8192", "sweep.batch=1"],
             ATTENTION: ["sweep.dtype=f32", "sweep.seq_len=33", "sweep.window=0", "sweep.q_len=0", "sweep.exclude=[]",
                         "sweep.causal=false", "sweep.num_key_value_heads=4", "sweep.v_head_dim=0"]}
TOO_LITTLE = ("error: the address space, or that of data, is limited to less than 512 MiB, which is too little to start; raise "
              "the limit (ulimit -v, ulimit -d)\n")


class MemoryLimits(DriverTest):
    def setUp(self):
        super().setUp()
        done = self.run_limited(1024, MEMORY, "--version")
        if "Sanitizer" in done.stderr:
            self.skipTest("sanitizers need an address space without a limit")

    def run_limited(self, mebibytes, program, *arguments, kind=resource.RLIMIT_AS, **environment):
        def limit():
            resource.setrlimit(kind, (mebibytes << 20, mebibytes << 20))
        # Each thread has a stack in the address space.
        return subprocess.run([program, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              errors="replace", timeout=200, preexec_fn=limit,
                              env={**os.environ, "OMP_NUM_THREADS": "2", **environment})

    def test_too_little_to_start_is_said_at_once(self):
        for program in DECKS:
            for mebibytes, kind in ((200, resource.RLIMIT_AS), (400, resource.RLIMIT_AS), (511, resource.RLIMIT_AS),
                                    (100, resource.RLIMIT_DATA)):
                with self.subTest(program=program, mebibytes=mebibytes):
                    done = self.run_limited(mebibytes, program, "--version", kind=kind)
                    self.assertEqual((done.returncode, done.stdout, done.stderr), (6, "", TOO_LITTLE))

    def few(self, program):
        return [word for key in FEW_CASES[program] for word in ("--set", key)]

    def test_a_run_ends_well_or_with_a_sentence_on_memory(self):
        for program, deck in DECKS.items():
            for mebibytes in (520, 800, 1600):
                with self.subTest(program=program, mebibytes=mebibytes):
                    done = self.run_limited(mebibytes, program, deck, "-o", f"{mebibytes} {Path(program).name}.h5",
                                            *self.few(program))
                    said = done.stdout + done.stderr
                    self.assertIn(done.returncode, (0, 6, 7), said)
                    if done.returncode == 6:
                        self.assertRegex(done.stderr, r"error: memory ran out \(.*\); run smaller cases")
                    if done.returncode == 7:
                        self.assertIn("out_of_memory", said)

    def test_what_the_limit_leaves_is_what_there_is(self):
        deck = self.folder / "long.toml"
        deck.write_text('schema = 1\nkind = "attention_compare"\n[profile]\nmachine_limits = false\n[sweep]\ndtype = "f32"\n'
                        'num_attention_heads = 4\nhead_dim = 24\nbatch = 1\nseq_len = 65536\nimpl = "standard"\ndirection = "forward"\n')
        done = self.run_limited(1600, ATTENTION, deck, "-o", "long.h5")
        self.assertEqual(done.returncode, 7, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"the case needs [\d.]+ GiB, but only ([\d.]+ MiB|1\.[0-5]\d* GiB) is available")

    def refused(self, mebibytes, program, threads, *arguments):
        """What a run of so many threads, with small stacks, says when it lacks memory."""
        def run(mebibytes, program, *arguments):
            return self.run_limited(mebibytes, program, "--set", f"run.threads={threads}", *arguments,
                                    OMP_STACKSIZE="1M", OMP_WAIT_POLICY="passive")
        if f"scratch    {4 * threads}.00 MiB" not in run(4096, GENERATE, "--dry-run", DECKS[GENERATE]).stdout:
            self.skipTest("this build has no threads with scratch memory")
        done = run(mebibytes, program, *arguments)
        self.assertEqual(done.returncode, 6, done.stdout + done.stderr)
        return done.stderr

    def test_scratch_memory_of_kernels_must_be_free_too(self):
        # 4 MiB for each thread; the models need less than 1 MiB.
        self.assertRegex(self.refused(600, GENERATE, 64, "--dry-run", DECKS[GENERATE]),
                         r"the run needs 256\.\d+ MiB, of which 256\.00 MiB are scratch memory of kernels, but only \d")
        lack = re.compile(r"^error: the kernels need 256\.00 MiB of scratch memory, but only \d\S+ MiB is available; "
                          r"set a smaller run\.threads$", re.M)
        self.assertRegex(self.refused(600, TRAIN, 64, "--dry-run", DECKS[TRAIN]), lack)
        for program in (LAYER, ATTENTION, SCALING):
            with self.subTest(program=program):
                self.assertRegex(self.refused(600, program, 64, DECKS[program], *self.few(program)), lack)
                self.assertEqual(self.files(), [])

    def test_a_training_may_have_what_scratch_memory_leaves(self):
        deck = self.folder / "wide.toml"
        deck.write_text(f"""schema = 1
kind = "train"
[model]
hidden_size = 64
num_attention_heads = 1
num_hidden_layers = 1
intermediate_size = 64
vocab_size = 258
[init]
[tokenizer]
format = "byte"
[data]
train = ["{driver_case.SOURCE / 'LICENSE'}"]
cache = ""
[batch]
seq_len = 1000
micro_batch = 4096
sequences = 4096
[schedule]
steps = 1
""")
        limits = []
        for head_dim in (256, 258):  # above 256 twice as much
            text = self.refused(1000, TRAIN, 16, "--dry-run", deck, "--set", f"model.head_dim={head_dim}")
            limits.append(float(re.search(r"training needs .* but the limit is (\d\S+) MiB", text)[1]))
        self.assertAlmostEqual(limits[0] - limits[1], 64, delta=1)

    @needs_h5py
    def test_the_blas_starts_no_threads(self):
        for mebibytes, threads in ((1600, "3"), (1600, None)):
            with self.subTest(threads=threads):
                given = {} if threads is None else {"OPENBLAS_NUM_THREADS": threads}
                done = self.run_limited(mebibytes, MEMORY, DECKS[MEMORY], "-o", "plan.h5", "--set",
                                        "output.overwrite=true", *self.few(MEMORY), **given)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                with h5py.File(self.folder / "plan.h5") as file:
                    environment = file["provenance/environment"][()].decode()
                self.assertIn("OPENBLAS_NUM_THREADS=1", environment)
                self.assertNotIn("OPENBLAS_NUM_THREADS=3", environment)

    def test_the_blas_is_not_called(self):
        run = ("-o", "layer.h5", "--set", "sweep.dtype=f32", "--set", "check.reference=none")
        forced = {"KFORMER_KERNEL": "linear:host_blas", "OPENBLAS_NUM_THREADS": "1"}
        free = subprocess.run([LAYER, DECKS[LAYER], *run], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, **forced})
        if free.returncode != 0:
            self.skipTest("this build has no BLAS that threads may call")
        done = self.run_limited(1600, LAYER, DECKS[LAYER], *run, **forced)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("a BLAS may wait for ever for memory where the address space is limited (ulimit -v)", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
