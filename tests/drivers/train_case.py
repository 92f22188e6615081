# SPDX-License-Identifier: MIT
"""What the tests of kformer-train share."""

import os
import subprocess

import driver_case
from driver_case import DriverTest, h5py, texts, words

TINY = driver_case.SOURCE / "inputs/tiny-llama"
TEXT = driver_case.SOURCE / "LICENSE"


def set_options(*settings):
    """The options of the command line that set keys of the deck, and replace what a run has written."""
    return [word for setting in ("output.overwrite=true", *settings) for word in ("--set", setting)]


class TrainTest(DriverTest):
    NAME = "kformer-train"
    PROGRAM = os.environ["KFORMER_TRAIN"]
    SMOKE_DECK = driver_case.SMOKE / "train.toml"
    FEW = ("profile.machine_limits=false",)
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

    def column(self, column, table="steps", name="deck.h5"):
        with h5py.File(self.folder / name) as file:
            return file[table][column][()]

    def steps(self, column, name="deck.h5"):
        return self.column(column, name=name)

    def pack(self, source, folder, kind):
        """The folder of a model whose matrices kformer-quantize quantises."""
        done = subprocess.run([os.environ["KFORMER_QUANTIZE"], source, folder, "-f", kind], cwd=self.folder,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / folder

    def check_failure(self, done, sentence):
        """The training diverged, and left what every training leaves."""
        self.assertIn(f"error: the training diverged: the loss of the last step is not finite, and {sentence}", done.stderr)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(file.attrs["complete"], 1)
            self.assertEqual(words(file["cases/status"]), ["error"])
            self.assertIn("the training diverged", texts(file["cases/message"])[0])

    def check_memory(self):
        """The peak is what was forecast."""
        case = [self.column(column, "cases").tolist() for column in ("peak_bytes", "predicted_bytes")]
        self.assertEqual(*case)


class SettingsTest(TrainTest):
    """Trainings that differ in keys of the deck."""

    def train(self, keys, *settings, expect=0, arguments=()):
        self.deck(keys)
        return self.run_driver("deck.toml", *set_options(*settings), *arguments, expect=expect)
