# SPDX-License-Identifier: MIT
"""What the tests of kformer-train share."""

import os

import driver_case
from driver_case import DriverTest, h5py

TINY = driver_case.SOURCE / "inputs/tiny-llama"
TEXT = driver_case.SOURCE / "LICENSE"


class TrainTest(DriverTest):
    NAME = "kformer-train"
    PROGRAM = os.environ["KFORMER_TRAIN"]
    SMOKE_DECK = driver_case.SMOKE / "train.toml"
    TABLE = "batch"
    SMALL = f"""schema = 1
kind = "train"
[profile]
machine_limits = false
[weights]
path = "{TINY}"
[tokenizer]
format = "byte"
[data]
train = ["{TEXT}"]
cache = ""
[batch]
seq_len = 24
"""

    def train(self, keys, *arguments, expect=0):
        self.deck(keys)
        return self.run_driver("deck.toml", "--set", "output.overwrite=true", *arguments, expect=expect)

    def steps(self, column, name="deck.h5"):
        with h5py.File(self.folder / name) as file:
            return file["steps"][column][()]
