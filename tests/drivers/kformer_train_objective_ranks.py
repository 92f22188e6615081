# SPDX-License-Identifier: MIT
"""Ranks that share pairs and completions: they have the bits of one in the fixed order, and need the memory of their forecast.

ctest runs this with the programs in KFORMER_TRAIN and KFORMER_MEMORY, mpiexec in KFORMER_MPIEXEC and the sources in
KFORMER_SOURCE.
"""

import os
import subprocess
import sys
import unittest

import kformer_train_policies as policies
import kformer_train_preferences as preferences
from driver_case import h5py, needs_h5py, read_safetensors
from kformer_train_ranks import RanksTest
from train_case import TINY, set_options

if h5py is not None:
    import numpy as np

ADAPTER = "[adapter]\nrank = 2\n"


class ObjectiveTest(RanksTest):
    def results(self, keys):
        """What a run says of its steps and evaluations, and the weights that it wrote."""
        file = "adapter_model" if ADAPTER in keys else "model"
        with h5py.File(self.folder / "deck.h5") as results:
            tables = {f"{table}/{name}": column[()] for table in ("steps", "evaluations") for name, column in results[table].items()
                      if name not in ("time", "tokens_per_second", "waited") and column.ndim == 1}
            if "memory/ranks" in results:
                memory = results["memory/ranks"]
                self.assertEqual(memory["predicted_bytes"][()].tolist(), memory["peak_bytes"][()].tolist())
        return tables, (self.folder / "out" / f"{file}.safetensors").read_bytes()

    def run_on(self, ranks, keys, *settings):
        output = "adapter" if ADAPTER in keys else "model"
        self.train_on(ranks, keys, f'output.{output}="out"', *settings)
        return self.results(keys)

    def check_same_bits(self, keys, *settings, grids, rounded=()):
        """`rounded`: figures that are sums over tokens."""
        fixed = ('parallel.order="fixed"', *settings)
        before, model = self.run_on(None, keys, "parallel.data=1", *fixed)
        self.assertGreater(before["steps/gradient_norm"].max(), 0)
        for data, zero in grids:
            with self.subTest(data=data, zero=zero, keys=keys):
                now, weights = self.run_on(data, keys, f"parallel.data={data}", f"parallel.zero={zero}", *fixed)
                self.assertEqual(now.keys(), before.keys())
                for name, column in before.items():
                    if name.removeprefix("steps/") in rounded:
                        np.testing.assert_allclose(now[name], column, rtol=1e-12, atol=1e-14, err_msg=name)
                    else:
                        np.testing.assert_array_equal(now[name], column, name)
                self.assertEqual(weights, model)

    def planned(self, keys):
        (self.folder / "plan.toml").write_text(f'schema = 1\nkind = "memory_plan"\n[run]\nthreads = 1\n[weights]\npath = "{TINY}"\n' + keys)
        subprocess.run([os.environ["KFORMER_MEMORY"], "plan.toml", *set_options()], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        with h5py.File(self.folder / "plan.h5") as file:
            grids = [] if "grids" not in file else list(zip(*(file["grids"][axis][()].tolist() for axis in ("data", "context", "tensor", "pipeline"))))
        return int(self.column("predicted_bytes", "cases", "plan.h5")[0]), grids

    def peak(self):
        return int(self.column("peak_total_bytes", "memory/ranks")[0])


@needs_h5py
class Pairs(ObjectiveTest):
    SMALL = preferences.PreferenceTest.SMALL.replace("micro_batch = 4", "micro_batch = 2")
    KEYS = "[evaluation]\nevery_steps = 2\n"

    def test_pairs_of_a_step(self):
        for keys in (self.KEYS, self.KEYS + ADAPTER):
            # Means over the pairs of a rank are added up.
            self.check_same_bits(keys, grids=((2, 0), (2, 2), (4, 1)), rounded=preferences.FIGURES)

    def test_bf16_and_another_loss(self):
        self.check_same_bits(self.KEYS + ADAPTER, 'precision.storage="bf16"', "objective.loss=ipo", "batch.sequences=16", grids=((4, 2),),
                             rounded=preferences.FIGURES)

    def test_ranks_that_divide_the_model(self):
        for keys in (self.KEYS, self.KEYS + ADAPTER):
            exact = ('precision.storage="f64"', "optimizer.eps=1e-4")
            before, _ = self.run_on(None, keys, *exact)
            weights = self.weights(keys)
            for data in (1, 2):
                now, _ = self.run_on(2 * data, keys, "parallel.tensor=2", f"parallel.data={data}", *exact)
                for name, column in before.items():
                    np.testing.assert_allclose(now[name], column, rtol=1e-11, atol=1e-12, err_msg=name)
                for name, weight in self.weights(keys).items():
                    np.testing.assert_allclose(weight, weights[name], rtol=1e-11, atol=1e-12, err_msg=name)

    def weights(self, keys):
        return read_safetensors(self.folder / "out" / ("adapter_model.safetensors" if ADAPTER in keys else "model.safetensors"))

    def test_numbers_that_ranks_do_not_divide(self):
        """Five micro-batches, the last of one pair, and validation pairs that are no multiple."""
        keys = self.KEYS + ADAPTER
        settings = ("batch.micro_batch=4", "batch.sequences=18", 'precision.storage="f64"')
        before, _ = self.run_on(None, keys, *settings)
        for ranks in (2, 3):
            now, _ = self.run_on(ranks, keys, f"parallel.data={ranks}", *settings)
            for name, column in before.items():
                np.testing.assert_allclose(now[name], column, rtol=1e-9, atol=1e-10, err_msg=name)

    def test_another_grid_continues(self):
        """The reference is that of the first weights."""
        keys = self.KEYS + "[checkpoint]\nfolder = 'ck'\nevery_steps = 2\n"
        fixed = ('parallel.order="fixed"', "schedule.kind=constant")
        before, model = self.run_on(None, keys, "parallel.data=1", *fixed, "checkpoint.folder=whole")
        self.train_on(2, keys, "parallel.data=2", *fixed, "schedule.steps=2")
        now, weights = self.run_on(4, keys, "parallel.data=4", "parallel.zero=1", *fixed, "checkpoint.resume=true")
        for name in ("loss", "gradient_norm"):
            np.testing.assert_array_equal(now[f"steps/{name}"], before[f"steps/{name}"])
        self.assertEqual(weights, model)

    def test_plans(self):
        plan = ('[sweep]\npurpose = "train"\nbatch = 2\ncontext = 80\n[training]\nsequences = 8\nmodel = true\n'
                '[objective]\nkind = "dpo"\n')
        self.train_on(2, "", 'output.model="out"', "parallel.data=2", "parallel.zero=1")
        self.assertEqual(self.planned(plan + "[parallel]\ndata = 2\nzero = 1\n")[0], self.peak())
        _, grids = self.planned(plan + "[grids]\nranks = 4\n")
        self.assertTrue(grids)
        self.assertEqual({(context, pipeline) for _, context, _, pipeline in grids}, {(1, 1)})
        self.assertEqual({tensor for _, _, tensor, _ in grids}, {1, 2})


@needs_h5py
class Completions(ObjectiveTest):
    SMALL = policies.PolicyTest.SMALL.replace("micro_batch = 3", "micro_batch = 2")
    KEYS = policies.PolicyTest.LETTERS + "[evaluation]\nevery_steps = 2\n"
    ROUNDED = ("ratio", "kl")
    VALIDATION = f"data.validation='{policies.PROMPTS}'"

    def test_completions_of_a_step(self):
        # With ZeRO 2 the micro-batches are dealt in turns, so that groups lie on several ranks.
        for keys, settings in ((self.KEYS, ()), (self.KEYS, ("policy.updates=2", "policy.beta=0.2", "precision.storage=bf16")),
                               (self.KEYS + ADAPTER, ("policy.beta=0.2", "policy.loss=grpo", "policy.scale_rewards=batch"))):
            self.check_same_bits(keys, self.VALIDATION, *settings, grids=((2, 0), (2, 2), (8, 1)), rounded=self.ROUNDED)

    def test_sampler_and_trainer_agree_to_the_bit(self):
        for keys, settings in ((self.KEYS, ()), (self.KEYS + ADAPTER, ("precision.weights=nf4",))):
            now, _ = self.run_on(4, keys, self.VALIDATION, "parallel.data=4", "parallel.zero=2", *settings)
            self.assertEqual(now["steps/unequal_logp"].tolist(), [0] * 4)
            self.assertEqual(now["steps/ratio"].tolist(), [1] * 4)

    def test_numbers_that_ranks_do_not_divide(self):
        """Six micro-batches, the last of one completion."""
        settings = (self.VALIDATION, "batch.micro_batch=3", 'precision.storage="f64"')
        before, _ = self.run_on(None, self.KEYS, *settings)
        for zero in (0, 2):
            now, _ = self.run_on(3, self.KEYS, "parallel.data=3", f"parallel.zero={zero}", *settings)
            for name, column in before.items():
                np.testing.assert_allclose(now[name], column, rtol=1e-9, atol=1e-10, err_msg=name)

    def test_a_program_gives_rewards(self):
        (self.folder / "judge.py").write_text(
            "import json, sys\n"
            "for line in sys.stdin:\n"
            "    print(json.dumps({'reward': len(json.loads(line)['completion']) % 3}), flush=True)\n")
        keys = f"[[reward]]\nkind = 'program'\ncommand = ['{sys.executable}', 'judge.py']\n[evaluation]\n"
        self.check_same_bits(keys, self.VALIDATION, grids=((2, 0),), rounded=self.ROUNDED)

    def test_plans(self):
        plan = ('[sweep]\npurpose = "train"\nbatch = 2\ncontext = 24\n[training]\nsequences = 16\nmodel = true\n'
                '[objective]\nkind = "grpo"\n[policy]\ngroup_size = 4\nmax_new_tokens = 6\n')
        # And the token that begins texts.
        longest = 1 + max(len(line.split('"')[3]) for line in policies.PROMPTS.read_text().splitlines())
        self.train_on(4, policies.PolicyTest.LETTERS, 'output.model="out"', "parallel.data=4")
        self.assertEqual(self.planned(plan + f"longest_prompt = {longest}\n[parallel]\ndata = 4\n")[0], self.peak())
        _, grids = self.planned(plan + "[grids]\nranks = 4\n")
        self.assertEqual(set(grids), {(4, 1, 1, 1)})


if __name__ == "__main__":
    unittest.main()
