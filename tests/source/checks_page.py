#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tests and planted faults that docs/checks.md names are there, and the tests of a row notice its faults."""

import os
import re
import tomllib
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
# What ctest adds to the name of a suite, for a space and its threads or a number of ranks, as far as planted faults ask for it.
VARIANTS = ("", "[serial,1]", "[openmp,2]", "[2]", "[3]", "[4]")
NAME = re.compile(r"`([^`]+)`")


def rows():
    """(tests, faults) of each row, as they are written."""
    for line in (SOURCE / "docs/checks.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] != "property" and not cells[0].startswith("---"):
            yield cells[1], cells[2]


def sources_of(suite):
    """What may contain the cases of a suite: a file, or its base classes."""
    room, name = suite.split("/")
    if room == "analysis":
        return [SOURCE / f"analysis/tests/test_{name}.py"]
    return sorted((SOURCE / "tests" / room).glob(f"{name}.*")) + [SOURCE / "tests" / room / "driver_case.py"] * (room == "drivers")


class ChecksPage(unittest.TestCase):
    def test_the_tests_are_there(self):
        count = 0
        for tests, _ in rows():
            for part in tests.split(";"):
                suite, *cases = NAME.findall(part)
                text = "".join(path.read_text(encoding="utf-8") for path in sources_of(suite))
                self.assertTrue(text, suite)
                for case in cases:
                    self.assertRegex(text, rf"\b{case}\b", suite)
                    count += 1
        self.assertGreater(count, 50)

    def test_the_faults_are_there_and_run_a_test_of_their_row(self):
        tests_of = {}
        for path in (SOURCE / "tests/mutants").glob("*.toml"):
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            for fault in table["mutant"]:
                tests_of[f"{path.stem}/{fault['name']}"] = re.compile(fault.get("tests", table.get("tests")))
        count = 0
        for tests, faults in rows():
            names = [NAME.search(part)[1] + variant for part in tests.split(";") for variant in VARIANTS]
            self.assertTrue(NAME.search(faults), f"no fault for {tests}")
            for fault in NAME.findall(faults):
                self.assertIn(fault, tests_of)
                self.assertTrue(any(tests_of[fault].search(name) for name in names), f"{fault} runs none of {tests}")
                count += 1
        self.assertGreater(count, 50)


if __name__ == "__main__":
    unittest.main()
