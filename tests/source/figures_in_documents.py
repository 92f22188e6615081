#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figures in the documents agree: sums with their tables, counts with the sources, shares with their limits."""

import os
import re
import tomllib
import unittest
from pathlib import Path

from commits_in_documents import commits_in

SOURCE = Path(os.environ["KFORMER_SOURCE"])
DOCS = SOURCE / "docs"
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})*")
SHARE = re.compile(r"(?<![−–\d.])(\d+(?:\.\d+)?)(?=(?:, \d+(?:\.\d+)?)* %)")
MOST = 105  # percent; beyond that the limit is none


def text_of(page):
    return (DOCS / page).read_text(encoding="utf-8")


def rows(text):
    """The cells of each row of its tables."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def numbers(cells):
    """Those among the cells that are nothing but a number."""
    return [int(cell.replace(",", "")) for cell in cells if NUMBER.fullmatch(cell)]


def shares_in(line):
    return [float(share) for share in SHARE.findall(line)]


def recorded_runs():
    """The rows of the table of planted faults (faults run, killed, survived), and the last one, which adds them up."""
    *runs, total = [row for row in rows(text_of("mutants.md")) if len(row) == 6 and len(numbers(row)) == 3]
    return runs, total


class FiguresInDocuments(unittest.TestCase):
    def test_shares_are_told_from_reductions(self):
        self.assertEqual(shares_in("| −69 % | 71, 106.5 % | 2.9 × | 82.7 % |"), [71, 106.5, 82.7])

    def test_no_share_exceeds_its_limit(self):
        shares = [(share, page.name, row) for page in sorted(DOCS.rglob("performance*.md"))
                  for row in rows(page.read_text(encoding="utf-8")) for share in shares_in(" | ".join(row))]
        self.assertGreater(len(shares), 100)
        self.assertEqual([found for found in shares if found[0] > MOST], [])

    def test_executions_add_up(self):
        text = text_of("fuzzing.md")
        counts = [numbers(row)[:2] for row in rows(text) if len(row) == 5 and len(numbers(row)) >= 2]
        fast, sanitized = (sum(column) for column in zip(*counts))
        self.assertIn(f"{fast + sanitized:,} were run: {fast:,} without sanitizers, {sanitized:,} with them", text.replace("\n", " "))

    def test_tensors_add_up(self):
        text = text_of("tolerance.md")
        table = rows(text)
        two_runs = sum(sum(numbers([row[1], row[4]])) for row in table if len(row) == 7)
        earlier = sum(sum(numbers(row[1:2])) for row in table if "draws, seed" in row[0])
        self.assertIn(f"Of {two_runs:,} tensors", text)
        self.assertIn(f"none of {two_runs + earlier:,} tensors", text)

    def test_the_page_has_the_number_of_faults(self):
        lists = [tomllib.loads(path.read_text(encoding="utf-8")) for path in (SOURCE / "tests/mutants").glob("*.toml")]
        count = sum(len(faults.get("mutant", [])) for faults in lists)
        self.assertGreater(count, 1000)
        self.assertIn(f"The {count:,} faults are in `tests/mutants/`", text_of("mutants.md"))

    def test_what_was_killed_names_a_commit(self):
        runs, _ = recorded_runs()
        self.assertGreater(len(runs), 20)
        self.assertEqual([run for run in runs if not commits_in(run[0])], [])

    def test_runs_of_faults_add_up(self):
        runs, total = recorded_runs()
        self.assertEqual([run for run in runs if numbers(run)[0] != sum(numbers(run)[1:])], [])
        self.assertEqual(numbers(total), [sum(column) for column in zip(*map(numbers, runs))])


if __name__ == "__main__":
    unittest.main()
