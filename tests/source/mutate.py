#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/mutate on a project without a compiler: a target that copies a file unless it holds a wrong word, and tests that
look for words in the copy."""

import contextlib
import csv
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from load_script import load_script

SCRIPT = Path(os.environ["KFORMER_SOURCE"]) / "scripts/mutate"
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(Small NONE)
enable_testing()
add_custom_command(OUTPUT copy.txt DEPENDS ${PROJECT_SOURCE_DIR}/words.txt
  COMMAND sh -c "! grep -q wrong ${PROJECT_SOURCE_DIR}/words.txt" COMMAND cp ${PROJECT_SOURCE_DIR}/words.txt copy.txt
  COMMAND sh -c "ln -sf /bin/true runner && ! grep -q lost copy.txt || rm runner" VERBATIM)
add_custom_target(program DEPENDS copy.txt)
add_test(NAME unit/first COMMAND grep -q first copy.txt)
add_test(NAME unit/second COMMAND grep -q second copy.txt)
add_test(NAME slow COMMAND sh -c "! grep -q slow copy.txt || sleep 60")
add_test(NAME program COMMAND ${PROJECT_BINARY_DIR}/runner)
# The first time they are fast, as if the machine had become busy.
add_test(NAME pause COMMAND sh -c "test ! -e pause || sleep 60; touch pause")
add_test(NAME limited COMMAND sh -c "test ! -e limited || sleep 60; touch limited")
set_tests_properties(limited PROPERTIES TIMEOUT 2)
"""
WORDS = "first\nsecond\nthird\n"
NINJA = shutil.which("ninja")


def mutant(name, old, new, tests="^unit/"):
    return f"[[mutant]]\nname = '{name}'\nfile = 'words.txt'\nold = '{old}'\nnew = '{new}'\ntests = '{tests}'\n"


@unittest.skipUnless(NINJA and shutil.which("cmake") and shutil.which("git"), "no cmake, ninja or git")
class Mutate(unittest.TestCase):
    def setUp(self):
        # A build that a signal ends may write a last file.
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name) / "tree"
        self.build = Path(folder.name) / "build"
        (self.tree / "tests/mutants").mkdir(parents=True)
        (self.tree / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
        self.words = self.tree / "words.txt"
        self.words.write_text(WORDS, encoding="utf-8")
        self.list(mutant("kills", "second", "2nd"), mutant("survives", "third", "3rd"), mutant("breaks", "first", "wrong"))
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
        subprocess.run(["cmake", "-G", "Ninja", "-S", self.tree, "-B", self.build], check=True, capture_output=True)

    def git(self, *words):
        subprocess.run(["git", "-C", self.tree, *words], check=True, capture_output=True)

    def list(self, *mutants):
        text = "targets = ['program']\n" + "".join(mutants)
        (self.tree / "tests/mutants/block.toml").write_text(text, encoding="utf-8")

    def command(self, *words):
        return [sys.executable, "-B", str(SCRIPT), *map(str, words)]

    def mutate(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, check=False, timeout=120)

    def results(self):
        with (self.build / "mutants.tsv").open(encoding="utf-8", newline="") as file:
            return {row["fault"]: (row["result"], row["by"]) for row in csv.DictReader(file, delimiter="\t")}

    def copy(self):
        """What the build has once the faults are gone."""
        subprocess.run(["cmake", "--build", self.build, "--target", "program"], check=True, capture_output=True)
        return (self.build / "copy.txt").read_text(encoding="utf-8")

    def test_each_fault_has_its_end_and_the_file_is_put_back(self):
        done = self.mutate("--build", self.build)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        results = self.results()
        self.assertEqual(results["block/kills"], ("killed", "unit/second"))
        self.assertEqual(results["block/survives"], ("survived", ""))
        self.assertEqual(results["block/breaks"][0], "does not compile")
        self.assertIn("1 killed, 1 survived, 1 does not compile, 0 not run", done.stdout)
        self.assertEqual(self.words.read_text(encoding="utf-8"), WORDS)
        self.assertEqual(self.copy(), WORDS)

    def test_a_campaign_goes_on_where_it_was(self):
        first = self.mutate("--build", self.build, "--only", "kills")
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        self.assertEqual(self.mutate("--build", self.build, "--only", "kills").stdout.count("block/kills"), 0)
        self.assertEqual(self.mutate("--build", self.build, "--only", "kills", "--again").stdout.count("block/kills"), 1)
        # A fault that was changed is another.
        self.list(mutant("kills", "second", "other"))
        self.assertEqual(self.mutate("--build", self.build).stdout.count("block/kills"), 1)

    def test_uncommitted_changes_are_refused(self):
        # A test that was changed would fail without the fault, too.
        for file, text in (self.words, WORDS), (self.tree / "CMakeLists.txt", PROJECT):
            file.write_text(text + "\n", encoding="utf-8")
            done = self.mutate("--build", self.build)
            self.assertEqual(done.returncode, 2)
            self.assertIn(file.name, done.stderr)
            file.write_text(text, encoding="utf-8")

    def test_results_of_another_commit_are_named(self):
        self.mutate("--build", self.build, "--only", "kills")
        self.git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "y", "--allow-empty")
        self.assertIn("1 of them ran at other commits", self.mutate("--build", self.build, "--only", "kills").stdout)
        self.assertNotIn("other commits", self.mutate("--build", self.build, "--only", "kills", "--again").stdout)

    def test_a_ctest_that_fails_without_a_test_that_fails_kills_nothing(self):
        self.list(mutant("loses the program", "third", "lost", tests="^program"))
        done = self.mutate("--build", self.build)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("but no test failed", done.stderr)
        self.assertNotIn("block/loses the program", self.results())
        self.assertEqual(self.words.read_text(encoding="utf-8"), WORDS)

    def within(self, seconds, *words):
        """The same where tests have so many seconds."""
        module = load_script("scripts/mutate")
        output = io.StringIO()
        with mock.patch.object(module, "LEAST_SECONDS", seconds), mock.patch.object(module, "PATIENCE", 0), \
                mock.patch.object(sys, "argv", ["mutate", *map(str, words)]), mock.patch("signal.signal"), \
                contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return module.main(), output.getvalue()

    def test_an_endless_test_kills_if_it_ends_without_the_fault(self):
        self.list(mutant("sleeps", "third", "slow", tests="^slow"))
        code, output = self.within(5, "--build", self.build)
        self.assertEqual((code, self.results()["block/sleeps"]), (0, ("killed", "time limit")), output)

    def test_on_a_busy_machine_no_time_limit_kills(self):
        for tests in "^pause", "^limited":
            with self.subTest(tests=tests):
                self.list(mutant("waits", "third", "3rd", tests=tests))
                code, output = self.within(4, "--build", self.build)
                self.assertEqual(code, 2, output)
                self.assertIn("the machine is too busy", output)
                self.assertNotIn("block/waits", self.results())

    def test_tests_that_fail_without_a_fault_prove_nothing(self):
        self.list(mutant("kills", "second", "2nd", tests="missing"))
        self.assertIn("no test matches missing", self.mutate("--build", self.build).stderr)
        (self.build / "copy.txt").write_text("", encoding="utf-8")  # newer than its source
        self.list(mutant("kills", "second", "2nd"))
        done = self.mutate("--build", self.build)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("fail without a fault", done.stderr)

    def test_a_signal_puts_the_file_back(self):
        self.list(mutant("sleeps", "third", "slow", tests="^slow"))
        for name in (signal.SIGTERM, signal.SIGINT):
            process = subprocess.Popen(self.command("--build", self.build), stdout=subprocess.PIPE, text=True)
            end = time.monotonic() + 60
            while "slow" not in self.words.read_text(encoding="utf-8") and time.monotonic() < end:
                time.sleep(0.0002)
            process.send_signal(name)
            output, _ = process.communicate(timeout=30)
            self.assertIn("0 killed, 0 survived, 0 does not compile, 1 not run", output)
            self.assertEqual(process.returncode, 1)
            self.assertEqual(self.words.read_text(encoding="utf-8"), WORDS)

    def test_the_list_is_checked(self):
        self.assertEqual(self.mutate("--check", "--build", self.build).returncode, 0)
        self.list(mutant("nowhere", "fifth", "x"), mutant("twice", "ir", "x"), mutant("equal", "first", "first"),
                  mutant("equal", "second", "x", tests="missing"))
        done = self.mutate("--check", "--build", self.build)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines(), [
            "block/nowhere: `old` occurs 0 times in words.txt, expected once",
            "block/twice: `old` occurs 2 times in words.txt, expected once",
            "block/equal: `new` is `old`",
            "block/equal: the name occurs twice",
            "block/equal: no test matches missing"])
        self.assertEqual(len(self.mutate("--check", "--tree", self.tree).stdout.splitlines()), 4)


if __name__ == "__main__":
    unittest.main()
