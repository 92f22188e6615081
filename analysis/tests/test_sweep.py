# SPDX-License-Identifier: MIT
"""The cases of many files as one data set."""

import os
import shutil
import sys
import time
import tracemalloc
import unittest

import h5py
import numpy as np
import xarray as xr

from kformer_results import ResultFileError, open_results, open_sweep, reader, to_grid
from tests import stored
from tests.test_results import WithFile
from tests.test_tables import write

# As many copies are opened; 1000 of them say how long a large sweep takes.
FILES = int(os.environ.get("KFORMER_SWEEP_FILES", "30"))
# Of what the same files take one by one.
MOST_TIME = 1 / 2


class Sweep(WithFile):
    def runs(self):
        """Two files that differ in their lengths."""
        first = stored.unpack(self.folder, "layer_sweep")
        second = shutil.copy(first, self.folder / "second.h5")
        with h5py.File(second, "r+") as file:
            file["cases/seq_len"][...] = file["cases/seq_len"][()] * 4096
            file["cases/time_median"][...] = file["cases/time_median"][()] * 2
        return [first, second]

    def test_it_has_the_cases_of_all_files(self):
        paths = self.runs()
        found = open_sweep(paths)
        alone = [open_results(path)["cases"] for path in paths]
        count = alone[0].sizes["case"]
        self.assertEqual(list(found["case"].values), list(range(2 * count)))
        self.assertEqual(list(found["file"].values), [str(path) for path in paths for _ in range(count)])
        for name, column in alone[0].data_vars.items():
            if column.dims != ("case",):
                self.assertNotIn(name, found)
                continue
            values = np.concatenate([cases[name].values for cases in alone])
            np.testing.assert_array_equal(found[name].values, values, name)
            self.assertEqual(found[name].attrs, column.attrs)
            self.assertEqual(found[name].dtype, values.dtype)
        self.assertEqual(found.attrs, alone[0].attrs)

    def test_it_is_a_grid(self):
        paths = self.runs()
        grid = to_grid(open_sweep(paths))
        parts = [to_grid(open_results(path)["cases"]) for path in paths]
        self.assertEqual(grid.sizes["seq_len"], sum(part.sizes["seq_len"] for part in parts))
        for part in parts:
            xr.testing.assert_equal(grid["time_median"].sel(seq_len=part["seq_len"]), part["time_median"])

    def test_two_runs_of_one_deck_differ_in_their_file(self):
        first = stored.unpack(self.folder, "layer_sweep")
        paths = [first, shutil.copy(first, self.folder / "again.h5")]
        grid = to_grid(open_sweep(paths))
        self.assertEqual(list(grid["file"].values), list(map(str, paths)))
        once = to_grid(open_results(first)["cases"])["time_median"]
        for path in paths:
            xr.testing.assert_equal(grid["time_median"].sel(file=str(path), drop=True), once)

    def test_versions_join_in_the_columns_that_both_have(self):
        old = stored.unpack(self.folder, "memory_plan", "1.0").rename(self.folder / "old.h5")
        with h5py.File(old, "r+") as file:
            del file["cases/communication_bytes"]
        new = stored.unpack(self.folder, "memory_plan")
        for paths in ([old, new], [new, old]):
            found = open_sweep(paths)
            alone = [open_results(path)["cases"] for path in paths]
            self.assertNotIn("communication_bytes", found)
            for name in ("predicted_bytes", "status", "largest_batch"):
                np.testing.assert_array_equal(found[name].values, np.concatenate([cases[name].values for cases in alone]), name)

    def test_files_of_a_later_version_join(self):
        paths = self.runs()
        for path in paths:
            with h5py.File(path, "r+") as file:
                file.attrs["schema_version"] = "1.99"
        self.assertEqual(open_sweep(paths).sizes["case"], 2 * open_results(paths[0])["cases"].sizes["case"])

    def decks(self, *sweeps):
        """Files of two cases each, of 8 and 16 tokens, with these tables [sweep]."""
        paths = []
        for number, sweep in enumerate(sweeps):
            path = self.folder / f"{number}.h5"
            batch = np.array([1, 2]) * 100**number
            columns = {"impl": ["flash"] * 2, "batch": batch, "seq_len": [8, 16], "flops": 1.0 * batch}
            write(path, "layer_sweep", {"cases": ("case", columns)})
            with h5py.File(path, "r+") as file:
                file["provenance/deck_resolved"] = f"[sweep]\n{sweep}\n"
            paths.append(path)
        return paths

    def test_axes_do_not_depend_on_the_order_of_files(self):
        zipped = 'mode = "zip"\nimpl = ["flash"]\nseq_len = [8, 16]\nbatch = [1, 2]'
        product = 'mode = "product"\nbatch = [1, 2]\nseq_len = [8, 16]'
        for sweeps, dims in (
            ((zipped, zipped), ("impl", "point")),
            ((product, product), ("batch", "seq_len")),
            ((zipped, product), ("impl", "batch", "seq_len")),
            ((zipped, zipped.replace('impl = ["flash"]\n', "")), ("impl", "point")),
            ((zipped, 'mode = "zip"\nimpl = ["flash"]\nseq_len = [8]\nbatch = [1]'), ("impl", "point")),
            ((zipped, 'mode = "product"\nimpl = ["flash"]\nseq_len = [8]\nbatch = [1]'), ("impl", "batch", "seq_len")),
            ((zipped, ""), ("impl", "batch", "seq_len")),
        ):  # fmt: skip
            paths = self.decks(*sweeps)
            grids = [to_grid(open_sweep(order))["flops"] for order in (paths, paths[::-1])]
            self.assertEqual(grids[0].dims, dims, sweeps)
            xr.testing.assert_identical(*(grid.sortby(list(dims)) for grid in grids))

    def test_trainings_have_their_file_as_axis(self):
        first = stored.unpack(self.folder, "train")
        self.assertEqual(dict(to_grid(open_sweep([first])).sizes), {})
        paths = [first, shutil.copy(first, self.folder / "again.h5")]
        grid = to_grid(open_sweep(paths))
        self.assertEqual(grid["peak_bytes"].dims, ("file",))
        self.assertEqual(list(grid["file"].values), list(map(str, paths)))

    def test_paths_come_one_by_one_or_from_an_iterator(self):
        paths = self.runs()
        wanted = open_sweep(paths)
        xr.testing.assert_identical(open_sweep(iter(paths)), wanted)
        xr.testing.assert_identical(open_sweep(str(paths[0])), open_sweep(paths[:1]))
        xr.testing.assert_identical(open_sweep(paths[0]), open_sweep(paths[:1]))

    def test_a_text_with_wildcards_names_what_it_matches(self):
        paths = sorted(self.runs())
        xr.testing.assert_identical(open_sweep(str(self.folder / "*.h5")), open_sweep(paths))
        self.assert_refused(str(self.folder / "*.hdf5"), "no file matches ")
        odd = shutil.copy(paths[0], self.folder / "run[1].h5")
        xr.testing.assert_identical(open_sweep(str(odd)), open_sweep([odd]))

    def test_columns_that_not_every_file_has_join_in_any_order(self):
        newer, older = self.runs()
        with h5py.File(newer, "r+") as file:
            self.assertNotIn("core_wait_share", file["cases"])
            file["cases/core_wait_share"] = file["cases/limits_change"][()]
            file["cases/core_wait_share"].dims[0].attach_scale(file["cases/case"])
        for paths in ([newer, older], [older, newer]):
            found = open_sweep(paths)
            self.assertNotIn("core_wait_share", found)
            times = np.concatenate([open_results(path)["cases"]["time_median"].values for path in paths])
            np.testing.assert_array_equal(found["time_median"].values, times)
        self.assertIn("core_wait_share", open_sweep([newer, newer]))

    def assert_refused(self, paths, words):
        with self.assertRaises(ResultFileError) as caught:
            open_sweep(paths)
        self.assertIn(words, str(caught.exception))

    def test_what_does_not_belong_together_is_said(self):
        first, second = self.runs()
        other = stored.unpack(self.folder, "memory_plan")
        self.assert_refused([], "there are no files")
        self.assert_refused([stored.unpack(self.folder, "quantize")], "quantize.h5: files of kind 'quantize' have no cases")
        self.assert_refused([stored.unpack(self.folder, "train"), first], "is of kind 'layer_sweep'")
        self.assert_refused([first, other], "memory_plan.h5: is of kind 'memory_plan'")
        self.assert_refused([first, self.folder / "nothing.h5"], "nothing.h5: no such file")
        with h5py.File(second, "r+") as file:
            del file["cases/flops"]
        self.assert_refused([first, second], "second.h5: its cases cannot be read")

    def test_damage_is_one_sentence(self):
        first, second = self.runs()
        with h5py.File(second, "r+") as file:
            del file["cases/flops"]
            file["cases"].create_dataset("flops", shape=(reader.MOST_BYTES,), dtype="f8")
        self.assert_refused([first, second], "second.h5: declares ")
        for values in ([1.0], ["text"] * len(h5py.File(first)["cases/case"])):
            with h5py.File(second, "r+") as file:
                del file["cases/flops"]
                file["cases"].create_dataset("flops", data=values)
            self.assert_refused([first, second], "second.h5: 'flops' is of another type than in the first file of its version, or lacks rows")

    def test_a_deck_that_is_not_one_text_is_none(self):
        first, second = self.runs()
        with_deck = open_sweep([first, second])
        self.assertTrue(with_deck.attrs["sweep_axes"])
        for options in (None, {"shape": (2**28,), "dtype": h5py.string_dtype()}, {"data": 1.0}):
            with h5py.File(second, "r+") as file:
                del file["provenance/deck_resolved"]
                if options:
                    file.create_dataset("provenance/deck_resolved", **options)
                else:
                    file.create_group("provenance/deck_resolved")
            tracemalloc.start()
            found = open_sweep([first, second])
            self.assertLess(tracemalloc.get_traced_memory()[1], 2**28)
            tracemalloc.stop()
            xr.testing.assert_equal(found, with_deck)

    def test_a_deck_counts_for_the_size(self):
        first, second = self.runs()
        with h5py.File(second, "r+") as file:
            del file["provenance/deck_resolved"]
            file.create_dataset("provenance/deck_resolved", shape=(), dtype=h5py.string_dtype(length=reader.MOST_BYTES))
        self.assert_refused([first, second], "the largest dataset is '/provenance/deck_resolved'")

    def test_many_files_open_faster_than_one_by_one(self):
        path = stored.unpack(self.folder, "layer_sweep")
        paths = [shutil.copy(path, self.folder / f"{number}.h5") for number in range(FILES)]

        def seconds(call):
            begin = time.process_time()
            call()
            return time.process_time() - begin

        def one_by_one():
            for path in paths:
                open_results(path, only=["cases"])

        one_by_one()
        rounds = [(seconds(lambda: open_sweep(paths)), seconds(one_by_one)) for _ in range(3)]
        together, alone = (min(times) for times in zip(*rounds))
        print(f"{FILES} files: {together:.3g} s together, {alone:.3g} s one by one", file=sys.stderr)
        self.assertLess(together, MOST_TIME * alone)


if __name__ == "__main__":
    unittest.main()
