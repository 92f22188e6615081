# SPDX-License-Identifier: MIT
"""Trainings whose models, layers and sequences ranks divide: they compute what one rank does, continue from each other's
checkpoints, and write the same models and adapters.

ctest runs this with the program in KFORMER_TRAIN, mpiexec in KFORMER_MPIEXEC and the sources in KFORMER_SOURCE.
"""

import itertools
import json
import math
import os
import shutil
import unittest
from pathlib import Path

from driver_case import h5py, needs_h5py, read_safetensors
from kformer_train_ranks import KEYS, RanksTest
from train_case import TINY

# Four ranks divide it, but not its words.
MODEL = """[model]
hidden_size = 24
intermediate_size = 40
num_hidden_layers = 2
num_attention_heads = 8
num_key_value_heads = 4
head_dim = 4
vocab_size = 258
max_position_embeddings = 64
rms_norm_eps = 1e-5
rope_theta = 1e4
tie_word_embeddings = false
"""


class GridsTest(RanksTest):
    """Grids data x context x tensor x pipeline: `context` divides sequences, `tensor` and `pipeline` divide models."""

    # An update g / (sqrt(v) + eps) magnifies the rounding of gradients that are 0 but for rounding by 1 / eps.
    EXACT = ('precision.storage="f64"', "optimizer.eps=1e-4", 'output.model="model"')

    @staticmethod
    def parallel(data, context, tensor, zero=0, pipeline=1, schedule="1f1b", parts=1, sequence=False):
        return (f"parallel.data={data}", f"parallel.context={context}", f"parallel.tensor={tensor}", f"parallel.zero={zero}",
                f"parallel.pipeline={pipeline}", f'parallel.schedule="{schedule}"', f"parallel.parts={parts}", f"parallel.sequence={json.dumps(sequence)}")

    @staticmethod
    def ranks(grid):
        return math.prod(grid[:3]) * (grid[4] if len(grid) > 4 else 1)

    def weights(self):
        return read_safetensors(self.folder / "model" / "model.safetensors")

    def check_close(self, before, now):
        for ours, theirs in zip(now, before):
            for a, b in zip(ours, theirs):
                self.assertLess(abs(a - b), 1e-12 * abs(b) + 1e-300)

    def check_grids(self, keys, grids, *settings, divided=()):
        """`divided`: settings of the grids alone."""
        self.train_on(None, keys, *self.EXACT, *settings)
        numbers, whole = self.numbers(), self.weights()
        for grid in grids:
            with self.subTest(grid=grid):
                shutil.rmtree(self.folder / "model")
                self.train_on(self.ranks(grid), keys, *self.parallel(*grid), *self.EXACT, *settings, *divided)
                self.check_close(numbers, self.numbers())
                weights = self.weights()
                self.assertEqual(weights.keys(), whole.keys())
                for name, values in weights.items():
                    self.assertEqual(values.shape, whole[name].shape, name)
                    self.assertLess(abs(values - whole[name]).max(), 1e-12, name)

    def check_same_bits(self, grids, *settings):
        """In the fixed order, on grids that need the memory of their forecast."""
        keys, settings = KEYS + '[init]\nscheme = "scaled"\nseed = 3\n', ('parallel.order="fixed"', 'output.model="model"', *settings)
        self.train_on(None, keys, *settings)
        numbers, model = self.numbers(), self.model("model")
        for grid in grids:
            with self.subTest(grid=grid, settings=settings):
                shutil.rmtree(self.folder / "model")
                self.train_on(self.ranks(grid), keys, *self.parallel(*grid), *settings)
                self.assertEqual(self.numbers(), numbers)
                self.assertEqual(self.model("model"), model)
                self.check_memory_of_ranks()

    def check_memory_of_ranks(self):
        with h5py.File(self.folder / "deck.h5") as file:
            memory = file["memory/ranks"]
            self.assertEqual(memory["predicted_bytes"][()].tolist(), memory["peak_bytes"][()].tolist())


@unittest.skipUnless(os.environ.get("KFORMER_EVERY_GRID"), "takes half an hour: KFORMER_EVERY_GRID=1 asks for it")
@needs_h5py
class EveryGrid(GridsTest):
    MOST = 8
    SCHEDULES = (("1f1b", 1), ("interleaved", 2), ("zero_bubble", 1))

    @classmethod
    def pipelines(cls):
        """(tied, storage, grids): every pipeline of up to eight ranks, with a tied embedding in one type, without in another."""
        # A stage of ZeRO and a schedule have three grids or more, one after the other: each type takes some.
        grids = [(data, 1, 1, zero, pipeline, schedule, parts) for zero in (0, 1, 2) for schedule, parts in cls.SCHEDULES
                 for data in (1, 2, 4) for pipeline in range(2, cls.MOST // data + 1) if pipeline * parts <= 8]
        return [(tied, storage, grids[(turn + tied) % 3::3])
                for tied in (False, True) for turn, storage in enumerate(("f32", "bf16", "f64"))]

    def test_the_fixed_order_of_twenty_steps(self):
        """Every pipeline of up to eight ranks, with every schedule and stage of ZeRO: storage types in turns."""
        base = self.SMALL
        for tied, storage, grids in self.pipelines():
            model = MODEL.replace("num_hidden_layers = 2", "num_hidden_layers = 8").replace("= false", f"= {json.dumps(tied)}")
            self.SMALL = base.replace(f'[weights]\npath = "{TINY}"\n', model)
            # The last micro-batch has one sequence.
            self.check_same_bits(grids, f'precision.storage="{storage}"', "schedule.steps=20", "batch.sequences=15")

    def test_other_pipelines_go_on_in_the_fixed_order(self):
        """With the bits of one rank."""
        model = MODEL.replace("layers = 2", "layers = 4").replace("= false", "= true")
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', model)
        keys = KEYS + '[init]\nseed = 3\n[checkpoint]\nfolder = "saved"\nevery_steps = 2\n'
        settings = ('parallel.order="fixed"', 'output.model="model"')
        self.train_on(None, keys, *settings)
        numbers, model = self.numbers(), self.model("model")
        for grid in ((2, 1, 1, 2, 2, "zero_bubble"), (2, 1, 1, 2, 2, "interleaved", 2), (1, 1, 1, 2, 4), (1, 1, 1, 0, 2, "interleaved", 2), (4, 1, 1, 2, 2)):
            with self.subTest(grid=grid):
                for path in (self.folder / "saved").glob("step-00000006*"):
                    path.unlink()
                shutil.rmtree(self.folder / "model")
                output = self.train_on(self.ranks(grid), keys, *self.parallel(*grid), *settings, "checkpoint.resume=true")
                self.assertIn("resumed after step 4", output)
                self.assertEqual(self.numbers(), numbers)
                self.assertEqual(self.model("model"), model)

    def test_twenty_steps(self):
        """Every grid of up to eight ranks with every stage of ZeRO, 20 steps; schedules and sequence parallelism in turns."""
        base, turn = self.SMALL, 0
        for tensor in range(1, self.MOST + 1):
            heads = tensor if tensor in (3, 5, 6, 7) else 8
            model = MODEL.replace("num_hidden_layers = 2", "num_hidden_layers = 8").replace("intermediate_size = 40", f"intermediate_size = {8 * tensor}")
            model = model.replace("attention_heads = 8", f"attention_heads = {heads}").replace("value_heads = 4", f"value_heads = {heads}")
            for context in range(1, self.MOST // tensor + 1):
                self.SMALL = base.replace(f'[weights]\npath = "{TINY}"\n', model).replace("seq_len = 24", f"seq_len = {8 * context}")
                for data in range(1, self.MOST // (tensor * context) + 1):
                    grids = []
                    for pipeline in range(1, self.MOST // (tensor * context * data) + 1):
                        for zero in (0, 1, 2):
                            turn += 1
                            schedule, parts = self.SCHEDULES[turn % len(self.SCHEDULES) if 1 < pipeline <= 4 else 0]
                            sequence = tensor > 1 and 16 % tensor == 0 and turn % 2 == 0
                            grids.append((data, context, tensor, zero, pipeline, schedule, parts, sequence))
                    # Three micro-batches for each rank along data, the last with one sequence.
                    self.check_grids(KEYS + '[init]\nscheme = "scaled"\nseed = 3\n', grids, "schedule.steps=20", "optimizer.lr=1e-3",
                                     f"batch.sequences={6 * data - 1}")


class Pipelines(unittest.TestCase):
    def test_each_type_has_every_schedule_with_every_stage_of_zero(self):
        found = [(tied, storage, grid) for tied, storage, grids in EveryGrid.pipelines() for grid in grids]
        self.assertEqual({(tied, storage, grid[3], grid[5]) for tied, storage, grid in found},
                         set(itertools.product((False, True), ("f32", "bf16", "f64"), (0, 1, 2), dict(EveryGrid.SCHEDULES))))
        for tied in (False, True):
            grids = [grid for other, _, grid in found if other == tied]
            # 7 + 3 + 1 pipelines along 1, 2 and 4 ranks, and 3 + 3 + 1 that are interleaved, for each stage of ZeRO.
            self.assertEqual((len(grids), len(set(grids))), 2 * (3 * (11 + 7 + 11),))


@needs_h5py
class DividedModels(GridsTest):
    def test_a_model_of_a_checkpoint(self):
        self.check_grids(KEYS, ((1, 1, 2, 0), (2, 1, 2, 1), (1, 4, 1, 0), (2, 2, 2, 2)), 'memory.recompute="pointwise"')

    def test_layers_of_a_checkpoint(self):
        """Its embedding is tied: the first and the last rank have it."""
        self.check_grids(KEYS, ((1, 1, 1, 0, 2), (2, 1, 1, 2, 2, "zero_bubble"), (2, 1, 1, 2, 2), (1, 2, 2, 0, 2, "1f1b", 1, True)))

    def test_layers_that_the_deck_makes(self):
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', MODEL.replace("layers = 2", "layers = 7"))
        keys = KEYS + '[init]\nscheme = "scaled"\nseed = 3\n'
        self.check_grids(keys, ((1, 1, 1, 0, 3), (1, 1, 2, 1, 3, "interleaved", 2), (2, 1, 1, 2, 3, "interleaved", 2), (1, 1, 1, 0, 4, "zero_bubble")))
        self.check_same_bits(((2, 1, 1, 1, 2), (2, 1, 1, 2, 2, "zero_bubble"), (1, 1, 1, 2, 3, "interleaved", 2)))

    def test_the_fixed_order_of_a_tied_embedding(self):
        """The last rank sends its gradient of each micro-batch to the first, in float."""
        model = MODEL.replace("layers = 2", "layers = 4").replace("= false", "= true")
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', model)
        self.check_same_bits(((1, 1, 1, 0, 2), (2, 1, 1, 2, 2, "interleaved", 2), (1, 1, 1, 0, 2, "interleaved", 2)))
        with h5py.File(self.folder / "deck.h5") as file:
            sent = file["communication"]
            travelled = sum(int(n) for region, n in zip(sent["region"].asstr()[()], sent["bytes"][()]) if region == "gradients of the embedding")
        self.assertEqual(travelled, 6 * 8 * 258 * 24 * 4)

    def test_states_of_8_bits(self):
        """Ranks whose parts have whole blocks continue from each other's checkpoints, and others are refused."""
        model = (MODEL.replace("hidden_size = 24", "hidden_size = 32").replace("intermediate_size = 40", "intermediate_size = 512")
                 .replace("value_heads = 4", "value_heads = 8").replace("head_dim = 4", "head_dim = 64").replace("258", "288"))
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', model)
        keys = KEYS + '[init]\nseed = 3\n[checkpoint]\nfolder = "saved"\nevery_steps = 2\n'
        states = 'optimizer.states="int8"'
        for grid, resumes in (((1, 1, 2, 0), False), ((2, 1, 1, 1), True), ((1, 1, 2, 0, 2), True), ((2, 1, 2, 2), True)):
            with self.subTest(grid=grid):
                for path in (self.folder / "saved").glob("step-00000006*"):
                    path.unlink()
                resume = ("checkpoint.resume=true",) if resumes else ()
                output = self.train_on(self.ranks(grid), keys, *self.parallel(*grid), states, *resume)
                self.assertEqual("resumed after step 4" in output, resumes)
                self.check_memory_of_ranks()
        output = self.train_on(4, keys, "parallel.tensor=4", states, "checkpoint.folder=other", expect=1)
        self.assertIn("4 ranks (tensor) would divide blocks of 256 8-bit states of model.layers.0.self_attn.o_proj.weight; take full "
                      "states, or another number of ranks", output)
        self.assertFalse((self.folder / "other").exists())

    def test_adapters_of_divided_layers(self):
        """The adapter and the merged model have the parts of all ranks."""
        for dora in (False, True):
            self.check_adapters(KEYS + f"[adapter]\nrank = 4\ndropout = 0.2\ndora = {json.dumps(dora)}\n",
                                ((1, 1, 1, 0, 2, "zero_bubble"), (2, 1, 1, 1, 2), (2, 1, 1, 2, 2, "zero_bubble"), (1, 1, 2, 0), (2, 1, 2, 2),
                                 (1, 1, 2, 1, 2, "1f1b", 1, True)))

    def check_adapters(self, keys, grids):
        settings = (*self.EXACT, 'output.adapter="adapter"', "output.overwrite=true")
        self.train_on(None, keys, *settings)
        folders = ("model/model.safetensors", "adapter/adapter_model.safetensors")
        numbers, before = self.numbers(), [read_safetensors(self.folder / name) for name in folders]
        config = (self.folder / "adapter/adapter_config.json").read_text()
        for grid in grids:
            with self.subTest(grid=grid, keys=keys):
                output = self.train_on(self.ranks(grid), keys, *self.parallel(*grid), *settings)
                self.assertIn("merged", output)
                self.check_close(numbers, self.numbers())
                for name, expected in zip(folders, before):
                    found = read_safetensors(self.folder / name)
                    self.assertEqual(found.keys(), expected.keys())
                    for key, values in found.items():
                        self.assertLess(abs(values - expected[key]).max(), 1e-12, key)
                self.assertEqual((self.folder / "adapter/adapter_config.json").read_text(), config)

    def test_documents_of_divided_sequences(self):
        self.check_grids(KEYS, ((1, 2, 1, 0), (1, 4, 1, 1), (2, 2, 2, 0), (1, 2, 1, 0, 2)), 'data.packing="best_fit"')

    def test_an_adapter_goes_on_where_ranks_divide_it(self):
        """From its folder and from a checkpoint."""
        keys = KEYS + "[adapter]\nrank = 4\n"
        self.train_on(None, keys, *self.EXACT, 'output.adapter="first"')
        keys = KEYS + '[checkpoint]\nfolder = "saved"\nevery_steps = 2\n[adapter]\npath = "first"\n'
        self.train_on(None, keys, *self.EXACT, "output.overwrite=true")
        numbers, whole = self.numbers(), self.weights()
        for settings, grid in (((), (1, 1, 2, 0)), (("checkpoint.resume=true",), (2, 1, 1, 1)), ((), (2, 1, 1, 0)),
                               (("checkpoint.resume=true",), (1, 1, 2, 0, 2))):
            with self.subTest(grid=grid):
                for path in (self.folder / "saved").glob("step-00000006*" if settings else "*"):
                    path.unlink()
                output = self.train_on(self.ranks(grid), keys, *self.EXACT, *self.parallel(*grid), *settings,
                                       "output.overwrite=true")
                self.assertEqual("resumed after step 4" in output, bool(settings))
                self.check_close(numbers, self.numbers())
                for name, values in self.weights().items():
                    self.assertLess(abs(values - whole[name]).max(), 1e-12, name)

    def test_keys_go_round_in_a_ring(self):
        self.check_grids(KEYS, ((1, 2, 1, 0), (1, 4, 1, 1), (2, 2, 2, 0), (1, 2, 1, 0, 2)), 'data.packing="best_fit"',
                         divided=('parallel.context_exchange="ring"',))
        with h5py.File(self.folder / "deck.h5") as file:
            operations = set(file["communication/operation"].asstr()[()])
            memory = file["memory/ranks"]
            self.assertEqual(memory["predicted_bytes"][()].tolist(), memory["peak_bytes"][()].tolist())
        self.assertIn("shift", operations)
        self.assertNotIn("reduce_scatter", operations)

    def test_a_window_does_not_go_round(self):
        """A model of the deck is refused at the key."""
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', MODEL + "sliding_window = 5\n")
        output = self.train_on(None, KEYS + '[init]\nseed = 3\n', "parallel.context=2", 'parallel.context_exchange="ring"', expect=3)
        self.assertIn("error: 'parallel.context_exchange' = \"ring\" is not for 'sliding_window' = 5 of the model", output)

    def test_adapters_of_divided_sequences_are_merged(self):
        self.train_on(2, KEYS + "[adapter]\nrank = 4\n", "parallel.context=2", 'output.model="model"')
        self.assertIn("model.norm.weight", self.weights())

    def test_a_model_that_the_deck_makes(self):
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', MODEL)
        self.check_grids(KEYS + '[init]\nscheme = "scaled"\nseed = 3\n', ((1, 1, 4, 0), (2, 1, 4, 2), (1, 3, 2, 1)))

    def test_the_first_weights_do_not_depend_on_the_ranks(self):
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', MODEL)
        models = []
        for tensor, pipeline in ((1, 1), (2, 1), (4, 1), (2, 2)):
            # No step changes a weight.
            self.train_on(tensor * pipeline, KEYS, f"parallel.tensor={tensor}", f"parallel.pipeline={pipeline}",
                          "optimizer.lr=1e-300", 'output.model="model"',
                          "optimizer.weight_decay=0", "schedule.steps=1")
            models.append(self.model("model"))
        self.assertEqual(models[1:], models[:1] * 3)

    def test_evaluations_and_texts(self):
        keys = KEYS + ("[evaluation]\nevery_steps = 3\nsequences = 7\n"
                       '[samples]\nevery_steps = 3\nprompts = ["Permission", "The"]\nmax_new_tokens = 5\ntemperature = 1\n')
        validation = f'data.validation=["{Path(os.environ["KFORMER_SOURCE"]) / "LICENSE"}"]'
        found = []
        for grid in ((1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 2, 2), (2, 2, 1, 0, 2)):
            self.train_on(self.ranks(grid), keys, *self.parallel(*grid), validation, 'precision.storage="f64"',
                          "optimizer.eps=1e-4")
            with h5py.File(self.folder / "deck.h5") as file:
                texts = file["samples/text"].asstr()[()].tolist()
            found.append((self.column("loss", "evaluations").tolist(), texts))
        self.assertEqual(len(found[0][0]), 2)
        self.assertEqual(len(found[0][1]), 4)
        for losses, texts in found[1:]:
            self.check_close([found[0][0]], [losses])
            self.assertEqual(texts, found[0][1])

    def test_another_grid_continues(self):
        keys = KEYS + '[checkpoint]\nfolder = "saved"\nevery_steps = 2\n'
        for first, then in (((1, 1, 2, 0), (2, 1, 1, 1)), ((2, 1, 1, 1), (1, 2, 2, 0)), ((2, 1, 2, 2), (1, 2, 1, 1)),
                            ((2, 1, 1, 2, 2, "zero_bubble"), (1, 1, 2, 0)), ((1, 2, 1, 0), (2, 1, 1, 2, 2, "zero_bubble"))):
            with self.subTest(first=first, then=then):
                shutil.rmtree(self.folder / "saved", ignore_errors=True)
                self.train_on(self.ranks(first), keys, *self.EXACT, *self.parallel(*first))
                numbers, whole = self.numbers(), self.weights()
                for path in (self.folder / "saved").glob("step-00000006*"):
                    path.unlink()
                output = self.train_on(self.ranks(then), keys, *self.EXACT, *self.parallel(*then),
                                       "checkpoint.resume=true")
                self.assertIn("resumed after step 4", output)
                self.check_close(numbers, self.numbers())
                for name, values in self.weights().items():
                    self.assertLess(abs(values - whole[name]).max(), 1e-12, name)

    def test_refusals(self):
        adapter = KEYS + "[adapter]\nrank = 4\n"
        for ranks, keys, settings, code, sentence in (
                (2, KEYS, ("parallel.tensor=2", "parallel.data=2"), 3,
                 "error: 'parallel.data' = 2 x 'parallel.tensor' = 2 needs 4 ranks, but 2 were started"),
                (4, KEYS, ("parallel.tensor=4",), 1,
                 "kformer-train: 'parallel.tensor' = 4 ranks do not divide 'num_attention_heads' = 6 of the model; take a "
                 "number that does"),
                (None, KEYS, ("parallel.context=5",), 3,
                 "'parallel.context' = 5 needs a 'batch.seq_len' that is a multiple of 10, two chunks for each rank, not 24"),
                (None, KEYS, ("parallel.context=2", 'parallel.order="fixed"'), 3,
                 "'parallel.context' = 2 is not for 'parallel.order' = \"fixed\", which adds up whole micro-batches"),
                (None, adapter, ("parallel.tensor=2", 'output.adapter="a"', "output.adapter_gguf=true"), 3,
                 "'output.adapter_gguf' is not for 'parallel.tensor' = 2, whose ranks have parts of adapters; remove it, and "
                 "convert 'output.adapter'"),
                (2, adapter, ("parallel.tensor=2", 'precision.weights="nf4"'), 1,
                 "stays quantised (NF4) in blocks that ranks (tensor) would divide; expand it"),
                (3, KEYS, ("parallel.pipeline=3",), 1,
                 "'parallel.pipeline' = 3 ranks with 1 part of the model each need as many layers, but 'num_hidden_layers' = 2"),
                (None, KEYS, ("parallel.pipeline=2", "parallel.overlap=true"), 3,
                 "'parallel.pipeline' = 2 is not for 'parallel.overlap'"),
                (None, KEYS, ("parallel.pipeline=2", 'memory.recompute="nested"'), 3,
                 "'parallel.pipeline' = 2 is not for recompute = \"nested\", which goes through all layers"),
                (None, KEYS, ("parallel.pipeline=2", 'memory.recompute="layer"', 'parallel.schedule="zero_bubble"'), 3,
                 "'parallel.pipeline' = 2 is not for recompute = \"layer\" with the schedule zero_bubble"),
                (None, KEYS, ("parallel.pipeline=2", 'parallel.schedule="interleaved"'), 3,
                 "'parallel.schedule' = \"interleaved\" needs 'parallel.parts' > 1"),
                (None, KEYS, ("parallel.sequence=true",), 3, "'parallel.sequence' needs 'parallel.tensor' > 1"),
                (None, KEYS, ('parallel.context_exchange="ring"',), 3,
                 "'parallel.context_exchange' = \"ring\" needs 'parallel.context' > 1"),
                (None, KEYS, ("parallel.sequence=true", "parallel.tensor=2", "batch.seq_len=23", "batch.micro_batch=1"), 3,
                 "'parallel.sequence': 2 ranks do not divide the 23 tokens of a micro-batch"),
                (None, KEYS, ("parallel.parts=2",), 3, "'parallel.parts' = 2 needs 'parallel.schedule' = \"interleaved\""),
                (None, KEYS, ('parallel.schedule="zero_bubble"',), 3,
                 "'parallel.schedule' = \"zero_bubble\" needs 'parallel.pipeline' > 1"),
                (2, KEYS, ("parallel.tensor=2", 'optimizer.states="int8"'), 1,
                 "2 ranks (tensor) would divide blocks of 256 8-bit states of model.")):
            with self.subTest(sentence=sentence):
                output = self.train_on(ranks, keys, *settings, expect=code)
                self.assertIn(sentence, output)
                self.assertFalse(list(self.folder.glob("*.h5")))


if __name__ == "__main__":
    unittest.main()
