# SPDX-License-Identifier: MIT
"""The package as one installs it: types, the wheel, and how long many files take."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
import unittest
import zipfile
from pathlib import Path

import h5py

from kformer_results import open_results
from tests import stored
from tests.test_results import WithFile

ANALYSIS = Path(__file__).resolve().parents[1]
FILES = 5
# Times what h5py takes to read all datasets and attributes; an engine of xarray took thirty times that.
MOST_WORK = 6

# Calls an entry point of an installed distribution, as the script of that name would.
ENTRY = """import importlib.metadata, sys
name, *sys.argv[1:] = sys.argv[1:]
point, = importlib.metadata.entry_points(group="console_scripts", name=name)
sys.exit(point.load()())"""


class Package(WithFile):
    @unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed")
    def test_types(self):
        done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", self.folder], cwd=ANALYSIS, capture_output=True,
                              text=True)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipIf(importlib.util.find_spec("setuptools") is None, "setuptools is not installed")
    def test_the_wheel_has_the_commands_and_the_schemas(self):
        # A copy: setuptools builds inside of the sources.
        sources = shutil.copytree(ANALYSIS, self.folder / "sources", ignore=shutil.ignore_patterns("tests", "__pycache__"))
        build = "import setuptools.build_meta as build; build.build_wheel('.')"
        subprocess.run([sys.executable, "-c", build], cwd=sources, check=True, capture_output=True)
        wheel, = sources.glob("*.whl")
        target = self.folder / "target"
        zipfile.ZipFile(wheel).extractall(target)
        self.assertTrue((target / "kformer_results/py.typed").exists())
        path = stored.unpack(self.folder, "quantize")
        for command, *arguments in (("kformer-check", path), ("kformer-results", "summary", path),
                                    ("kformer-report", path)):  # fmt: skip
            done = subprocess.run([sys.executable, "-c", ENTRY, command, *arguments], cwd=self.folder, capture_output=True,
                                  text=True, env={**os.environ, "PYTHONPATH": str(target)})  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_many_files_open_fast(self):
        path = stored.unpack(self.folder, "layer_sweep")

        def read_all(path):
            with h5py.File(path) as file:
                file.visititems(lambda _, item: (dict(item.attrs), isinstance(item, h5py.Dataset) and item[()]) and None)

        def seconds(read):
            read(path)  # imports what it needs
            begin = time.process_time()
            for _ in range(FILES):
                read(path)
            return time.process_time() - begin

        self.assertLess(min(seconds(open_results) for _ in range(3)), MOST_WORK * max(seconds(read_all) for _ in range(3)))


if __name__ == "__main__":
    unittest.main()
