# SPDX-License-Identifier: MIT
"""The driver kformer-generate from outside: command line, decks, and what a real model says.

ctest runs this with the program in KFORMER_GENERATE, the sources in KFORMER_SOURCE and the given data in KFORMER_DATA.
"""

import json
import os
import re
import shutil
import tomllib
import unittest
from pathlib import Path

import driver_case
from driver_case import DriverTest, h5py, needs_h5py, texts, words

if h5py is not None:
    import numpy as np

MODEL = Path(os.environ.get("KFORMER_DATA", "")) / "stories260K"
needs_model = unittest.skipUnless(MODEL.is_dir(), "KFORMER_DATA names no folder with stories260K")


class GenerateTest(DriverTest):
    NAME = "kformer-generate"
    PROGRAM = os.environ["KFORMER_GENERATE"]
    SMOKE_DECK = driver_case.SMOKE / "generate.toml"
    FEW = ("profile.machine_limits=false",)
    TABLE = "prompt"
    SMALL = f"""schema = 1
kind = "generate"
[profile]
machine_limits = false
[weights]
path = "{MODEL.absolute()}"
"""

    def generate(self, keys, *arguments, expect=0):
        self.deck(keys)
        return self.run_driver("deck.toml", "--set", "output.overwrite=true", *arguments, expect=expect)


class CommandLine(driver_case.CommandLine, GenerateTest):
    TINY = driver_case.SOURCE / "inputs/tiny-llama"

    def test_prompts_are_taken_as_they_are(self):
        prompts = ["[INST] Why? [/INST]", "{}", "[a,b]", "[", "", "two words"]
        deck = self.run_driver(self.TINY, *prompts, "--print-deck", "--", "--why").stdout
        self.assertEqual([prompt["text"] for prompt in tomllib.loads(deck)["prompt"]], [*prompts, "--why"])

    def test_an_unknown_option_is_no_prompt(self):
        for words in (["--bogus"], ["-x"], ["a prompt", "--why", "--print-deck"]):
            with self.subTest(words=words):
                option = next(word for word in words if word.startswith("-"))
                self.assertIn(f"not expected: {option}", self.run_driver(self.TINY, "a", *words, expect=2).stderr)


class Decks(GenerateTest):
    def test_every_deck_of_the_project_is_good(self):
        # Their own files may be absent, or larger than the memory.
        here = [f"weights.path={driver_case.SOURCE / 'inputs/tiny-llama'}", "tokenizer.format=byte", 'prompt=[{text = ""}]']
        self.check_decks_of_the_project("generate", 5, *(word for key in here for word in ("--set", key)), of="prompts?")

    def test_an_unknown_key_is_refused_with_its_place(self):
        text = self.generate('[[prompt]]\ntxt = "a"\ntext = ""\n', expect=3).stderr
        self.assertIn("deck.toml:8:1: error: unknown key 'txt' in [prompt[0]]", text)
        self.assertIn("did you mean 'text'?", text)
        self.assertEqual(self.files(), ["deck.toml"])

    def test_a_space_that_is_not_built_is_refused(self):
        if "sycl" in self.run_driver("--version").stdout.lower():
            self.skipTest("this build has SYCL")
        self.deck('[generate]\nexecution_space = "sycl"\n[[prompt]]\ntext = ""\n')
        self.assertIn('asks for "sycl", but this build has: ', self.run_driver("deck.toml", expect=3).stderr)

    def test_weights_that_are_not_there(self):
        done = self.generate('[[prompt]]\ntext = ""\n', "--set", "weights.path=nowhere", expect=4)
        self.assertIn("nowhere", done.stderr)
        self.assertEqual(done.stdout, "")


class DryRun(GenerateTest):
    """Says what a run would say before its first token."""

    def dry_run(self, *settings, expect=0):
        words = [word for setting in settings for word in ("--set", setting)]
        return self.run_driver(self.SMOKE_DECK, "--dry-run", *words, expect=expect)

    @needs_h5py
    def test_the_memory_is_that_of_the_run(self):
        text = self.dry_run().stdout
        forecast = re.search(r"^memory     (.* [KMG]iB) \(weights .*, kv_cache .*\) of ", text, re.MULTILINE)[1]
        self.assertEqual(self.files(), [])
        path, done = driver_case.smoke_run(self.PROGRAM, self.SMOKE_DECK)
        self.assertIn(f" forecast {forecast}\n", done.stderr)
        self.assertEqual(path.name, "generate.h5")
        with h5py.File(path) as file:
            self.check_disturbances(file["cases"])

    def test_prompts_are_counted(self):
        text = self.dry_run().stdout
        self.assertIn("tokens     30 in prompt1\n", text)  # a letter each, and the beginning
        self.assertIn("tokens     1 in nothing\n", text)
        self.assertIn("sequences  at most 42 tokens of ", text)

    def test_files_are_opened(self):
        self.assertIn("nowhere", self.dry_run("weights.path=nowhere", expect=4).stderr)
        self.assertIn("no tokenizer found", self.dry_run("tokenizer.format=auto", expect=4).stderr)
        folder = self.folder / "model"
        shutil.copytree(driver_case.SOURCE / "inputs/tiny-llama", folder)
        with open(folder / "model.safetensors", "r+b") as file:
            file.truncate(5000)
        self.assertIn("model.safetensors", self.dry_run(f"weights.path={folder}", expect=4).stderr)

    def test_a_chat_without_a_template_is_said(self):
        self.assertIn("write the prompt out instead", self.dry_run('prompt=[{chat = "Hello"}]', expect=1).stderr)

    def test_what_does_not_fit_is_refused(self):
        # As many places as a cache can number: 500 GB.
        done = self.dry_run("generate.batch=2100", "generate.max_new_tokens=1000000", "generate.kv_cache=contiguous", expect=6)
        self.assertIn("the run needs ", done.stderr)

    def test_a_context_that_is_longer_than_the_model_knows(self):
        known = json.loads((driver_case.SOURCE / "inputs/tiny-llama/config.json").read_text())["max_position_embeddings"]
        longest = known - 30
        note = f"note: sequences may have {known + 1} tokens, more than max_position_embeddings = {known} of the model"
        self.assertIn(note, self.dry_run(f"generate.max_new_tokens={longest + 1}").stdout)
        self.assertNotIn("note:", self.dry_run(f"generate.max_new_tokens={longest}").stdout)
        cut = (f"generate.max_new_tokens={longest + 1}", f"generate.max_seq_len={known}")
        self.assertNotIn("note:", self.dry_run(*cut).stdout)
        done = self.run_driver(self.SMOKE_DECK, "--set", f"generate.max_new_tokens={longest + 1}", "--set", "check.reference=none",
                               "--set", "profile.machine_limits=false")
        self.assertIn(note, done.stderr)

    def test_a_run_looks_at_its_files_before_it_measures_the_machine(self):
        done = self.run_driver(self.SMOKE_DECK, "--set", "tokenizer.format=auto", expect=4)
        self.assertNotIn("multiply-adds", done.stderr)
        self.assertIn("multiply-adds", driver_case.smoke_run(self.PROGRAM, self.SMOKE_DECK)[1].stderr)


@needs_h5py
class Scratch(GenerateTest):
    SMALL = f"""schema = 1
kind = "generate"
[profile]
machine_limits = false
[weights]
path = "{driver_case.SOURCE / "inputs/tiny-llama"}"
[tokenizer]
format = "byte"
"""

    def test_no_kernel_allocates_for_a_short_prompt_or_a_long_one(self):
        self.deck('[[prompt]]\nname = "short"\ntext = "a"\n[[prompt]]\nname = "long"\n'
                  f'text = "{"word " * 40}"\n')
        for dtype in ("f32", "bf16"):
            with self.subTest(dtype=dtype):
                done = self.run_driver("deck.toml", "--set", f"generate.dtype={dtype}", "--overwrite")
                self.check_scratch(self.folder / "deck.h5")
                self.assertRegex(done.stderr, r"scratch: \d\S+ .iB of the kernels, reserved for the whole run, in no peak\n")
        self.assertRegex(self.run_driver("deck.toml", "--dry-run").stdout, r"scratch    \d\S+ .iB of the kernels, beside it\n")


class Check(GenerateTest):
    """Logits are held against kernels that the generation did not run."""

    @needs_h5py
    def test_no_kernel_is_on_both_sides(self):
        for cache, dtype, kernel in (
            ("paged", "f32", ""), ("contiguous", "bf16", ""), ("none", "f16", ""), ("contiguous", "f64", ""),
            ("contiguous", "f32", "linear:kokkos"), ("paged", "f64", "attention:kokkos,rms_norm:kokkos"),
        ):  # fmt: skip
            with self.subTest(cache=cache, dtype=dtype, kernel=kernel):
                self.run_driver(self.SMOKE_DECK, "--set", f"generate.kv_cache={cache}", "--set", f"generate.dtype={dtype}",
                                "--set", "output.overwrite=true", "--set", "profile.machine_limits=false", "-o", "smoke.h5",
                                KFORMER_KERNEL=kernel)  # fmt: skip
                with h5py.File(self.folder / "smoke.h5") as file:
                    self.assertEqual(words(file["cases/status"]), ["ok", "ok"])
                    self.check_independence(file["cases"], 2)
                    self.assertTrue((file["cases/check_bytes"][()] > 0).all())
                    self.assertTrue((file["cases/max_logit_err"][()] > 0).all())

    @needs_h5py
    def test_the_memory_of_the_check_is_forecast(self):
        self.run_driver(self.SMOKE_DECK, "--set", "profile.machine_limits=false", "-o", "smoke.h5")
        words = json.loads((driver_case.SOURCE / "inputs/tiny-llama/config.json").read_text())["vocab_size"]
        with h5py.File(self.folder / "smoke.h5") as file:
            # After the second prompt Kokkos has seen the check of the first, of which both engines are still there.
            peaks = np.zeros(2)
            np.add.at(peaks, file["memory/spaces/case"][()], file["memory/spaces/peak_bytes"][()])
            logits = 8 * words * int(file["cases/new_tokens"][0])  # of the generation and of two recomputations
            engines = int(file["cases/check_bytes"][0]) - 3 * logits
        self.assertLessEqual(peaks[1] - peaks[0], engines)
        self.assertGreater(peaks[1] - peaks[0], 0.9 * engines)

    @needs_h5py
    def test_a_prompt_alone_is_not_checked(self):
        self.run_driver(self.SMOKE_DECK, "--set", "generate.max_new_tokens=0", "--set", "profile.machine_limits=false",
                        "-o", "prompt.h5")
        with h5py.File(self.folder / "prompt.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["unchecked", "unchecked"])
            self.assertEqual(texts(file["cases/message"]), ["not checked: no token was chosen"] * 2)

    @needs_h5py
    def test_what_loses_tokens_is_compared_and_not_judged(self):
        done = self.run_driver(self.SMOKE_DECK, "--set", "generate.kv_cache=window", "--set", "generate.window=4",
                               "--set", "profile.machine_limits=false", "-o", "w.h5")
        self.assertIn("  check    up to ", done.stderr)
        with h5py.File(self.folder / "w.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["unchecked", "unchecked"])
            self.assertEqual(texts(file["cases/message"]), ["errors recorded but not judged: the cache or 8-bit activations "
                                                            "change logits on purpose"] * 2)
            self.assertGreater(file["cases/max_logit_err"][0], 1e-4)


@needs_model
class Story(GenerateTest):
    CACHES = ("contiguous", "paged", "none")  # those that compute what the others do, bit by bit or nearly

    def setUp(self):
        super().setUp()
        expected = json.loads((MODEL / "expected_generation.json").read_text())
        (self.prompt, self.expected), *_ = expected.items()
        self.new_tokens = len(self.expected["ids"]) - len(self.expected["prompt_ids"])

    def keys(self, generate=""):
        return (f"[generate]\nmax_new_tokens = {self.new_tokens}\n{generate}[[prompt]]\ntext = {json.dumps(self.prompt)}\n"
                f"expect_ids = {self.expected['ids']}\n")

    def test_the_deck_says_what_was_published(self):
        deck = (driver_case.SOURCE / "inputs/stories260k.toml").read_text().replace('"stories260K', f'"{MODEL.absolute()}')
        deck += f'expect_file = "{MODEL.absolute()}/expected_greedy.txt"\n'
        (self.folder / "story.toml").write_text(deck)
        done = self.run_driver("story.toml", "--set", "profile.machine_limits=false")
        self.assertEqual(done.stdout.strip(), (MODEL / "expected_greedy.txt").read_text().strip())
        self.assertIn("prompt1 [0]: ok", done.stderr)

    def test_a_difference_is_exit_5_with_the_first_token(self):
        text = (MODEL / "expected_greedy.txt").read_text()
        (self.folder / "other.txt").write_text(text[:100] + "#" + text[101:])
        done = self.generate('[[prompt]]\ntext = ""\nexpect_file = "other.txt"\n', expect=5)
        self.assertIn("is the first that differs: after 100 bytes of text", done.stderr)

    @needs_h5py
    def test_every_exact_cache_gives_the_known_tokens_and_likelihood(self):
        for cache in self.CACHES:
            with self.subTest(cache=cache):
                self.generate(self.keys(f'kv_cache = "{cache}"\npage_tokens = 5\nbatch = 4\n'))
                with h5py.File(self.folder / "deck.h5") as file:
                    self.assertEqual(words(file["cases/status"]), ["ok"])
                    ids = file["tokens/id"][()].reshape(4, -1)
                    self.assertEqual(ids.tolist(), [self.expected["ids"]] * 4)
                    np.testing.assert_allclose(file["generations/mean_nll"][()], self.expected["mean_nll"], atol=1e-5)

    @needs_h5py
    def test_the_file_has_text_and_tokens(self):
        done = self.generate(self.keys())
        self.assertEqual(done.stdout, self.expected["text"] + "\n")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(texts(file["generations/prompt_text"]), [self.prompt])
            self.assertEqual(self.prompt + texts(file["generations/text"])[0], self.expected["text"])
            self.assertEqual(words(file["generations/end"]), ["max_new_tokens"])
            new = file["tokens/new"][()].astype(bool)
            self.assertEqual(np.count_nonzero(new), self.new_tokens)
            self.assertTrue((file["tokens/log_probability"][()][new] < 0).all())
            time = file["tokens/time"][()][new]
            self.assertTrue((np.diff(time) >= 0).all())
            self.assertGreater(file["cases/peak_bytes"][0], 0)
            self.assertEqual(file["cases/prompt_tokens"][0], len(self.expected["prompt_ids"]))

    def test_a_stop_string_ends_a_sequence(self):
        done = self.generate(self.keys('stop = "Lily"\n').split("expect_ids")[0])
        self.assertTrue(done.stdout.rstrip("\n").endswith("Lily"), done.stdout)
        self.assertIn("stopped: stop_string", done.stderr)

    @needs_h5py
    def test_seeds_say_what_is_drawn(self):
        drawn = {}
        for seed in (1, 2, 1):
            keys = '[sampling]\ntemperature = 1.0\n[generate]\nmax_new_tokens = 40\nbatch = 2\n[[prompt]]\ntext = ""\n'
            self.generate(keys, "--set", f"sampling.seed={seed}")
            with h5py.File(self.folder / "deck.h5") as file:
                rows = texts(file["generations/text"])
            self.assertNotEqual(rows[0], rows[1])
            self.assertEqual(drawn.setdefault(seed, rows), rows)
        self.assertNotEqual(drawn[1], drawn[2])

    def test_a_checkpoint_that_is_cut_short(self):
        folder = self.folder / "model"
        folder.mkdir()
        for name in ("config.json", "tokenizer.model", "model.safetensors"):
            shutil.copyfile(MODEL / name, folder / name)
        with open(folder / "model.safetensors", "r+b") as file:
            file.truncate(500000)
        done = self.generate('[[prompt]]\ntext = ""\n', "--set", "weights.path=model", expect=4)
        self.assertIn("model.safetensors", done.stderr)

    @needs_h5py
    def test_the_smoke_deck(self):
        self.run_driver(self.SMOKE_DECK, "--set", f"weights.path={MODEL.absolute()}", "--set", "profile.machine_limits=false",
                        "-o", "smoke.h5")
        with h5py.File(self.folder / "smoke.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok", "ok"])
            self.assertEqual(len(file["generations/text"]), 4)
            self.assertEqual(file.attrs["complete"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
