# SPDX-License-Identifier: MIT
"""Result files with changed bytes: a table, or one sentence."""

import random
import unittest

from kformer_results import ResultFileError, open_results
from tests.test_results import WithFile, WithMain

DAMAGED_FILES = 120
# HDF5 keeps what describes a file at its beginning.
DESCRIPTION = 4096


def damaged(data: bytes, generator: random.Random) -> bytes:
    """The data cut off, or with one to 64 other bytes."""
    changed = bytearray(data)
    if generator.randrange(4) == 0:
        return bytes(changed[: generator.randrange(len(changed))])
    end = generator.choice([len(changed), DESCRIPTION])
    for _ in range(1 << generator.randrange(7)):
        place = generator.randrange(end)
        changed[place] = generator.choice([0, 255, generator.randrange(256), changed[place] ^ 1 << generator.randrange(8)])
    return bytes(changed)


class DamagedFiles(WithFile, WithMain):
    def check(self, path):
        data = path.read_bytes()
        generator = random.Random(20260101)
        refused = 0
        for number in range(DAMAGED_FILES):
            path.write_bytes(damaged(data, generator))
            with self.subTest(number=number):
                code, out, error = self.run_main("summary", path)
                self.assertIn(code, (0, 4))
                self.assertEqual(error.count("\n"), 0 if code == 0 else 1, error)
                refused += code == 4
                try:
                    open_results(path)
                except ResultFileError as reason:
                    self.assertIn(str(path), str(reason))
        self.assertGreater(refused, DAMAGED_FILES // 4)
        self.assertLess(refused, DAMAGED_FILES)

    def test_of_layers(self):
        self.check(self.written())


if __name__ == "__main__":
    unittest.main()
