# SPDX-License-Identifier: MIT
"""Result files of every kind with changed bytes: a table, or one sentence."""

import os
import random
import subprocess
import sys
import unittest
from pathlib import Path

from kformer_results import ResultFileError, open_results, schema
from kformer_results.reader import TEXTS
from tests import stored
from tests.damage import KINDS, damaged, outcome
from tests.test_results import WithFile

DAMAGED_FILES = 20  # of each kind
OUTCOMES = ("read", "refused")
FUZZ = Path(__file__).resolve().parents[2] / "scripts/fuzz"


def outcome_apart(path) -> str:
    """The same, in a process of its own. What ends that process is a fault of libhdf5, which differs by its version."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(OUTCOMES.index(outcome(path)))
        finally:
            os._exit(len(OUTCOMES))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "crashed" if code < 0 else (*OUTCOMES, "failed")[code]


class DamagedFiles(WithFile):
    def test_every_kind_is_damaged(self):
        self.assertEqual({kind.split(",")[0] for kind in KINDS}, set(schema.kinds(stored.NEWEST)))

    def test_of_every_kind(self):
        for kind, write in KINDS.items():
            path = self.folder / f"{kind}.h5"
            write(path)
            self.assertEqual(outcome(path), "read")
            data = path.read_bytes()
            generator = random.Random(20260101)
            found = []
            for number in range(DAMAGED_FILES):
                path.write_bytes(damaged(data, generator))
                found.append(outcome_apart(path))
                with self.subTest(kind=kind, number=number):
                    self.assertIn(found[-1], (*OUTCOMES, "crashed"))
            self.assertLess(found.count("crashed"), DAMAGED_FILES // 4)
            self.assertGreater(found.count("refused"), DAMAGED_FILES // 6)
            self.assertLess(found.count("refused"), DAMAGED_FILES)

    def test_a_campaign_is_counted(self):
        done = subprocess.run([sys.executable, FUZZ, "--python", "--build", self.folder, "--minutes", "0.001"],
                              capture_output=True, text=True)  # fmt: skip
        target, _, executions, edges, faults = (self.folder / "fuzz/executions.tsv").read_text().split("\t")
        self.assertEqual((target, edges), ("python", "-"))
        # Every kind has its turn; libhdf5 may crash on one.
        if done.returncode == 0:
            self.assertEqual(int(executions) % len(KINDS), 0)
        self.assertEqual(int(faults) > 0, done.returncode != 0, done.stdout + done.stderr)
        self.assertGreater(int(executions), 0)
        self.assertIn(f"{executions} executions in", done.stdout)

    def test_texts_that_do_not_end(self):
        path = self.written()
        data = bytearray(path.read_bytes())
        first = data.index(TEXTS) + 16
        # Of no length at all, and of one that overflows.
        for text in (bytes(16), bytes([1, 0, 0, 0, 0, 0, 0, 0, 0xF0]) + 7 * b"\xff"):
            data[first : first + 16] = text
            path.write_bytes(data)
            with self.assertRaisesRegex(ResultFileError, "the texts at byte [0-9]+ do not end"):
                open_results(path)


if __name__ == "__main__":
    unittest.main()
