# SPDX-License-Identifier: MIT
"""The driver kformer-memory from outside: command line, decks, and forecasts that can be counted by hand.

ctest runs this with the programs in KFORMER_MEMORY and KFORMER_TRAIN and the sources in KFORMER_SOURCE.
"""

import contextlib
import itertools
import os
import pty
import subprocess
import unittest

import driver_case
from driver_case import DriverTest, h5py, needs_h5py, texts, words

if h5py is not None:
    import numpy as np

# Of Llama 3.1 8B: embedding and last projection, 32 layers, the last norm.
LAYER = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096
PARAMETERS = 2 * 128256 * 4096 + 32 * LAYER + 4096


class MemoryTest(DriverTest):
    NAME = "kformer-memory"
    PROGRAM = os.environ["KFORMER_MEMORY"]
    SMOKE_DECK = driver_case.SOURCE / "inputs/memory-llama-3.1-8b.toml"
    FEW = ("sweep.context=8192", "sweep.batch=1")
    SMALL = """schema = 1
kind = "memory_plan"
[model]
hidden_size = 64
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 96
num_hidden_layers = 2
vocab_size = 100
max_position_embeddings = 1024
[sweep]
"""


class CommandLine(driver_case.CommandLine, MemoryTest):
    def test_a_published_model_needs_no_deck(self):
        out = self.run_driver("llama-3.1-8b", "--set", "memory.budget=80GB").stdout
        self.assertIn("budget 74.5 GiB", out)
        self.assertIn("15.0 GiB", out)  # of weights
        self.assertIn("budget 74.5 GiB", self.run_driver("llama-3.1-8b", "-s", "memory.budget=74.5GiB", "-o", "b.h5").stdout)
        (self.folder / "b.h5").unlink()
        self.assertEqual([line for line in out.splitlines()[:12] if len(line) > 100], [])
        self.assertEqual(len(self.files()), 1)
        self.assertIn("did you mean 'llama-3.1-8b'", self.run_driver("llama-3.1-9b", expect=4).stderr)

    def test_overrides_of_a_call_lose_no_purpose(self):
        def purposes(*overrides):
            call = self.run_driver("smollm2-135m", "--dry-run", *(word for one in overrides for word in ("--set", one)))
            self.assertNotIn("matches no case", call.stderr)
            lines = [line.split() for line in (call.stdout + call.stderr).splitlines()]
            return sorted({(line[1], line[4]) for line in lines if line[1:2] in (["generate"], ["train"])})

        dense = [("generate", "same"), ("train", "same")]
        self.assertEqual(purposes(), sorted([*dense, ("generate", "q8_0"), ("generate", "q4_0")]))
        self.assertEqual(purposes("sweep.recompute=auto"), purposes())
        for same in ("sweep.weights=same", 'sweep.weights=["same"]', 'sweep . weights = [ "same", ]', "sweep={weights='same'}"):
            self.assertEqual(purposes(same), dense, same)
        self.assertEqual(purposes("sweep.weights=nf4", "sweep.purpose=generate"), [("generate", "nf4")])
        self.assertEqual(purposes("sweep.weights=nf4"), [("generate", "nf4")])
        self.assertEqual(purposes("sweep.purpose=train"), [("train", "same")])
        for both in (("sweep.purpose=train", "sweep.weights=nf4"), ('sweep.purpose = "train"', 'sweep.weights = ["nf4"]')):
            call = self.run_driver("smollm2-135m", "--dry-run", *(word for one in both for word in ("--set", one)), expect=3)
            self.assertIn("add [adapter]", call.stderr)
        for rank in ("adapter.rank=8", " adapter.rank = 8", "adapter={rank=8}"):
            self.assertEqual(purposes(rank, "sweep.weights=q4_0"), [("generate", "q4_0"), ("train", "q4_0")], rank)

    def test_sentences_fit_a_terminal_and_are_whole_in_a_log(self):
        call = ["llama-3.1-8b", "--set", "memory.budget=80GB", "-o"]
        reader, terminal = pty.openpty()
        run = subprocess.Popen([self.PROGRAM, *call, "a.h5"], cwd=self.folder, stdout=terminal, stderr=subprocess.DEVNULL,
                               env={**os.environ, "NO_COLOR": "1"})
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while part := os.read(reader, 65536):
                shown += part
        os.close(reader)
        self.assertEqual(run.wait(), 0, shown)
        self.assertEqual([line for line in shown.decode().splitlines() if len(line) > 100], [])
        logged = self.run_driver(*call, "b.h5").stdout
        self.assertNotEqual([line for line in logged.splitlines() if len(line) > 100], [])
        self.assertEqual(shown.decode().replace("a.h5", "b.h5").split(), logged.split())

    def test_what_is_no_model_says_how_to_name_one(self):
        write = "error: a model stands in the place of a deck; write kformer-memory llama-3.1-8b\n"
        for option in (["--model", "llama-3.1-8b"], ["--model=llama-3.1-8b"], ["-m", "llama-3.1-8b"]):
            self.assertIn(write, self.run_driver(*option, expect=2).stderr)
        self.assertNotIn("--model", self.run_driver("--help").stdout)
        folder = driver_case.SOURCE / "inputs/tiny-llama"
        said = self.run_driver(folder / "config.json", expect=2).stderr
        self.assertIn(f"config.json' is no deck; the folder that holds it is a model: write kformer-memory {folder}\n", said)
        (self.folder / "config.json").write_text("{}")
        self.assertIn("write kformer-memory .\n", self.run_driver("config.json", expect=2).stderr)

    def test_a_context_beyond_the_model_is_noted(self):
        (self.folder / "deck.toml").write_text(self.SMALL + "context = [1024, 1025]\n")
        note = "note: sequences have up to 1025 tokens, more than max_position_embeddings = 1024 of the model"
        self.assertIn(note, self.run_driver("deck.toml").stdout)
        self.assertNotIn("note:", self.run_driver("deck.toml", "--set", "sweep.context=1024", "-o", "b.h5").stdout)

    def test_a_folder_needs_no_deck(self):
        deck = self.run_driver(driver_case.SOURCE / "inputs/tiny-llama", "--print-deck").stdout
        self.assertIn(f'path = "{driver_case.SOURCE / "inputs/tiny-llama"}"', deck)


class Decks(MemoryTest):
    def test_sizes_that_leave_64_bits_are_unsupported(self):
        deck = self.SMALL.replace("hidden_size = 64", "hidden_size = 16777216").replace("_layers = 2", "_layers = 1000")
        (self.folder / "deck.toml").write_text(deck + 'purpose = "train"' + "\nbatch = 16777216\ncontext = 16777216\n")
        out = self.run_driver("deck.toml", expect=7).stdout
        self.assertIn("unsupported", out)
        self.assertIn("\n  kformer::Ledger: the ", out)
        self.assertIn(" does not fit in 64 bits; make the extents smaller", out)

    def test_a_mask_of_a_cache_that_leaves_64_bits_is_unsupported(self):
        deck = self.SMALL.replace("_heads = 4", "_heads = 65536\nhead_dim = 2\nsliding_window = 8")
        (self.folder / "deck.toml").write_text(deck + 'purpose = "generate"\nkv_cache = "heavy_hitters"\ncontext = 1073741824\n'
                                               "prefill_chunk = 536870912\n[plan]\nbudget = 536870912\n")
        out = self.run_driver("deck.toml", expect=7).stdout
        self.assertIn("the product 65536 x 536870912 x 1073741824 does not fit in 64 bits", out)

    def test_the_greatest_budget_is_one(self):
        greatest = 2**63 - 1
        (self.folder / "deck.toml").write_text(self.SMALL + f"[memory]\nbudget = {greatest}\n")
        self.assertIn("budget 8.00 EiB", self.run_driver("deck.toml").stdout)

    def test_every_deck_of_the_project_is_good(self):
        self.check_decks_of_the_project("memory_plan", 1)

    def test_an_unknown_key_is_refused_with_its_place(self):
        self.deck("seq_len = 4\n")
        text = self.run_driver("deck.toml", expect=3).stderr
        self.assertIn("deck.toml:12:1: error: unknown key 'seq_len' in [sweep]", text)
        self.assertEqual(self.files(), ["deck.toml"])

    def test_keys_that_could_have_no_effect_are_unknown(self):
        self.deck("context = 16\n")
        for key, value in [("seed", 1), ("on_oom", "abort")]:
            with self.subTest(key=key):
                done = self.run_driver("deck.toml", "--set", f"run.{key}={value}", expect=3)
                self.assertIn(f"unknown key '{key}' in [run]", done.stderr)

    def test_contradictions_of_an_objective(self):
        self.deck('purpose = "train"\ncontext = 16\nbatch = 4\n')
        grpo = ("objective.kind=grpo", "policy.max_new_tokens=8")
        for settings, sentence in (
                (("policy.top_k=3",), "[policy] is for 'objective.kind' = \"grpo\", not \"next_token\""),
                (("objective.kind=dpo", "sweep.batch=3"), "'sweep.batch' = 3 must be even with 'objective.kind' = \"dpo\""),
                (("objective.kind=dpo", "training.sequences=5"), "'training.sequences' = 5 must be even"),
                (("training.sequences=3",), "'sweep.batch' = 4, the sequences of a micro-batch, is more than training.sequences = 3"),
                ((*grpo, "policy.updates=2"), "unknown key 'updates' in [policy]"),
                ((*grpo, "training.sequences=12"), "'training.sequences' = 12 must be a multiple of policy.group_size = 8"),
                ((*grpo, "training.sequences=16", "policy.sample_batch=3"),
                 "'policy.sample_batch' = 3 must divide training.sequences = 16"),
                ((*grpo, "training.accumulate=true"), "'training.accumulate' with 'objective.kind' = \"grpo\" needs"),
                ((*grpo, "policy.temperature=0"), "'policy.temperature' must be more than 0"),
                ((*grpo, "adapter.dropout=0.1"), "'adapter.dropout' would make the model that learns another one"),
                ((*grpo, "sweep.weights=nf4"), "'sweep.weights' = \"nf4\" cannot be trained; add [adapter]")):
            with self.subTest(settings=settings):
                words = [word for setting in settings for word in ("--set", setting)]
                self.assertIn(sentence, self.run_driver("deck.toml", *words, expect=3).stderr)
        # Generation has no pairs.
        self.run_driver("deck.toml", "--set", "objective.kind=dpo", "--set", "sweep.batch=3", "--set", "sweep.purpose=generate")

    def test_output_that_cannot_be_written_is_a_failure(self):
        for argument in (self.deck("context = 16\n"), "--version", "--describe-deck", "--deck-schema", "--help"):
            with self.subTest(argument=argument), open("/dev/full", "w") as full:
                done = subprocess.run([self.PROGRAM, argument], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn("error: cannot write to", done.stderr)

    def test_the_time_limit_stops(self):
        self.deck("context = [16, 32]\n")
        self.assertIn("walltime_s", self.run_driver("deck.toml", "--set", "run.walltime_s=1e-9", expect=75).stdout)

    def test_weights_that_are_not_there(self):
        (self.folder / "none.toml").write_text('schema = 1\nkind = "memory_plan"\n[weights]\npath = "nowhere"\n')
        self.assertIn("nowhere", self.run_driver("none.toml", expect=4).stderr)


@needs_h5py
class Forecasts(MemoryTest):
    def test_a_title_says_each_thing_once(self):
        self.deck("context = 16\n")
        for name, title in (("memory-tiny", "Kformer memory-tiny"), ("tiny", "Kformer memory_plan tiny")):
            self.run_driver("deck.toml", "--set", f"run.name={name}")
            with h5py.File(self.folder / f"{name}.h5") as file:
                self.assertEqual(file.attrs["title"], title)

    def test_weights_and_cache_are_what_they_must_be(self):
        self.run_driver(self.SMOKE_DECK, "--set", "sweep.context=[8192]", "-o", "plan.h5")
        with h5py.File(self.folder / "plan.h5") as file:
            cases = file["cases"]
            weights, caches = texts(cases["weights"]), texts(cases["kv_cache"])
            for i, batch in enumerate(cases["batch"][()]):
                with self.subTest(weights=weights[i], cache=caches[i], batch=batch):
                    bytes_per_weight = {"same": 2, "q8_0": 34 / 32, "q4_0": 18 / 32}[weights[i]]
                    tolerance = 0.001 if weights[i] == "same" else 0.15  # the embedding may stay dense
                    np.testing.assert_allclose(cases["weights_bytes"][i], PARAMETERS * bytes_per_weight, rtol=tolerance)
                    if caches[i] == "contiguous":
                        np.testing.assert_allclose(cases["kv_cache_bytes"][i], batch * 2**30, rtol=0.01)
                    parts = [cases[f"{name}_bytes"][i] for name in ("weights", "kv_cache", "activations", "workspace")]
                    self.assertLessEqual(max(parts), cases["predicted_bytes"][i])

    def test_the_largest_context_is_the_last_that_fits(self):
        self.deck('prefill_chunk = 16\ncontext = 16\nbatch = [1, 7]\nkv_cache = ["contiguous", "paged", "int8"]\n')
        arguments = ["--set", "plan.device_bytes=1500000", "--set", "output.overwrite=true"]
        self.run_driver("deck.toml", *arguments)
        with h5py.File(self.folder / "deck.h5") as file:
            points = list(zip(texts(file["cases/kv_cache"]), file["cases/batch"][()].tolist(),
                              file["cases/largest_context"][()].tolist()))
        for cache, batch, largest in points:
            with self.subTest(cache=cache, batch=batch):
                contexts = f"sweep.context=[{largest}, {largest + 1}]"
                self.assertGreater(largest, 0)
                self.run_driver("deck.toml", *arguments, "--set", contexts, "--set", f"sweep.batch={batch}", "--set",
                                f"sweep.kv_cache={cache}", "-o", "two.h5")
                with h5py.File(self.folder / "two.h5") as file:
                    fits = words(file["cases/fits"])
                self.assertEqual(fits[0], "yes")
                if largest < 1024:  # where the search ends: the context of the model
                    self.assertEqual(fits[1], "no")

    def test_training_takes_more_than_generating(self):
        self.deck('purpose = ["generate", "train"]\ncontext = 64\n')
        self.run_driver("deck.toml", "--set", "training.accumulate=true")
        with h5py.File(self.folder / "deck.h5") as file:
            generate, train = file["cases/predicted_bytes"][()]
            self.assertGreater(train, generate)
            # Weights hold two rotary tables besides, of 64 positions, half a head and 4 bytes.
            self.assertEqual(file["cases/gradients_bytes"][1], file["cases/weights_bytes"][1] - 2 * 64 * 8 * 4)

    def test_the_table_of_the_best_grid_has_its_forecast(self):
        """With the keys that hold for all grids."""
        keys = 'purpose = "train"\ndtype = "f32"\nrecompute = "none"\ncontext = 16\n[training]\nsequences = 2\n'
        for given, kept in (("overlap = true\nbucket_mib = 1\n", "overlap = true\nbucket_mib = 1\n"), ("", "")):
            with self.subTest(given=given):
                # Products decide, so that all ranks divide them.
                self.deck(keys + "[parallel]\n" + given + "[grids]\nranks = 2\nflop_rate = 1e6\n")
                said = self.run_driver("deck.toml", "--overwrite").stdout
                table = said.split("the first one as a table of kformer-train:\n")[1].split("results: ")[0]
                self.assertTrue(table.endswith('order = "any"\n' + kept), table)
                self.deck(keys + table, "again.toml")
                self.run_driver("again.toml", "--overwrite")
                with h5py.File(self.folder / "deck.h5") as file, h5py.File(self.folder / "again.h5") as again:
                    # The forecast of a grid is of the memory of its space alone.
                    if texts(again["cases/execution_space"])[0] in ("serial", "openmp", "threads"):
                        self.assertEqual(file["grids/predicted_bytes"][0], again["cases/predicted_bytes"][0])

    def test_grids_of_a_context_that_no_ranks_divide(self):
        self.deck('purpose = "train"\ncontext = 15\n[training]\nsequences = 2\n[grids]\nranks = 2\n')
        self.run_driver("deck.toml")
        with h5py.File(self.folder / "deck.h5") as file:
            axes = [file["grids"][name][()].tolist() for name in ("data", "context", "tensor", "pipeline")]
        self.assertEqual(set(zip(*axes)), {(2, 1, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2)})


@needs_h5py
class Training(MemoryTest):
    """Forecasts against the ledger of kformer-train."""

    MODEL = """
hidden_size = 64
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 96
num_hidden_layers = 6
vocab_size = 300
max_position_embeddings = 1024
"""
    BATCH, CONTEXT = 3, 40

    def forecast(self, dtype, policy, *arguments):
        """The rows of /cases and /memory/classes of a plan with one case, and what the driver said."""
        (self.folder / "plan.toml").write_text(
            f'schema = 1\nkind = "memory_plan"\n[model]{self.MODEL}[sweep]\npurpose = "train"\ndtype = "{dtype}"\n'
            f'batch = {self.BATCH}\ncontext = {self.CONTEXT}\nrecompute = "{policy}"\n[output]\noverwrite = true\n')
        done = self.run_driver("plan.toml", *arguments)
        with h5py.File(self.folder / "plan.h5") as file:
            return ({name: file["cases"][name][0] for name in file["cases"]}, self.classes(file), done.stdout)

    def train(self, dtype, policy, *arguments, reward=False):
        (self.folder / "train.toml").write_text(
            f'schema = 1\nkind = "train"\n[profile]\nmachine_limits = false\n[model]{self.MODEL}[data]\n'
            f'format = "synthetic"\n[batch]\nmicro_batch = {self.BATCH}\nseq_len = {self.CONTEXT}\n[schedule]\n'
            f'steps = 1\n[precision]\nstorage = "{dtype}"\n[memory]\nrecompute = "{policy}"\n[output]\n'
            'overwrite = true\n' + ('[[reward]]\nkind = "contains"\n' if reward else ""))
        done = subprocess.run([os.environ["KFORMER_TRAIN"], "train.toml", *arguments], cwd=self.folder,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with h5py.File(self.folder / "train.h5") as file:
            return {name: file["cases"][name][0] for name in file["cases"]}, self.classes(file)

    def classes(self, file):
        table = file["memory/classes"]
        return {name: table[name][()].tolist() for name in table}

    def compare(self, dtype, policy, *arguments):
        plan, plan_classes, _ = self.forecast(dtype, policy, *arguments)
        run, run_classes = self.train(dtype, policy, *arguments)
        self.assertEqual(plan["predicted_bytes"], run["peak_bytes"])
        self.assertEqual(plan["schedule"], run["recompute"])
        self.assertEqual(plan["scratch_bytes"], run["scratch_bytes"])
        self.assertEqual(plan_classes, run_classes)
        return plan

    def test_the_forecast_is_the_ledger_of_a_training(self):
        for dtype, policy in itertools.product(("f32", "bf16"), ("none", "pointwise", "layer", "nested", "auto")):
            with self.subTest(dtype=dtype, policy=policy):
                self.compare(dtype, policy)

    def test_so_it_is_with_other_storage_of_the_optimizer(self):
        for dtype, states, master in (("f16", "full", "f32"), ("bf16", "int8", "none"), ("f32", "int8", "f32")):
            with self.subTest(dtype=dtype, states=states, master=master):
                self.compare(dtype, "pointwise", "--set", f"optimizer.states={states}", "--set",
                             f"optimizer.master={master}")

    def test_steps_of_several_micro_batches_keep_all_gradients(self):
        single = self.compare("f32", "pointwise")
        plan, classes, _ = self.forecast("f32", "pointwise", "--set", "training.accumulate=true")
        run, run_classes = self.train("f32", "pointwise", "--set", f"batch.sequences={self.BATCH + 1}")
        self.assertEqual(plan["predicted_bytes"], run["peak_bytes"])
        self.assertEqual(classes, run_classes)
        # Those of all layers but the last lie over what the layers behind keep.
        size, inner = 64, 96
        layer = 4 * (2 * size * size + size * size + 3 * size * inner + 2 * size)
        self.assertEqual(plan["predicted_bytes"] - single["predicted_bytes"], 5 * layer)

    PAIRS = '{"prompt": "aa", "chosen": "bbb", "rejected": "cc"}\n' * 8
    PROMPTS = '{"prompt": "abc", "answer": "a"}\n{"prompt": "abcdefghijklmnop", "answer": "a"}\n' * 8
    RUN = ["--set", "data.format=text", "--set", "tokenizer.format=byte", "--set", "data.train=lines.jsonl"]

    def test_so_it_is_with_pairs(self):
        (self.folder / "lines.jsonl").write_text(self.PAIRS)
        dpo = ["--set", "objective.kind=dpo"]
        for batch, sequences in ((2, 2), (4, 4), (2, 6)):
            with self.subTest(batch=batch, sequences=sequences):
                plan, classes, _ = self.forecast("f32", "pointwise", *dpo, "--set", f"sweep.batch={batch}", "--set",
                                                 f"training.sequences={sequences}")
                run, run_classes = self.train("f32", "pointwise", *dpo, *self.RUN, "--set", f"batch.micro_batch={batch}", "--set",
                                              f"batch.sequences={sequences}")
                self.assertEqual((plan["predicted_bytes"], classes), (run["peak_bytes"], run_classes))
        # What fits are whole pairs.
        self.assertEqual(self.forecast("f32", "pointwise", *dpo, "--set", "sweep.batch=2", "--set",
                                       f'memory.budget="{plan["predicted_bytes"] * 5}"')[0]["largest_batch"] % 2, 0)

    def test_so_it_is_with_a_sampler(self):
        (self.folder / "lines.jsonl").write_text(self.PROMPTS)
        # The longest prompt is 16 letters behind a token that begins a text.
        grpo = ["--set", "objective.kind=grpo", "--set", "policy.group_size=4", "--set", "policy.max_new_tokens=9"]
        totals = []
        for dtype, batch, sequences, weights, keys in (
                ("f32", 4, 4, "same", []), ("f32", 2, 8, "same", []), ("bf16", 3, 12, "same", ["policy.sample_batch=6"]),
                ("f32", 8, 8, "same", ["policy.top_k=5", "policy.top_p=0.5"]), ("f32", 2, 8, "same", ["adapter.rank=4"]),
                ("f32", 4, 4, "same", ["policy.beta=0.1"]), ("bf16", 3, 12, "same", ["policy.beta=0.1", "optimizer.states=int8"]),
                ("f32", 2, 8, "same", ["adapter.rank=4", "policy.beta=0.1"]),
                ("bf16", 2, 8, "q8_0", ["adapter.rank=4"]), ("f32", 2, 8, "nf4", ["adapter.rank=4", "adapter.dora=true"])):
            with self.subTest(dtype=dtype, batch=batch, sequences=sequences, weights=weights, keys=keys):
                keys = [word for key in keys for word in ("--set", key)]
                plan, classes, _ = self.forecast(dtype, "pointwise", *grpo, *keys, "--set", f"sweep.batch={batch}", "--set",
                                                 f"training.sequences={sequences}", "--set", "policy.longest_prompt=17",
                                                 "--set", f"sweep.weights={weights}")
                run, run_classes = self.train(dtype, "pointwise", *grpo, *keys, *self.RUN, "--set", f"batch.micro_batch={batch}",
                                              "--set", f"batch.sequences={sequences}", "--set", f"precision.weights={weights}",
                                              reward=True)
                self.assertEqual((plan["predicted_bytes"], classes), (run["peak_bytes"], run_classes))
                self.assertGreater(plan["kv_cache_bytes"], 0)
                totals.append(plan["predicted_bytes"])
        caches = [self.forecast("f32", "pointwise", *grpo, "--set", "training.sequences=8", "--set", f"policy.sample_batch={n}")[0]
                  ["kv_cache_bytes"] for n in (8, 4)]
        self.assertEqual(caches[0], 2 * caches[1])
        # A divergence takes the weights once more, unless adapters learn.
        size, inner, words = 64, 96, 300
        parameters = 6 * (3 * size * size + 3 * size * inner + 2 * size) + size + 2 * words * size
        for keys, more in (([], 4 * parameters), (["--set", "adapter.rank=4"], 0)):
            weights = [self.forecast("f32", "pointwise", *grpo, *keys, "--set", f"policy.beta={beta}")[0]["weights_bytes"]
                       for beta in (0, 0.1)]
            self.assertEqual(weights[1] - weights[0], more)
        # Without a longest prompt, prompts have all the room that completions leave; a step has whole groups.
        plans = [self.forecast("f32", "pointwise", *grpo, "--set", "sweep.batch=2", *keys)
                 for keys in ([], ["--set", "policy.longest_prompt=31", "--set", "training.sequences=4"])]
        self.assertEqual(plans[0][1], plans[1][1])
        self.assertLess(plans[0][0]["predicted_bytes"], totals[1])

    def test_ranks_that_cannot_share_a_step(self):
        for settings, sentence in (
                (("parallel.data=4", "training.sequences=5"),
                 "'parallel.data' = 4 ranks cannot share a step: a step has 3 micro-batches ('training.sequences' = 5, "
                 "'sweep.batch' = 2), and with 1 on each some ranks have none; 3 ranks can, or change these"),
                (('parallel.order="fixed"', "parallel.data=2", "training.sequences=10"),
                 "'parallel.order' = \"fixed\" needs a power of two of micro-batches on each rank, not 3"),
                (('parallel.order="fixed"', "parallel.data=3", "parallel.zero=2", "training.sequences=12"),
                 "'parallel.order' = \"fixed\" with 'parallel.zero' = 2 needs a power of two of ranks")):
            with self.subTest(settings=settings):
                words = [word for setting in ("sweep.batch=2", *settings) for word in ("--set", setting)]
                self.deck('purpose = "train"\ncontext = 12\n')
                self.assertIn("error: " + sentence, self.run_driver("deck.toml", *words, expect=3).stderr)

    # Shorter ones, through which the search goes, may have no room for a completion, or no chunks for all ranks.
    def test_the_largest_context_is_one_that_can_be_trained(self):
        for context, multiple, settings in (
                (48, 6, ("parallel.context=3",)),
                (700, 1, ("objective.kind=grpo", "policy.group_size=4", "policy.max_new_tokens=690", "sweep.batch=2"))):
            with self.subTest(settings=settings):
                words = [word for setting in settings for word in ("--set", setting)]
                of = lambda tokens, *more: self.forecast("f32", "pointwise", *words, "--set", f"sweep.context={tokens}", *more)[0]
                budget = of(context)["predicted_bytes"]
                largest = of(context, "--set", f'memory.budget="{budget}"')["largest_context"]
                self.assertGreaterEqual(largest, context)
                self.assertEqual(largest % multiple, 0)
                self.assertLessEqual(of(largest)["predicted_bytes"], budget)

    def test_a_sampler_that_does_not_fit_is_said(self):
        for settings, sentence in (
                (["policy.group_size=2", "policy.max_new_tokens=40"], "max_new_tokens = 40 leaves room for a prompt of 0 tokens"),
                (["policy.max_new_tokens=30", "policy.longest_prompt=11"],
                 "leaves room for a prompt of 10 tokens in a context of 40, but the longest has 11")):
            (self.folder / "plan.toml").write_text(
                f'schema = 1\nkind = "memory_plan"\n[model]{self.MODEL}[sweep]\npurpose = "train"\ncontext = 40\n'
                "[output]\noverwrite = true\n")
            words = [word for setting in settings for word in ("--set", setting)]
            text = self.run_driver("plan.toml", "--set", "objective.kind=grpo", *words, expect=7).stdout
            self.assertIn("unsupported", text)
            self.assertIn(sentence, text)

    def test_a_budget_gives_the_schedule_of_a_training(self):
        totals = [self.forecast("f32", policy)[0]["predicted_bytes"] for policy in ("none", "pointwise", "layer")]
        schedules = set()
        for budget in (totals[0], (totals[0] + totals[1]) // 2, (totals[1] + totals[2]) // 2, totals[2]):
            with self.subTest(budget=budget):
                plan = self.compare("f32", "auto", "--set", f'memory.budget="{budget}"')
                self.assertLessEqual(plan["predicted_bytes"], budget)
                schedules.add(plan["schedule"])
        self.assertEqual(len(schedules), 4)

    def test_a_budget_that_is_too_small_is_said_with_what_would_do(self):
        plan, _, text = self.forecast("f32", "auto", "--set", 'memory.budget="1000"')
        self.assertGreater(plan["predicted_bytes"], 1000)
        self.assertIn("nothing fits; the least is auto", text)
        self.assertIn("not counted: ", text)

    def test_a_budget_replaces_what_is_free_and_a_device_limits_it(self):
        many = 1 << 50  # more than any machine has
        for budget, device, expected in ((many, 0, many), (0, many, many), (many, 1000, 1000), (1000, many, 1000)):
            with self.subTest(budget=budget, device=device):
                given = ["--set", f'memory.budget="{budget}"'] if budget else []
                plan = self.forecast("f32", "none", *given, "--set", f"plan.device_bytes={device}")[0]
                self.assertEqual(plan["available_bytes"], expected)

    def test_ranks_divide_recomputation_as_they_divide_the_rest(self):
        (self.folder / "plan.toml").write_text(f'schema = 1\nkind = "memory_plan"\n[model]{self.MODEL}[sweep]\npurpose = "train"\n'
                                               'batch = 3\ncontext = 40\nrecompute = ["layer"]\n')
        shares = []
        for grid in ("tensor=1", "tensor=2", "context=2"):
            self.run_driver("plan.toml", "--set", f"parallel.{grid}", "--overwrite", "-o", "all.h5")
            with h5py.File(self.folder / "all.h5") as file:
                shares.append(file["cases/recompute_share"][0])
        self.assertGreater(shares[0], 0)
        np.testing.assert_allclose(shares, shares[0], rtol=1e-12)

    def test_policies_trade_memory_for_time(self):
        (self.folder / "plan.toml").write_text(
            f'schema = 1\nkind = "memory_plan"\n[model]{self.MODEL}[sweep]\npurpose = "train"\nbatch = 3\n'
            'context = 40\nrecompute = ["none", "pointwise", "layer", "nested", "offload"]\n')
        text = self.run_driver("plan.toml", "--set", 'memory.budget="1GiB"', "-o", "all.h5").stdout
        self.assertIn("batch 3, context 40: take none: ", text)
        with h5py.File(self.folder / "all.h5") as file:
            cases = file["cases"]
            self.assertEqual(texts(cases["recompute"]), ["none", "pointwise", "layer", "nested", "offload"])
            self.assertEqual(words(cases["status"])[:4], ["ok"] * 4)
            self.assertTrue((np.diff(cases["predicted_bytes"][:4].astype(float)) < 0).all())
            self.assertTrue((np.diff(cases["recompute_share"][:4]) > 0).all())
            self.assertTrue((np.diff(cases["largest_batch"][:4]) > 0).all())
            # Forward is about a third of a step, and one layer is never repeated.
            self.assertLess(cases["recompute_share"][2], 1 / 3)
            # On a host there is nowhere to move to.
            if texts(cases["execution_space"])[0] in ("serial", "openmp", "threads"):
                self.assertEqual(words(cases["status"])[4], "unsupported")


if __name__ == "__main__":
    unittest.main(verbosity=2)
