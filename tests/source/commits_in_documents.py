#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figures in the documents name commits of this history, so that what they were measured with can be built again."""

import os
import re
import subprocess
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
# Seven or eight digits, letters and numerals among them; numbers alone are numbers.
COMMIT = re.compile(r"(?<![\w./-])(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,8}\b")


def git(*arguments):
    return subprocess.run(["git", "-c", f"safe.directory={SOURCE}", "-C", SOURCE, *arguments], capture_output=True, text=True)


def commits_in(text):
    return set(COMMIT.findall(text))


class CommitsInDocuments(unittest.TestCase):
    def test_names_are_told_from_numbers(self):
        self.assertEqual(commits_in("at 5cf7898 and 94ff942d (8015fc0), not 10.1137/0203025, 1000000 or deadbeef_1"),
                         {"5cf7898", "94ff942d", "8015fc0"})

    def test_every_commit_is_in_the_history(self):
        try:
            if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
                self.skipTest("a checkout with its whole history")
        except FileNotFoundError:
            self.skipTest("git")
        named = {}
        for path in [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]:
            for commit in commits_in(path.read_text(encoding="utf-8")):
                named.setdefault(commit, path.relative_to(SOURCE))
        self.assertGreater(len(named), 50)
        history = git("log", "--format=%H").stdout.split()
        lost = {commit: str(path) for commit, path in named.items()
                if not any(known.startswith(commit) for known in history)}
        self.assertEqual(lost, {})


if __name__ == "__main__":
    unittest.main()
