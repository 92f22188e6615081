# SPDX-License-Identifier: MIT
"""Trainings whose models, layers and sequences ranks divide need the memory of their forecasts and send what plans say.

ctest runs this with the programs in KFORMER_TRAIN and KFORMER_MEMORY, mpiexec in KFORMER_MPIEXEC and the sources in
KFORMER_SOURCE.
"""

import json
import os
import shutil
import subprocess
import unittest

from driver_case import h5py, needs_h5py
from kformer_train_grids import MODEL, GridsTest
from kformer_train_ranks import KEYS
from train_case import TINY, set_options


@needs_h5py
class MemoryOfGrids(GridsTest):
    def predicted(self):
        return self.column("predicted_total_bytes", "memory/ranks").tolist()

    def test_ranks_that_divide_layers_recompute_the_same(self):
        """The second rank has a word more. In each budget the first rank alone has room for another schedule. Plans know it."""
        model = MODEL.replace("layers = 2", "layers = 4").replace("258", "259")
        self.SMALL = self.SMALL.replace(f'[weights]\npath = "{TINY}"\n', model)
        keys, tensor = KEYS + '[init]\nseed = 3\n', ("parallel.tensor=2", 'memory.recompute="auto"')
        self.train_on(2, keys, *tensor, "memory.budget=1GiB")
        numbers, (first, second) = self.numbers(), self.predicted()
        more = second - first
        self.assertGreater(more, 0)
        for _ in range(5):
            self.train_on(2, keys, *tensor, f"memory.budget={first}")
            self.assertEqual(self.numbers(), numbers)
            budget, (first, second) = first, self.predicted()
            self.assertEqual(second - first, more)
            self.assertLess(first, budget)
            schedule = self.column("recompute", "cases")[0].decode()
            self.assertEqual(self.plan_within(model, budget), (second, schedule))
            plan = self.planned_text(keys, *tensor, f"memory.budget={budget}")
            self.assertIn(f"memory      {self.bytes_text(second)} (", plan)
            self.assertIn(f"\nrecompute   auto: {schedule};", plan)

    def plan_within(self, model, budget):
        """Of two ranks that divide the model: the bytes of the one that needs most, and the schedule."""
        (self.folder / "plan.toml").write_text(
            f'schema = 1\nkind = "memory_plan"\n[run]\nthreads = 1\n{model}[sweep]\npurpose = "train"\nbatch = 2\ncontext = 24\n'
            f'recompute = "auto"\n[training]\nsequences = 15\n[parallel]\ntensor = 2\n[memory]\nbudget = "{budget}"\n')
        subprocess.run([os.environ["KFORMER_MEMORY"], "plan.toml", *set_options()], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        return (int(self.column("predicted_bytes", "cases", "plan.h5")[0]),
                self.column("schedule", "cases", "plan.h5")[0].decode())

    def test_stages_recompute_what_they_can(self):
        """Never nested, and with ZB-H1 nothing is computed again; layers that keep least are found."""
        auto, least = 'memory.recompute="auto"', 'memory.recompute="layer"'
        self.check_grids(KEYS, ((1, 1, 1, 0, 2, "zero_bubble"),), divided=(auto,))
        self.train_on(2, KEYS, "parallel.pipeline=2", least)
        budget = max(self.predicted())
        self.train_on(2, KEYS, "parallel.pipeline=2", auto, f"memory.budget={budget}")
        self.assertLessEqual(max(self.predicted()), budget)
        self.assertIn("no policy of recomputation needs less",
                      self.train_on(2, KEYS, "parallel.pipeline=2", auto, "memory.budget=1000", expect=6))

    def test_memory_is_that_of_the_forecasts(self):
        """Of every rank; of the one that needs most also by --dry-run and by kformer-memory."""
        adapter = "[adapter]\nrank = 4\ndora = true\ndropout = 0.1\n"
        for grid, model, table in (((1, 1, 2, 0), "", ""), ((2, 1, 2, 1), "model", ""), ((2, 2, 1, 2), "", ""),
                                   ((1, 4, 1, 1), "", ""), ((1, 2, 2, 0), "model", ""), ((2, 1, 1, 1, 2), "model", ""),
                                   ((1, 1, 2, 0, 2, "zero_bubble", 1, True), "", ""), ((1, 1, 2, 0), "", adapter),
                                   ((2, 1, 1, 2, 2, "zero_bubble"), "", ""), ((2, 1, 1, 2, 2, "zero_bubble"), "", adapter),
                                   ((2, 1, 2, 2), "", adapter), ((1, 1, 2, 1, 2, "1f1b", 1, True), "", adapter)):
            with self.subTest(grid=grid, model=model, table=table):
                ranks = self.ranks(grid)
                self.train_on(ranks, KEYS + table, *self.parallel(*grid), f'output.model="{model}"')
                with h5py.File(self.folder / "deck.h5") as file:
                    memory = file["memory/ranks"]
                    self.assertEqual(memory["predicted_bytes"][()].tolist(), memory["peak_bytes"][()].tolist())
                    self.assertEqual(memory["peak_total_bytes"].shape, (ranks,))
                    stages = grid[4] if len(grid) > 4 else 1
                    peak = int(memory["peak_total_bytes"][()].reshape(stages, grid[0], -1)[:, 0].max())
                self.assertEqual(self.planned(table, "true" if model else "false", *grid), peak)

    def test_the_copy_of_a_checkpoint_is_that_of_the_largest_part(self):
        """The first rank has no more of it than others, and is not the one that needs most."""
        keys = KEYS + '[checkpoint]\nfolder = "saved"\nevery_steps = 6\n'
        for ranks in (3, 4):
            grid = (1, ranks, 1, 0)
            self.train_on(ranks, keys, *self.parallel(*grid))
            peaks = self.predicted()
            self.assertLess(peaks[0], max(peaks))
            self.assertEqual(self.planned("", "false", *grid, copies="true"), max(peaks))
            self.assertIn(f"memory      {self.bytes_text(max(peaks))} (", self.planned_text(keys, *self.parallel(*grid)))

    def test_a_resumed_run_needs_no_more_memory(self):
        keys = KEYS + '[checkpoint]\nfolder = "saved"\nevery_steps = 2\n'
        for grid in ((1, 1, 2, 0), (1, 1, 1, 0, 2)):
            with self.subTest(grid=grid):
                shutil.rmtree(self.folder / "saved", ignore_errors=True)
                settings = (*self.parallel(*grid), 'output.model="model"')
                self.train_on(self.ranks(grid), keys, *settings)
                for path in (self.folder / "saved").glob("step-00000006*"):
                    path.unlink()
                self.assertIn("resumed after step 4",
                              self.train_on(self.ranks(grid), keys, *settings, "checkpoint.resume=true"))
                self.check_memory_of_ranks()

    def planned(self, table, model, data, context, tensor, zero, *pipeline, copies="false"):
        divided = dict(zip(("pipeline", "schedule", "parts", "sequence"), pipeline))
        (self.folder / "plan.toml").write_text(
            f'schema = 1\nkind = "memory_plan"\n[run]\nthreads = 1\n[weights]\npath = "{TINY}"\n'
            f'[sweep]\npurpose = "train"\nbatch = 2\ncontext = 24\n[training]\nsequences = 15\nmodel = {model}\n'
            f"checkpoint = {copies}\n[parallel]\ndata = {data}\ncontext = {context}\ntensor = {tensor}\nzero = {zero}\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in divided.items()) + table)
        subprocess.run([os.environ["KFORMER_MEMORY"], "plan.toml", *set_options()], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        return int(self.column("predicted_bytes", "cases", "plan.h5")[0])

    def test_bytes_are_those_of_the_formula(self):
        """4 sums of activations in each layer, one behind the embedding and one behind the head, in each micro-batch."""
        self.train_on(4, KEYS, "parallel.data=2", "parallel.tensor=2")
        with h5py.File(self.folder / "deck.h5") as file:
            sent = file["communication"]
            of = {}
            for region, rank, sent_bytes in zip(sent["region"].asstr()[()], sent["rank"][()], sent["bytes"][()]):
                of[region] = of.get(region, 0) + int(sent_bytes)
        layers, hidden = 2, 48
        # Each of the four ranks sends the 2 x 24 tokens of its four micro-batches of a step once for each sum.
        of_a_sum = 4 * 4 * 6 * 2 * 24 * hidden * 4
        self.assertEqual(of["activations"] + of["gradients of activations"] + of["embedding"], (4 * layers + 2) * of_a_sum)

    def planned_grids(self, *settings):
        run = subprocess.run([os.environ["KFORMER_MEMORY"], "plan.toml", *set_options(*settings)], cwd=self.folder,
                             check=True, stdout=subprocess.PIPE, text=True)
        self.assertRegex(run.stdout, "grids of 4 ranks; times are estimates")
        with h5py.File(self.folder / "plan.h5") as file:
            return {name: column[()] for name, column in file["grids"].items() if column.ndim == 1}

    def test_the_grids_of_a_plan(self):
        """What kformer-memory says of grids is what kformer-train needs and sends."""
        (self.folder / "plan.toml").write_text(
            f'schema = 1\nkind = "memory_plan"\n[run]\nthreads = 1\n[weights]\npath = "{TINY}"\n'
            '[sweep]\npurpose = "train"\nbatch = 2\ncontext = 24\n[training]\nsequences = 16\n[grids]\nranks = 4\n')
        grids = self.planned_grids()
        self.assertTrue((grids["time"][1:] >= grids["time"][:-1]).all())
        budget = int(sorted(grids["predicted_bytes"])[len(grids["time"]) // 2])
        some = self.planned_grids(f'memory.budget="{budget}"')
        fits = some["predicted_bytes"] <= budget
        count = int(fits.sum())
        self.assertTrue(0 < count < len(fits))
        self.assertEqual(fits.tolist(), some["fits"].astype(bool).tolist())
        self.assertTrue(fits[:count].all())
        self.assertEqual(sorted(some["time"][:count]), some["time"][:count].tolist())
        self.assertEqual(sorted(some["predicted_bytes"][count:]), some["predicted_bytes"][count:].tolist())
        self.check_plan(KEYS, grids, ((4, 1, 1, 1, 1), (2, 1, 2, 0, 1), (1, 2, 1, 0, 2), (1, 1, 2, 0, 2), (2, 1, 1, 2, 2), (4, 1, 1, 2, 1)))
        self.check_plan(KEYS + "[adapter]\nrank = 24\n", self.planned_grids("adapter.rank=24"),
                        ((4, 1, 1, 1, 1), (2, 1, 2, 1, 1), (2, 1, 2, 2, 1)))
        ring = 'parallel.context_exchange="ring"'
        rings = self.planned_grids(ring)
        self.check_plan(KEYS, rings, ((1, 4, 1, 0, 1),), ring)
        self.check_exchanges(grids, rings)
        fixed = 'parallel.order="fixed"'
        self.check_plan(KEYS, self.planned_grids(fixed), ((1, 1, 2, 0, 2), (2, 1, 1, 2, 2)), fixed)
        put_off = ('parallel.schedule="zero_bubble"', "parallel.sequence=true")
        self.check_plan(KEYS, self.planned_grids(*put_off), ((1, 1, 2, 0, 2),), *put_off)
        self.check_idle_times()

    def check_idle_times(self):
        """ZB-H1 idles a third of the time of 1F1B, and with adapters, which have little to put off, hardly less."""
        for settings, least, most in (((), 0.33, 0.34), (("adapter.rank=1",), 0.9, 1), (("adapter.rank=1", "adapter.dora=true"), 0.33, 0.4)):
            with self.subTest(settings=settings):
                one, other = (self.planned_grids(*settings, f'parallel.schedule="{schedule}"') for schedule in ("1f1b", "zero_bubble"))
                idle = [{tuple(int(plan[axis][i]) for axis in ("data", "tensor", "zero", "pipeline")): plan["idle_time"][i]
                         for i in range(len(plan["time"])) if plan["context"][i] == 1} for plan in (one, other)]
                grid = (1, 2, 0, 2)
                self.assertTrue(least * idle[0][grid] <= idle[1][grid] <= most * idle[0][grid], (idle[0][grid], idle[1][grid]))

    def check_exchanges(self, grids, rings):
        """A plan takes a ring where keys and values of all tokens do not fit, and one that a deck asks for."""
        divided = grids["context"] > 1
        self.assertEqual(set(grids["context_exchange"]), {0})
        self.assertEqual(rings["context_exchange"].tolist(), divided.astype(int).tolist())

        def bytes_of(plan):
            return {tuple(int(plan[axis][i]) for axis in ("data", "context", "tensor", "zero", "pipeline")): int(plan["predicted_bytes"][i])
                    for i in range(len(plan["time"]))}

        gathered, round_ = bytes_of(grids), bytes_of(rings)
        self.assertEqual(gathered.keys(), round_.keys())
        smaller = [grid for grid in gathered if round_[grid] < gathered[grid]]
        self.assertTrue(smaller)
        grid = smaller[0]
        plan = self.planned_grids(f'memory.budget="{(gathered[grid] + round_[grid]) // 2}"')
        exchange = {key: int(e) for key, e in zip(bytes_of(plan), plan["context_exchange"])}
        self.assertEqual(exchange[grid], 1)
        self.assertEqual(bytes_of(plan)[grid], round_[grid])
        for other in gathered:
            self.assertEqual(bytes_of(plan)[other], (round_ if exchange[other] else gathered)[other])

    def check_plan(self, keys, grids, some, *settings):
        found = {tuple(int(grids[axis][i]) for axis in ("data", "context", "tensor", "zero", "pipeline")): i
                 for i in range(len(grids["time"]))}
        self.assertEqual({self.ranks(grid) for grid in found}, {4})
        for grid in some:
            with self.subTest(grid=grid, keys=keys):
                i = found[grid]
                self.train_on(4, keys, *self.parallel(*grid), "batch.sequences=16", *settings)
                with h5py.File(self.folder / "deck.h5") as file:
                    memory, sent = file["memory/ranks/peak_total_bytes"][()], file["communication"]
                    rows = list(zip(sent["region"].asstr()[()], sent["rank"][()], sent["bytes"][()]))
                self.assertEqual(int(memory[::4 // grid[4]].max()), int(grids["predicted_bytes"][i]))
                steps = 6
                estimate = sum(grids[f"{axis}_bytes"][i] for axis in ("data", "context", "tensor", "pipeline"))
                # Of ranks the mean; a few numbers, and the embedding that two stages have, are left out.
                small = ("counts", "losses", "norm", "memory", "an evaluation", "loss", "whether to stop")
                measured = sum(int(n) for region, _, n in rows if region not in small) / 4 / steps
                self.assertLess(abs(estimate / measured - 1), 0.1, f"{estimate} {measured}")


if __name__ == "__main__":
    unittest.main()
