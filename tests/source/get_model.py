#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/get_model downloads and keeps, with a stand-in for curl that copies files."""

import hashlib
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from load_script import load_script

SOURCE = Path(os.environ["KFORMER_SOURCE"])
CURL = """#!/bin/sh
echo "$@" >>"$0.log"
while [ "$1" != --output ]; do shift; done
cp "$3" "$2"
"""


class GetModel(unittest.TestCase):
    def setUp(self):
        self.script = load_script("scripts/get_model")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.hub, self.models = self.folder / "hub", self.folder / "models"
        self.hub.mkdir()
        hashes = {}
        for name in ("config.json", "model.safetensors"):
            (self.hub / name).write_text(name)
            hashes[name] = hashlib.sha256(name.encode()).hexdigest()
        self.model = self.script.Model("a model", "small", hashes, address=str(self.hub))
        self.curl = self.folder / "curl"
        self.curl.write_text(CURL)
        self.curl.chmod(0o755)
        path = mock.patch.dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}")
        path.start()
        self.addCleanup(path.stop)

    def downloads(self):
        log = Path(f"{self.curl}.log")
        return [Path(line).name for line in log.read_text().splitlines()] if log.exists() else []

    def test_what_is_whole_is_not_downloaded_again(self):
        self.assertEqual(self.script.get(self.model, self.models), self.models / "small")
        self.assertEqual(self.downloads(), ["config.json", "model.safetensors"])
        self.script.get(self.model, self.models)
        self.assertEqual(len(self.downloads()), 2)
        (self.models / "small/config.json").write_text("half")
        self.script.get(self.model, self.models)
        self.assertEqual(self.downloads()[2:], ["config.json"])
        self.assertEqual((self.models / "small/config.json").read_text(), "config.json")

    def test_a_download_with_another_hash_is_not_kept(self):
        (self.hub / "config.json").write_text("another revision")
        with self.assertRaisesRegex(SystemExit, "the download of config.json does not have the SHA-256"):
            self.script.get(self.model, self.models)
        self.assertEqual(list((self.models / "small").iterdir()), [])

    def test_a_model_of_one_file_is_that_file(self):
        name, *_ = self.model.hashes
        model = self.script.Model("a model", "small.json", {name: self.model.hashes[name]}, address=str(self.hub))
        self.assertEqual(self.script.get(model, self.models).read_text(), name)

    def test_every_model_has_hashes_and_one_revision(self):
        for name, model in self.script.MODELS.items():
            for sha256 in model.hashes.values():
                self.assertRegex(sha256, "^[0-9a-f]{64}$", name)
            self.assertRegex(model.package or model.address, r"==[0-9.]+$|/resolve/[0-9a-f]{40}(/|$)", name)

    def test_the_deck_reads_what_it_writes(self):
        paths = {f'path = "../models/{model.path}"' for model in self.script.MODELS.values()}
        self.assertTrue(paths & set((SOURCE / "inputs/smollm2-135m.toml").read_text().splitlines()))


if __name__ == "__main__":
    unittest.main()
