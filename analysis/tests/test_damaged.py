# SPDX-License-Identifier: MIT
"""Result files of every kind with changed bytes: a table, or one sentence."""

import random
import unittest

from kformer_results import ResultFileError, open_results
from kformer_results.reader import TEXTS
from tests.damage import KINDS, damaged, outcome
from tests.test_results import WithFile

DAMAGED_FILES = 20  # of each kind


class DamagedFiles(WithFile):
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
                found.append(outcome(path))
                with self.subTest(kind=kind, number=number):
                    self.assertIn(found[-1], ("read", "refused"))
            self.assertGreater(found.count("refused"), DAMAGED_FILES // 6)
            self.assertLess(found.count("refused"), DAMAGED_FILES)

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
