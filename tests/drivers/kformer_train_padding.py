# SPDX-License-Identifier: MIT
"""Trainings whose sequences are shorter than batch.seq_len: what they are computed to, and that the rest changes nothing.

ctest runs this with the program in KFORMER_TRAIN and the sources in KFORMER_SOURCE.
"""

import json
import sys
import unittest

import driver_case
from driver_case import needs_h5py
from train_case import TINY, SettingsTest

LETTERS = "[[reward]]\nkind = 'regex'\npattern = '[a-k]'\n"
PAIRS = driver_case.SMOKE / "preferences.jsonl"
PROMPTS = driver_case.SMOKE / "prompts.jsonl"


@needs_h5py
class Padding(SettingsTest):
    SMALL = f"""schema = 1
kind = "train"
[profile]
machine_limits = false
[weights]
path = "{TINY}"
[tokenizer]
format = "byte"
[batch]
micro_batch = 4
sequences = 8
seq_len = 80
[schedule]
steps = 3
[optimizer]
lr = 1e-3
[evaluation]
"""
    KINDS = {
        "dpo": f'[objective]\nkind = "dpo"\n[data]\ntrain = "{PAIRS}"\nvalidation = "{PAIRS}"\nshuffle = true\n',
        "grpo": f'[objective]\nkind = "grpo"\n[policy]\ngroup_size = 4\nmax_new_tokens = 6\nbeta = 0.1\n{LETTERS}'
                f'[data]\ntrain = "{PROMPTS}"\nvalidation = "{PROMPTS}"\n',
        "completion": '[data]\nformat = "synthetic"\ntask = "reverse"\nlength = 12\nexamples = 40\npacking = "pad"\n',
    }

    def results(self, keys, *settings):
        self.train(keys, "output.model=out", *settings)
        model = (self.folder / "out/model.safetensors").read_bytes()
        columns = [self.column(column).tobytes() for column in ("loss", "gradient_norm", "tokens")]
        return model, columns, self.column("loss", "evaluations").tobytes(), int(self.column("tokens", "cases")[0])

    def test_memory_for_longer_sequences_changes_no_bit(self):
        for kind, keys in self.KINDS.items():
            for adapter in ("", "[adapter]\nrank = 2\n" if kind == "grpo" else "[adapter]\nrank = 2\ndropout = 0.2\n"):
                with self.subTest(kind=kind, adapter=adapter):
                    few = self.results(keys + adapter)
                    many = self.results(keys + adapter, "batch.seq_len=336")
                    if "dropout" in adapter:  # whose random numbers count all tokens of a step
                        self.assertEqual(few[3], many[3])
                    else:
                        self.assertEqual(few, many)

    def test_tokens_are_those_that_are_computed(self):
        lines = [{"prompt": "ab", "completion": "c" * n} for n in (3, 9, 20, 4)]
        (self.folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        keys = '[data]\ntrain = "data.jsonl"\nformat = "chat"\npacking = "pad"\ncache = ""\n'
        self.SMALL = self.SMALL.replace("[evaluation]\n", "")
        self.train(keys, "batch.micro_batch=2", "batch.sequences=4", "schedule.steps=2")
        # The beginning-of-text token, two letters, a completion and its end: 13 tokens have 12 with a target, 24 have 23.
        self.assertEqual(int(self.column("tokens", "cases")[0]), 2 * (2 * 16 + 2 * 24))
        self.train(keys, "batch.micro_batch=2", "batch.sequences=4", "schedule.steps=2", "data.packing=best_fit")
        self.assertEqual(int(self.column("tokens", "cases")[0]), 2 * 4 * 80)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
