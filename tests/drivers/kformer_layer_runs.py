# SPDX-License-Identifier: MIT
"""Files of two runs of kformer-layer as one data set along an axis, in plain xarray and as grids.

ctest runs this with the program in KFORMER_LAYER and the sources in KFORMER_SOURCE.
"""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from driver_case import SMOKE, check_file, needs_xarray

if check_file is not None:
    import numpy as np
    import xarray as xr
    from kformer_results import open_results, open_sweep, to_grid


@needs_xarray
class Runs(unittest.TestCase):
    PROGRAM = os.environ["KFORMER_LAYER"]
    # Of two runs with a length in common.
    LENGTHS = {"short.h5": (8, 16), "long.h5": (16, 24)}

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.paths = [Path(folder.name) / name for name in cls.LENGTHS]
        keys = [word for key in ("batch=2", "direction=forward", "exclude=[]") for word in ("--set", f"sweep.{key}")]
        for path, lengths in zip(cls.paths, cls.LENGTHS.values()):
            command = [cls.PROGRAM, SMOKE / "layer.toml", *keys, "--set", f"sweep.seq_len={list(lengths)}", "-o", path]
            subprocess.run([*command, "--set", "profile.kernels=false", "--set", "profile.machine_limits=false"], check=True, capture_output=True)

    def test_cases_concatenate_in_xarray(self):
        parts = [xr.load_dataset(path, group="cases") for path in self.paths]
        both = xr.concat(parts, "case")
        self.assertEqual(both.sizes["case"], sum(part.sizes["case"] for part in parts))
        self.assertEqual(set(both.variables), set(parts[0].variables))
        for name in ("time_median", "seq_len", "peak_bytes", "status"):
            np.testing.assert_array_equal(both[name], np.concatenate([part[name] for part in parts]))
            self.assertEqual(both[name].attrs, parts[0][name].attrs)
        # Samples are along two axes.
        self.assertEqual(both["time"].dims, ("case", "repeat"))

    def test_grids_concatenate_along_an_axis(self):
        short, long = (to_grid(open_results(path)["cases"]) for path in self.paths)
        both = xr.concat([short, long.sel(seq_len=[24])], "seq_len", join="outer", compat="override", coords="minimal")
        self.assertEqual(list(both["seq_len"].values), [8, 16, 24])
        for grid, lengths in ((short, [8, 16]), (long, [24])):
            found = both["time_median"].sel(seq_len=lengths).transpose(*grid["time_median"].dims)
            np.testing.assert_array_equal(found, grid["time_median"].sel(seq_len=lengths))
        self.assertFalse(both["time_median"].isnull().any())

    def test_runs_are_compared_by_their_axes(self):
        short, long = xr.align(*(to_grid(open_results(path)["cases"]) for path in self.paths))
        self.assertEqual(list(short["seq_len"].values), [16])
        ratio = long["time_median"] / short["time_median"]
        self.assertEqual(ratio.sizes, short["time_median"].sizes)
        self.assertTrue((ratio > 0).all())
        # The same work: only what was measured differs.
        xr.testing.assert_equal(short["flops"], long["flops"])
        xr.testing.assert_equal(short["peak_bytes"], long["peak_bytes"])

    def test_a_sweep_of_files_is_a_grid(self):
        grid = to_grid(open_sweep(self.paths[:1]))
        xr.testing.assert_equal(grid["time_median"], to_grid(open_results(self.paths[0])["cases"])["time_median"])
        cases = open_sweep(self.paths)
        self.assertEqual(len(cases["file"]), sum(open_results(path)["cases"].sizes["case"] for path in self.paths))


if __name__ == "__main__":
    unittest.main(verbosity=2)
