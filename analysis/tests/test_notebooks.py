# SPDX-License-Identifier: MIT
"""The notebooks of the documents, run on the stored result files."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import h5py

from kformer_results import schema
from tests import stored
from tests.test_results import WithFile

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "docs/site/notebooks.py"
NOTEBOOKS = {"layer_study": 2, "attention_crossover": 1, "memory_planning": 1, "training_run": 2}  # pictures


class Notebooks(WithFile):
    def run_notebook(self, notebook):
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
            done, _ = self.run_notebook(ROOT / f"docs/notebooks/{name}.ipynb")
            self.assertEqual(done.returncode, 0, done.stderr)

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
