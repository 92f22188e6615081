# SPDX-License-Identifier: MIT
"""Cases as a grid of the axes of their sweep."""

import itertools
import unittest
import unittest.mock

import h5py
import numpy as np
import xarray as xr

from kformer_results import GridError, axes, grid, open_results, to_grid
from tests import stored, synthetic
from tests.test_results import WithFile
from tests.test_tables import GENERATED, write

DECK = """
[sweep]
mode = "product"
dtype = ["f32", "bf16"]
execution_space = ["all"]
batch = [1]
seq_len = [512, 1024, 2048, 4096]
[[sweep.exclude]]
dtype = ["f32"]
"""
ZIPPED = """
[sweep]
mode = "zip"
impl = ["flash"]
batch = [8, 4, 1]
seq_len = [8, 16, 64]
"""


def columns(**values):
    """Cases of these columns, and of a result that is their number."""
    count = len(next(iter(values.values())))
    data = {name: ("case", np.asarray(column)) for name, column in values.items()}
    return xr.Dataset({**data, "time_median": ("case", np.arange(count, dtype=float))}).assign_coords(case=range(count))


class Axes(unittest.TestCase):
    def test_they_are_those_of_the_deck_in_its_order(self):
        cases = axes.with_axes(columns(dtype=["f32"], batch=[1], seq_len=[512]), "layer_sweep", DECK)
        self.assertEqual(cases.attrs, {"sweep_axes": "dtype batch seq_len", "zipped_axes": ""})

    def test_a_purpose_is_an_op(self):
        cases = axes.with_axes(columns(op=["train"]), "memory_plan", '[sweep]\npurpose = ["train"]')
        self.assertEqual(cases.attrs["sweep_axes"], "op")

    def test_generations_have_prompts_and_repeats(self):
        cases = axes.with_axes(columns(prompt=["a"], repeat=[0]), "generate", "schema = 1")
        self.assertEqual(cases.attrs["sweep_axes"], "prompt repeat")

    def test_a_deck_that_is_none_gives_no_axes(self):
        for deck in ("", "schema = ", 'sweep = "all"', "a = " + 5000 * "["):
            self.assertEqual(axes.with_axes(columns(batch=[1]), "layer_sweep", deck).attrs, {})


class Grid(WithFile):
    def cases(self, deck=None, **options):
        path = self.written(**options)
        if deck:
            with h5py.File(path, "a") as file:
                file["provenance/deck_resolved"] = deck
        return open_results(path)["cases"]

    def test_every_case_is_at_the_values_of_its_axes(self):
        cases = self.cases(DECK)
        found = to_grid(cases)
        self.assertEqual(found["time_median"].dims[:4], ("dtype", "execution_space", "batch", "seq_len"))
        self.assertEqual(set(found["time_median"].dims[4:]), {"direction", "impl"})
        for impl, dtype, direction, n in itertools.product(
            synthetic.IMPLS, synthetic.DTYPES, synthetic.DIRECTIONS, synthetic.SEQ_LENS
        ):
            point = found.sel(impl=impl, dtype=dtype, direction=direction, seq_len=n).squeeze()
            self.assertEqual(point["time_median"].item(), synthetic.seconds(impl, dtype, direction, n))
            self.assertEqual(cases["seq_len"].sel(case=int(point["case"])).item(), n)
            self.assertEqual(point["time"].sizes, {"repeat": synthetic.REPEATS})
        self.assertEqual(found["time"].attrs["units"], "s")
        self.assertEqual(found["hidden_size"].item(), 2048)
        self.assertEqual(found["hidden_size"].dims, ())

    def test_points_without_a_case_are_empty(self):
        cases = self.cases(DECK)
        left = to_grid(cases.isel(case=slice(0, 31)))
        whole = to_grid(cases)
        gone = {"impl": "flash", "dtype": "bf16", "direction": "backward", "seq_len": 4096}
        point = left.sel(gone).squeeze()
        self.assertTrue(np.isnan(point["time_median"].item()))
        self.assertEqual((point["status"].item(), point["case"].item()), ("", -1))
        self.assertEqual(int(left["time_median"].isnull().sum()), 1)
        self.assertEqual(int(whole["time_median"].isnull().sum()), 0)

    def test_two_runs_align_and_concatenate_by_their_axes(self):
        cases = self.cases(DECK)
        short = to_grid(cases.isel(case=cases["seq_len"].values < 2048))
        long = to_grid(cases.isel(case=np.flatnonzero(cases["seq_len"].values > 512)[::-1]))
        first, second = xr.align(short, long)
        self.assertEqual(list(first["seq_len"].values), [1024])
        xr.testing.assert_equal(first["time_median"], second["time_median"])
        both = xr.concat([short, long.sel(seq_len=[2048, 4096])], "seq_len", join="outer", compat="override", coords="minimal")
        whole = to_grid(cases)["time_median"]
        xr.testing.assert_allclose(both["time_median"].reindex_like(whole).transpose(*whole.dims), whole)

    def test_zipped_axes_are_one_dimension(self):
        cases = columns(impl=["flash"] * 6, execution_space=["openmp"] * 3 + ["serial"] * 3,
                        batch=[8, 4, 1] * 2, seq_len=[8, 16, 64] * 2)  # fmt: skip
        found = to_grid(axes.with_axes(cases, "layer_sweep", ZIPPED))
        self.assertEqual(found["time_median"].sizes, {"impl": 1, "point": 3, "execution_space": 2})
        self.assertEqual(list(found["point"].values), ["batch 8, seq_len 8", "batch 4, seq_len 16", "batch 1, seq_len 64"])
        self.assertEqual(list(found["batch"].values), [8, 4, 1])
        point = found.sel(point="batch 4, seq_len 16", execution_space="serial")
        self.assertEqual((point["time_median"].item(), point["seq_len"].item()), (4, 16))

    def test_zipped_axes_that_others_separate_stand_at_the_first(self):
        deck = '[sweep]\nmode = "zip"\nbatch = [8, 4]\nimpl = ["flash"]\nseq_len = [8, 16]\ndtype = ["f32"]\n'
        found = to_grid(axes.with_axes(columns(batch=[8, 4], impl=["flash"] * 2, seq_len=[8, 16], dtype=["f32"] * 2), "layer_sweep", deck))
        self.assertEqual(found["time_median"].dims, ("point", "impl", "dtype"))
        self.assertEqual((found["batch"].dims, found["seq_len"].dims), (("point",), ("point",)))
        self.assertNotIn("batch", found.data_vars)
        self.assertEqual(found["point"].attrs, {"long_name": "values of the axes that vary together"})

    def test_lengths_that_follow_each_other_are_no_product(self):
        cases = columns(q_len=[8, 1, 16, 1], seq_len=[8, 8, 16, 16], head_dim=[4] * 4, v_head_dim=[4] * 4)
        found = to_grid(cases)
        self.assertEqual(found["time_median"].sizes, {"q_len": 2, "seq_len": 2})
        self.assertEqual(list(found["q_len"].values), [0, 1])
        np.testing.assert_array_equal(found["time_median"], [[0, 2], [1, 3]])
        self.assertEqual(found["v_head_dim"].item(), 0)

    def test_a_fixed_length_that_meets_another_stays(self):
        cases = columns(q_len=[512] * 3, seq_len=[512, 1024, 2048], head_dim=[64] * 3, v_head_dim=[64] * 3)
        found = to_grid(cases)
        self.assertEqual((found["q_len"].item(), found["v_head_dim"].item()), (512, 0))
        np.testing.assert_array_equal(found["time_median"], [0, 1, 2])
        found = to_grid(columns(q_len=[512, 512, 1024, 512], seq_len=[256, 512, 1024, 1024]))
        np.testing.assert_array_equal(found["q_len"], [0, 512])

    def test_columns_that_vary_along_named_axes_are_variables(self):
        cases = columns(batch=[8, 4, 1], seq_len=[8, 16, 64], dtype=["f32"] * 3, op=["a", "b", "a"])
        cases["batch"].attrs["units"] = "1"
        found = to_grid(cases, axes=["seq_len"])
        xr.testing.assert_identical(to_grid(cases, axes="seq_len"), found)
        np.testing.assert_array_equal(found["batch"], [8, 4, 1])
        self.assertEqual((found["batch"].dims, found["batch"].attrs), (("seq_len",), {"units": "1"}))
        self.assertEqual(list(found["op"].values), ["a", "b", "a"])
        self.assertEqual(found["dtype"].dims, ())

    def test_axes_can_be_named(self):
        found = to_grid(columns(batch=[2, 1], seq_len=[8, 8]), axes=["seq_len", "batch"])
        self.assertEqual(found["time_median"].sizes, {"seq_len": 1, "batch": 2})
        np.testing.assert_array_equal(found["time_median"], [[1, 0]])

    def test_what_is_no_grid_is_said_in_a_sentence(self):
        cases = columns(batch=[1, 1, 2], seq_len=[8, 16, 8])
        wanted = "cases 0 and 1 have the same place on the axes batch: they differ in seq_len, which must be an axis too"
        for words, call in {
            wanted: lambda: to_grid(cases, axes=["batch"]),
            "the axes batch: they are alike": lambda: to_grid(columns(batch=[1, 2, 1])),
            "'time' is not an axis of these cases; they have: batch, seq_len": lambda: to_grid(cases, axes=["time"]),
            "there are no cases": lambda: to_grid(cases.isel(case=[])),
            "to_grid(groups['cases'])": lambda: to_grid({"cases": cases}),
        }.items():
            with self.subTest(words=words), self.assertRaises(GridError) as caught:
                call()
            self.assertIn(words, str(caught.exception))

    def test_a_grid_that_is_far_larger_than_its_cases_is_refused(self):
        cases = columns(batch=range(100), seq_len=range(100))
        with unittest.mock.patch.object(grid, "MOST_CELLS", 9999), self.assertRaises(GridError) as caught:
            to_grid(cases)
        self.assertIn("100 cases span a grid of 100 x 100 points, more than 9999: select cases", str(caught.exception))
        wide = columns(batch=[1, 2]).assign(time=(("case", "repeat"), np.ones((2, 10))))
        with unittest.mock.patch.object(grid, "MOST_CELLS", 19), self.assertRaisesRegex(GridError, "'time' has more than"):
            to_grid(wide)

    def test_generations_have_a_prompt_and_a_repeat(self):
        write(self.folder / "run.h5", "generate", GENERATED)
        found = to_grid(open_results(self.folder / "run.h5")["cases"])
        self.assertEqual(found["decode_rate"].sizes, {"prompt": 2})

    def test_grids_of_ranks_have_their_axes(self):
        found = to_grid(open_results(stored.unpack(self.folder, "scaling"))["cases"])
        self.assertEqual(found["time_median"].dims[:4], ("data", "context", "tensor", "pipeline"))
        for name in ("zero", "schedule", "scaling"):
            self.assertIn(name, found.coords)

    def test_a_schedule_of_a_plan_is_a_result(self):
        cases = open_results(stored.unpack(self.folder, "memory_plan"))["cases"]
        self.assertNotIn("schedule", axes.key_frame(cases))

    def test_a_grid_can_be_written(self):
        found = to_grid(self.cases(DECK).isel(case=slice(0, 31)))
        found.to_netcdf(self.folder / "grid.nc", engine="h5netcdf")
        with xr.open_dataset(self.folder / "grid.nc", engine="h5netcdf") as again:
            xr.testing.assert_equal(again["time_median"].load(), found["time_median"])


if __name__ == "__main__":
    unittest.main()
