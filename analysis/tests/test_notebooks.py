# SPDX-License-Identifier: MIT
"""The notebooks of the documents, run on the stored result files."""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import unittest
import unittest.mock
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from kformer_results import open_results, schema
from tests import stored, synthetic
from tests.test_results import WithFile

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "docs/site/notebooks.py"
NOTEBOOKS = {"layer_study": 2, "attention_crossover": 1, "memory_planning": 1, "training_run": 2}  # pictures


def runner():
    """The runner as a module."""
    spec = importlib.util.spec_from_file_location("notebooks", RUNNER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Notebooks(WithFile):
    def page(self, name):
        """What the runner makes of a notebook in this process, which is faster."""
        out = self.folder / "page.md"
        with contextlib.chdir(self.folder):
            runner().run(ROOT / f"docs/notebooks/{name}.ipynb", out)
        return out.read_text()

    def run_notebook(self, notebook):
        """Runs one as a reader does, in a new process."""
        out = self.folder / "page.md"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "analysis")}
        done = subprocess.run([sys.executable, "-B", RUNNER, notebook, out], cwd=self.folder, env=environment,
                              capture_output=True, text=True)  # fmt: skip
        return done, out

    def test_each_runs_and_draws(self):
        for kind in schema.kinds(stored.NEWEST):
            stored.unpack(self.folder, kind)
        for name, pictures in NOTEBOOKS.items():
            with self.subTest(name=name):
                for picture in self.folder.glob("*.png"):
                    picture.unlink()
                done, out = self.run_notebook(ROOT / f"docs/notebooks/{name}.ipynb")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(list(self.folder.glob("page-*.png"))), pictures)
                page = out.read_text()
                self.assertEqual(page.count("![page-"), pictures)
                self.assertGreaterEqual(page.count("<table"), 2)

    def test_other_decks_run(self):
        with h5py.File(stored.unpack(self.folder, "train"), "r+") as file:
            del file["regions"], file["samples"]
        with h5py.File(stored.unpack(self.folder, "memory_plan"), "r+") as file:
            file["cases/batch"][...] = file["cases/batch"][()] * 3 + 1
        for name in ("training_run", "memory_planning"):
            self.page(name)

    def test_a_file_that_compares_nothing_is_said(self):
        with h5py.File(stored.unpack(self.folder, "attention_compare"), "r+") as file:
            del file["comparison"]
        done, _ = self.run_notebook(ROOT / "docs/notebooks/attention_crossover.ipynb")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("The file compares nothing: the sweep has one impl alone, or the run did not end.", done.stderr)

    def test_lines_of_more_configurations_than_colours_are_left_out(self):
        groups = open_results(stored.unpack(self.folder, "attention_compare"))
        groups["comparison"] = xr.concat([groups["comparison"]] * 6, "configuration")
        with unittest.mock.patch("kformer_results.open_results", return_value=groups):
            page = self.page("attention_crossover")
        self.assertIn("The first 10 of 12 configurations are shown.", page)

    def layer_page(self, change=lambda file: None, **options):
        """What the study of a layer makes of a synthetic file, as one line, and the number of its pictures."""
        path = self.written("layer_sweep.h5", **options)
        with h5py.File(path, "r+") as file:
            cases = file["cases"]
            count = len(cases["case"])
            synthetic.flags(cases, "noisy", np.zeros(count, np.int8), ("no", "yes"))
            synthetic.column(cases, "share_of_limit", np.full(count, 0.5), units="1")
            synthetic.column(cases, "message", np.array([""] * count, dtype=object))
            change(file)
        text = self.page("layer_study")
        return re.sub(r"\s+", " ", text), text.count("![page-")

    def test_a_layer_of_other_axes_with_noise_and_without_memory(self):
        def change(file):
            cases = file["cases"]
            cases["noisy"][1] = 1
            cases["message"][3] = "the forecast exceeds"
            cases["status"][3] = synthetic.STATUS_CODES.index("skipped_memory")
            cases["execution_space"][16:] = "Serial"
            cases["batch"][...] = [4096 // length for length in cases["seq_len"][()]]
            del file["memory"]

        page, pictures = self.layer_page(change, out_of_memory=(3,))
        self.assertEqual(pictures, 2)
        for words in ("1 of 32 cases did not run; noise decides the times of 1.", "<td>skipped_memory</td> <td>the forecast exceeds</td>",
                      "Shown: execution_space OpenMP of ['OpenMP', 'Serial'], dtype f32 of ['f32', 'bf16'], batch 1 of [1, 2, 4, 8]",
                      "[profile] memory = "):  # fmt: skip
            self.assertIn(words, page)

    def test_a_ratio_where_noise_decides_is_left_out(self):
        noise = lambda file: file["cases/noisy"].__setitem__(slice(1, 2), 1)
        page, _ = self.layer_page(noise, cases=16)
        self.assertIn("<th>forward</th> <td>1.25</td> <td>NaN</td> <td>1.25</td> <td>1.25</td>", page)

    def test_a_layer_of_one_implementation_without_a_profile(self):
        for options in ({"cases": 1}, {"cases": 4, "out_of_memory": (0, 1, 2, 3)}):
            page, pictures = self.layer_page(**options, regions=False)
            self.assertEqual(pictures, 1)
            self.assertIn("No ratio: the sweep has standard alone.", page)
            self.assertIn("No case was profiled", page)

    def test_all_are_run(self):
        self.assertEqual({path.stem for path in (ROOT / "docs/notebooks").glob("*.ipynb")}, set(NOTEBOOKS))

    def test_none_is_stored_with_what_it_showed(self):
        for path in (ROOT / "docs/notebooks").glob("*.ipynb"):
            for cell in json.loads(path.read_text())["cells"]:
                self.assertFalse(cell.get("outputs"), f"{path.name}: clear all outputs before the commit")

    def test_a_cell_that_fails_is_a_failure(self):
        notebook = self.folder / "wrong.ipynb"
        cells = [{"cell_type": "code", "source": ["1 / 0"]}]
        notebook.write_text(json.dumps({"cells": cells}))
        done, out = self.run_notebook(notebook)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ZeroDivisionError", done.stderr)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
