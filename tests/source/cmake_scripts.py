#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts of cmake/ make of their arguments, run by `cmake -P`."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
MISSING = [name for name in ("cmake", "git") if not shutil.which(name)]
# A hook of git names its own repository.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def git(folder, *words):
    identity = ["-c", "user.name=Kformer", "-c", "user.email=kformer@localhost", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *identity, *words], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(folder):
    """A repository with all that is in the folder; its commit."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return git(folder, "rev-parse", "HEAD")


@unittest.skipIf(MISSING, f"not on this machine: {', '.join(MISSING)}")
class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class GitVersion(Scripts):
    def setUp(self):
        super().setUp()
        self.sources = self.folder / "vendor/kformer"
        header = self.sources / "src/measure/version.hpp.in"
        header.parent.mkdir(parents=True)
        shutil.copy(SOURCE / "src/measure/version.hpp.in", header)

    def version(self, sources=None, **definitions):
        """(commit, whether files differ from it) of the header."""
        output = self.folder / "version.hpp"
        words = [f"-D{name}={value}" for name, value in {"source_dir": sources or self.sources, "output": output, **definitions}.items()]
        subprocess.run(["cmake", *words, "-P", SOURCE / "cmake/GitVersion.cmake"], env=ENVIRONMENT, check=True)
        text = output.read_text()
        return re.search(r'GIT_SHA "(.*)"', text)[1], re.search(r"GIT_DIRTY (.*)", text)[1]

    def test_a_repository_is_named_and_whether_it_was_changed(self):
        commit = repository(self.sources)
        self.assertEqual(self.version(), (commit, "0"))
        link = self.folder / "link"
        link.symlink_to(self.sources)
        self.assertEqual(self.version(link), (commit, "0"))
        with (self.sources / "src/measure/version.hpp.in").open("a") as header:
            header.write("\n")
        self.assertEqual(self.version(), (commit, "1"))

    def test_an_archive_in_the_repository_of_another_project_does_not_name_that(self):
        repository(self.folder)
        with (self.sources / "src/measure/version.hpp.in").open("a") as header:
            header.write("\n")
        self.assertEqual(self.version(), ("unknown", "0"))
        self.assertEqual(self.version(revision="1a2b3c4d"), ("1a2b3c4d", "0"))

    def test_the_commit_that_somebody_names_comes_first(self):
        self.assertEqual(self.version(), ("unknown", "0"))
        self.assertEqual(self.version(revision="1a2b3c4d"), ("1a2b3c4d", "0"))
        repository(self.sources)
        self.assertEqual(self.version(revision="1a2b3c4d"), ("1a2b3c4d", "0"))


if __name__ == "__main__":
    unittest.main()
