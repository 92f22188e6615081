#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How scripts/fuzz runs the fuzz targets, with a stand-in for them."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from load_script import load_script

SOURCE = Path(os.environ["KFORMER_SOURCE"])
FUZZ = load_script("scripts/fuzz")
# Writes down its options, and keeps an input in a run that has the option FAIL. In a run that has the option IDLE it does nothing.
TARGET = """#!/bin/sh
echo "$*" >>"$0.calls"
case " $* " in *" $IDLE "*) exit 0 ;; esac
echo "stat::number_of_executed_units: 7" >&2
case " $* " in *" $FAIL "*) : >"$PREFIX/timeout-1"; exit 70 ;; esac
"""


class Fuzz(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        (self.build / "tests/fuzz").mkdir(parents=True)

    def fuzz(self, target, minutes=1, fail="nothing", idle="nothing"):
        """Exit code, options of each run, and the line of the table."""
        program = self.build / f"tests/fuzz/kformer_fuzz_{target}"
        program.write_text(TARGET, encoding="utf-8")
        program.chmod(0o755)
        environment = {**os.environ, "FAIL": fail, "IDLE": idle, "PREFIX": str(self.build / "fuzz" / target)}
        command = [sys.executable, "-B", SOURCE / "scripts/fuzz", "--build", self.build, "--minutes", str(minutes), target]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        calls = [line.split() for line in Path(f"{program}.calls").read_text(encoding="utf-8").splitlines()]
        table = (self.build / "fuzz/executions.tsv").read_text(encoding="utf-8").splitlines()
        return done.returncode, calls, table[-1].split("\t")

    def test_texts_are_long_in_a_fifth_of_the_time(self):
        code, (short, long), row = self.fuzz("chat_jsonl")
        self.assertEqual((code, row[2], row[4]), (0, "14", "0"))
        for options, call in (("-max_len=16384 -timeout=1 -max_total_time=48", short),
                              ("-max_len=1000000 -timeout=20 -max_total_time=12", long)):
            self.assertEqual(set(options.split()) - set(call), set())
        self.assertEqual(short[-2:], [str(self.build / "fuzz/chat_jsonl/corpus"), str(SOURCE / "tests/fuzz/corpus/chat_jsonl")])

    def test_long_inputs_begin_with_long_seeds(self):
        _, (_, long), _ = self.fuzz("completion")
        found, seeds = map(Path, long[-2:])
        self.assertEqual(list(found.iterdir()), [])
        sizes = {file.name: file.stat().st_size for file in seeds.iterdir()}
        seed = (SOURCE / "tests/fuzz/corpus/completion/think.txt").read_bytes()
        self.assertEqual(sizes["stretched_think.txt"], 250000 + len(seed))
        self.assertNotIn("repeated_empty.txt", sizes)
        self.assertTrue(all(240000 < size < 260000 for size in sizes.values()), sizes)
        self.assertTrue((seeds / "repeated_think.txt").read_bytes().startswith(2 * seed))

    def test_other_formats_stay_short(self):
        _, calls, _ = self.fuzz("gguf")
        self.assertEqual(len(calls), 1)
        self.assertIn("-max_total_time=60", calls[0])

    def test_a_fault_of_either_run_is_one(self):
        for run in ("-max_len=16384", "-max_len=1000000"):
            self.build = self.build / "again"
            (self.build / "tests/fuzz").mkdir(parents=True)
            code, calls, row = self.fuzz("text", fail=run)
            self.assertEqual((code, len(calls), row[4]), (1, 2, "1"))

    def test_a_run_without_an_execution_is_a_fault(self):
        for run in ("-max_len=16384", "-max_len=1000000"):
            self.build = self.build / "again"
            (self.build / "tests/fuzz").mkdir(parents=True)
            code, _, row = self.fuzz("text", idle=run)
            self.assertEqual((code, row[2], row[4]), (1, "7", "1"))

    def test_python_that_executes_nothing_is_a_fault(self):
        self.assertEqual(FUZZ.run_python(self.build, minutes=0, seed=1), 1)

    def test_a_target_that_is_not_there_is_refused(self):
        command = [sys.executable, "-B", SOURCE / "scripts/fuzz", "--build", self.build, "gguff"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no such target: gguff; there are adapter_config, ", done.stderr)

    def test_no_run_is_without_a_limit(self):
        _, calls, _ = self.fuzz("overrides", minutes=0.02)
        for call in calls:
            self.assertIn("-max_total_time=1", call)


if __name__ == "__main__":
    unittest.main()
