# SPDX-License-Identifier: MIT
"""Generations of several ranks: they say what one says, need the memory of their forecast and send the bytes of the formula;
a rank that is lost ends the others.

ctest runs this with the program in KFORMER_GENERATE, mpiexec in KFORMER_MPIEXEC, the sources in KFORMER_SOURCE, and
KFORMER_QUANTIZE and KFORMER_MEMORY.
"""

import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from driver_case import SOURCE, DriverTest, h5py, needs_h5py

if h5py is not None:
    import numpy as np
    from kformer_generate_adapters import write_adapters
    from packed_weights import CONFIG, random_model, write_model

MPIEXEC = os.environ.get("KFORMER_MPIEXEC")
TINY = SOURCE / "inputs/tiny-llama"

# Four ranks divide it, but not its words; of the columns of its matrices each has whole blocks of 32.
MODEL = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 8, "num_key_value_heads": 4,
         "vocab_size": 258}

KEYS = """max_new_tokens = 12
[sampling]
temperature = 0.9
top_k = 50
[[prompt]]
text = "Once upon"
[[prompt]]
text = "The end"
"""


@unittest.skipIf(MPIEXEC is None, "the build has no MPI")
class RanksTest(DriverTest):
    NAME = "kformer-generate"
    PROGRAM = os.environ["KFORMER_GENERATE"]
    SMALL = """schema = 1
kind = "generate"
[profile]
machine_limits = false
[run]
threads = 1
[tokenizer]
format = "byte"
[generate]
"""

    def start(self, ranks, *words, **options):
        command = [] if ranks is None else [MPIEXEC, "-n", str(ranks)]
        return subprocess.Popen([*command, self.PROGRAM, *map(str, words)], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace", **options)

    def generate(self, ranks, *settings, keys=KEYS, model=TINY, expect=0, words=("deck.toml",)):
        """`ranks` None: one process without mpiexec. Returns what it printed, text and log."""
        self.deck(keys)
        settings = ("output.overwrite=true", f'weights.path="{model}"', *settings)
        with self.start(ranks, *words, *(word for setting in settings for word in ("--set", setting))) as run:
            output = run.communicate(timeout=300)
        self.assertEqual(run.returncode, expect, output[1])
        return output

    def results(self, *columns):
        with h5py.File(self.folder / "deck.h5") as file:
            return [file[column][()] for column in columns]

    def small_model(self):
        write_model(self.folder / "model", random_model(config=CONFIG | MODEL), **MODEL)
        return self.folder / "model"


@needs_h5py
class Generations(RanksTest):
    EXACT = ('generate.dtype="f64"', "generate.last_logits=true")
    NUMBERS = ("tokens/id", "tokens/log_probability", "logits/last_logits")

    def check_close(self, *settings, model=TINY, ranks=2, keys=KEYS):
        text = self.generate(None, *self.EXACT, *settings, model=model, keys=keys)[0]
        ids, *numbers = self.results(*self.NUMBERS)
        together, log = self.generate(ranks, *self.EXACT, f"parallel.tensor={ranks}", *settings, model=model, keys=keys)
        self.assertEqual(together, text)
        found, *others = self.results(*self.NUMBERS)
        self.assertEqual(found.tolist(), ids.tolist())
        self.assertGreater(np.isfinite(numbers[1]).sum(), 100)
        for ours, theirs in zip(others, numbers):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
        return log

    def test_two_ranks_in_every_cache(self):
        """A batch, a profiled pass, the prompts' scores; what differs is said by one rank."""
        log = self.check_close("generate.batch=2", 'generate.kv_cache="paged"', "profile.kernels=true")
        self.assertEqual(log.count("results: deck.h5"), 1)
        self.assertEqual(len(self.results("regions/path")) > 0, True)
        self.check_close('generate.kv_cache="window"', "generate.window=8", "generate.prefill_chunk=4")

    def test_four_ranks_with_words_they_do_not_divide(self):
        model = self.small_model()
        self.check_close(ranks=4, model=model)
        subprocess.run([os.environ["KFORMER_QUANTIZE"], "model", "packed", "-f", "q8_0", "-e", "q8_0"], cwd=self.folder,
                       check=True, stdout=subprocess.DEVNULL)
        self.check_close(ranks=4, model=self.folder / "packed")
        # Activations that share a scale are on one rank.
        self.check_close('generate.activations="int8"', ranks=4, model=self.folder / "packed")

    def test_a_scale_of_activations_that_ranks_would_divide_is_refused(self):
        """Of ternary weights, whose rows of activations have one scale each."""
        changes = {"hidden_size": 512, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 258}
        write_model(self.folder / "model", random_model(config=CONFIG | changes), **changes)
        subprocess.run([os.environ["KFORMER_QUANTIZE"], "model", "packed", "-f", "tq2_0"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        settings = {"model": self.folder / "packed", "keys": 'max_new_tokens = 1\n[[prompt]]\ntext = "O"\n'}
        self.generate(2, "parallel.tensor=2", **settings)
        log = self.generate(2, "parallel.tensor=2", 'generate.activations="int8"', expect=1, **settings)[1]
        self.assertIn("is in TQ2_0, for which each row of them has one scale, which ranks (tensor) would divide; use Activations::full", log)

    def test_adapters(self):
        """Merged into the weights, beside them, and several, some with magnitudes."""
        write_adapters(self.folder)
        several = "".join(f'[[adapters]]\nname = "{name}"\npath = "{name}"\n' for name in ("first", "second", "scaled"))
        prompts = KEYS.replace("[[prompt]]", '[[prompt]]\nadapter = "scaled"', 1).replace(
            '[[prompt]]\ntext', '[[prompt]]\nadapter = "second"\ntext')
        for keys in (KEYS + '[adapter]\npath = "first"\n', KEYS + '[adapter]\npath = "scaled"\n',
                     KEYS + '[adapter]\npath = "scaled"\nlive = true\n', prompts + several):
            with self.subTest(keys=keys):
                self.check_close(keys=keys)
                predicted, peak = self.results("memory/ranks/predicted_bytes", "memory/ranks/peak_bytes")
                self.assertEqual(predicted.tolist(), peak.tolist())

    def test_memory_and_bytes(self):
        self.generate(2, "parallel.tensor=2", "generate.last_logits=true")
        predicted, peak = self.results("memory/ranks/predicted_bytes", "memory/ranks/peak_bytes")
        self.assertEqual(predicted.tolist(), peak.tolist())
        scratch, own = self.results("memory/ranks/scratch_bytes", "cases/scratch_bytes")
        self.assertEqual(scratch.tolist(), [own[0]] * 2)
        cases = [self.results(f"cases/{column}")[0] for column in ("prompt_tokens", "new_tokens", "prefill_tokens", "decode_tokens")]
        prompt, new, prefill, decode = (int(column.sum()) for column in cases)
        with h5py.File(self.folder / "deck.h5") as file:
            sent, of = file["communication"], {}
            for region, count in zip(sent["region"].asstr()[()], sent["bytes"][()]):
                of[region] = of.get(region, 0) + int(count)
        layers, hidden, words, last = 2, 48, 258, 2
        # Of N bytes, all ranks together send 2 (n - 1) N for a sum.
        self.assertEqual(of["embedding"], 2 * 4 * hidden * (prefill + decode + last))
        self.assertEqual(of["activations"], 2 * layers * of["embedding"])
        # The first token of a prompt has no score.
        self.assertEqual(of["logits"], 2 * 4 * (words // 2) * (prompt - 2 + new + last))

    def test_the_memory_of_plans(self):
        """Of the rank that needs most, by --dry-run and by kformer-memory."""
        # A plan counts what sampling needs.
        model = self.small_model()
        prompt = '[sampling]\ntemperature = 0.9\ntop_k = 50\n[[prompt]]\ntext = "Once upon"\n'
        settings = ("parallel.tensor=4", "generate.score_prompt=false", "generate.max_new_tokens=20", "generate.prefill_chunk=8")
        self.generate(4, *settings, keys=prompt, model=model)
        (totals,) = self.results("memory/ranks/peak_total_bytes")
        self.assertLess(int(totals[0]), int(totals[-1]))
        plan = self.generate(None, *settings, keys=prompt, model=model, words=("deck.toml", "--dry-run"))[0]
        self.assertIn(f"memory     {int(totals[-1]) / 2**20:.2f} MiB (", plan)
        (self.folder / "plan.toml").write_text(
            f'schema = 1\nkind = "memory_plan"\n[run]\nthreads = 1\n[weights]\npath = "{model}"\n[sweep]\n'
            'purpose = "generate"\ndtype = "f32"\nkv_cache = "contiguous"\nprefill_chunk = 8\nbatch = 1\ncontext = 30\n'
            "[parallel]\ntensor = 4\n")
        subprocess.run([os.environ["KFORMER_MEMORY"], "plan.toml"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        with h5py.File(self.folder / "plan.h5") as file:
            self.assertEqual(int(file["cases/predicted_bytes"][0]), int(totals.max()))

    def test_a_model_without_a_deck(self):
        words = (TINY, "Once upon")
        settings = ('tokenizer.format="byte"', "generate.max_new_tokens=8", "run.threads=1")
        alone = self.generate(None, *settings, "profile.machine_limits=false", words=words)[0]
        self.assertTrue(alone.startswith("Once upon"))
        self.assertEqual(self.generate(2, *settings, "parallel.tensor=2", words=words)[0], alone)


class Ends(RanksTest):
    LONG = KEYS.replace("12", "100000")

    def begin(self, *settings):
        """Returns when the first letters are there."""
        self.deck(self.LONG)
        words = ("parallel.tensor=2", f'weights.path="{TINY}"', *settings)
        run = self.start(2, "deck.toml", *(word for setting in words for word in ("--set", setting)))
        self.addCleanup(run.kill)
        self.assertEqual(run.stdout.read(4), "== p")
        self.assertTrue(run.stdout.readline())
        self.assertTrue(run.stdout.read(12))
        return run

    def test_a_stopped_rank_ends_the_others(self):
        run = self.begin("parallel.timeout_s=2", "generate.max_seq_len=4000")
        self.signal_rank(1, signal.SIGSTOP)
        log = run.communicate(timeout=60)[1]
        self.assertNotEqual(run.returncode, 0, log)
        self.assertRegex(log, r"rank 0 of 'world' \(2 ranks\) waited 2 s in vain for .*rank 1")

    def test_a_signal_stops_all_ranks(self):
        run = self.begin("generate.max_seq_len=4000")
        self.signal_rank(1, signal.SIGUSR1)
        log = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 75, log)
        self.assertIn("stopped (another rank stops); the finished generations are in ", log)


class Refusals(RanksTest):
    def test_sentences(self):
        for ranks, keys, settings, code, sentence in (
                (2, KEYS, (), 3, "error: 2 ranks were started, but the deck has no [parallel]; set parallel.tensor = 2"),
                (None, KEYS, ("parallel.tensor=2",), 3,
                 "error: 'parallel.tensor' = 2 needs 2 ranks, but 1 was started; run mpiexec -n 2 kformer-generate …"),
                (2, KEYS, ("parallel.tensor=2", 'parallel.backend="nccl"', 'check.reference="recompute"'), 3,
                 "error: 'check.reference' = \"recompute\" computes on the host, whose memory"),
                (2, KEYS, ("parallel.tensor=2",), 3,
                 "error: --resume goes on with the generations of a run of one rank, but 2 ranks were started"),
                (4, KEYS, ("parallel.tensor=4",), 1,
                 "kformer-generate: 'parallel.tensor' = 4 ranks do not divide 'num_attention_heads' = 6 of the model")):
            with self.subTest(sentence=sentence):
                words = ("deck.toml", *(["--resume"] if "--resume" in sentence else []))
                log = self.generate(ranks, *settings, keys=keys, expect=code, words=words)[1]
                self.assertIn(sentence, log)
                self.assertFalse(list(self.folder.glob("*.h5")))


@needs_h5py
class Files(RanksTest):
    """Of two ranks with the same deck in folders of their own."""

    PROMPT = '[[prompt]]\ntext = "Once upon"\n'
    FILE = '[[prompt]]\nfile = "prompt.txt"\n'
    FEW = "max_new_tokens = 4\n"

    def setUp(self):
        super().setUp()
        write_adapters(self.folder)
        (self.folder / "prompt.txt").write_text("Once upon")
        shutil.copytree(TINY, self.folder / "model")
        self.own = self.folder / "own"
        shutil.copytree(self.folder, self.own)

    def flip(self, file):
        """A bit of the last number in a file of the second rank."""
        values = bytearray((self.own / file).read_bytes())
        values[-1] ^= 1
        (self.own / file).write_bytes(values)

    def generate_apart(self, keys, *settings, of_second="", expect=0):
        """The second rank has a folder and perhaps settings of its own. Returns text and log."""
        for folder in (self.folder, self.own):
            (folder / "deck.toml").write_text(self.SMALL + self.FEW + keys)
        start = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 0 ] || {{ cd "{self.own}"; exec "$@" {of_second}; }}\nexec "$@"\n'
        (self.folder / "start.sh").write_text(start)
        settings = ("output.overwrite=true", 'weights.path="model"', "parallel.tensor=2", *settings)
        run = subprocess.run([MPIEXEC, "-n", "2", "sh", "start.sh", self.PROGRAM, "deck.toml",
                              *(word for setting in settings for word in ("--set", setting))],
                             cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=120, check=False)
        self.assertEqual(run.returncode, expect, run.stderr)
        return run.stdout, run.stderr

    def check_refused(self, key, keys, *settings, **options):
        log = self.generate_apart(keys, *settings, expect=4, **options)[1]
        self.assertIn(f"error: what '{key}' names is not the same on rank 1 as on rank 0; give all ranks the same files", log)

    def test_equal_files_in_two_folders(self):
        text = self.generate(None, keys=self.FEW + self.FILE)[0]
        (ids,) = self.results("tokens/id")
        for folder in (self.folder, self.own):
            (folder / "expected.txt").write_bytes(bytes(int(i) for i in ids if i < 256))
        adapters = '[[adapters]]\nname = "first"\npath = "first"\n'
        keys = f'{self.FILE}expect_file = "expected.txt"\n{adapters}'
        self.assertEqual(self.generate_apart(keys)[0], text)
        (self.own / "expected.txt").write_text("something else")
        self.check_refused("prompt[0].expect_file", keys)

    def test_another_prompt(self):
        (self.own / "prompt.txt").write_text("Once UPON")
        self.check_refused("prompt[0].file", self.FILE)

    def test_another_model_of_the_same_shapes(self):
        self.flip("model/model.safetensors")
        self.check_refused("weights.path", self.PROMPT)

    def test_other_adapters(self):
        """Merged, beside the weights, among several, and on one rank only."""
        self.check_refused("adapter.path", self.PROMPT, of_second="--set adapter.path=first")
        self.flip("scaled/adapter_model.safetensors")
        one = '[adapter]\npath = "scaled"\n'
        several = "".join(f'[[adapters]]\nname = "{name}"\npath = "{name}"\n' for name in ("first", "scaled"))
        for key, keys in (("adapter.path", one), ("adapter.path", one + "live = true\n"), ("adapters[1].path", several)):
            with self.subTest(keys=keys):
                self.check_refused(key, self.PROMPT + keys)

    def test_another_tokenizer(self):
        """In its own file, or in what the one beside it says of the end of texts."""
        for folder in (self.folder, self.own):
            shutil.copy(SOURCE / "tests/fuzz/corpus/tokenizer_json/byte_level.json", folder / "tokenizer.json")
        settings = ('tokenizer.format="hf"', 'tokenizer.path="tokenizer.json"')
        self.generate_apart(self.PROMPT, *settings)
        config, file = self.own / "tokenizer_config.json", self.own / "tokenizer.json"
        config.write_text('{"eos_token": "Z"}')
        self.check_refused("tokenizer.path", self.PROMPT, *settings)
        config.unlink()
        text = file.read_text()
        self.assertIn('"add_prefix_space": false', text)
        file.write_text(text.replace('"add_prefix_space": false', '"add_prefix_space": true'))
        self.check_refused("tokenizer.path", self.PROMPT, *settings)


if __name__ == "__main__":
    unittest.main()
