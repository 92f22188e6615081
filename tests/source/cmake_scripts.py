#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts of cmake/ make of their arguments, run by `cmake -P`, and what the presets say."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
MISSING = [name for name in ("cmake", "git") if not shutil.which(name)]
# A hook of git names its own repository.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def git(folder, *words):
    identity = ["-c", "user.name=Kformer", "-c", "user.email=kformer@localhost", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *identity, *words], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(folder):
    """A repository with all that is in the folder; its commit."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return git(folder, "rev-parse", "HEAD")


@unittest.skipIf(MISSING, f"not on this machine: {', '.join(MISSING)}")
class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class GitVersion(Scripts):
    def setUp(self):
        super().setUp()
        self.sources = self.folder / "vendor/kformer"
        header = self.sources / "src/measure/version.hpp.in"
        header.parent.mkdir(parents=True)
        shutil.copy(SOURCE / "src/measure/version.hpp.in", header)

    def version(self, sources=None, **definitions):
        """(commit, whether files differ from it) of the header."""
        output = self.folder / "version.hpp"
        words = [f"-D{name}={value}" for name, value in {"source_dir": sources or self.sources, "output": output, **definitions}.items()]
        subprocess.run(["cmake", *words, "-P", SOURCE / "cmake/GitVersion.cmake"], env=ENVIRONMENT, check=True)
        text = output.read_text()
        return re.search(r'GIT_SHA "(.*)"', text)[1], re.search(r"GIT_DIRTY (.*)", text)[1]

    def test_a_repository_is_named_and_whether_it_was_changed(self):
        commit = repository(self.sources)
        self.assertEqual(self.version(), (commit, "0"))
        link = self.folder / "link"
        link.symlink_to(self.sources)
        self.assertEqual(self.version(link), (commit, "0"))
        with (self.sources / "src/measure/version.hpp.in").open("a") as header:
            header.write("\n")
        self.assertEqual(self.version(), (commit, "1"))

    def test_an_archive_in_the_repository_of_another_project_does_not_name_that(self):
        repository(self.folder)
        with (self.sources / "src/measure/version.hpp.in").open("a") as header:
            header.write("\n")
        self.assertEqual(self.version(), ("unknown", "0"))
        self.assertEqual(self.version(revision="1a2b3c4d"), ("1a2b3c4d", "0"))

    def test_the_commit_that_somebody_names_comes_first(self):
        self.assertEqual(self.version(), ("unknown", "0"))
        self.assertEqual(self.version(revision="1a2b3c4d"), ("1a2b3c4d", "0"))
        repository(self.sources)
        self.assertEqual(self.version(revision="1a2b3c4d"), ("1a2b3c4d", "0"))


class Switches(Scripts):
    def resolve(self, call, **options):
        """What a call of KformerSwitches makes of the options, and CMake's exit code and errors."""
        lines = [f'set({name} "{value}")' for name, value in options.items()]
        lines += [f"include({SOURCE}/cmake/KformerSwitches.cmake)", call]
        lines += [f'message(STATUS "{name}=${{{name}}}")' for name in options]
        script = self.folder / "script.cmake"
        script.write_text("\n".join(lines))
        done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=False)
        return dict(re.findall(r"^-- (\w+)=(.*)$", done.stdout, re.M)), done.returncode, " ".join(done.stderr.split())

    def test_what_is_true_or_false_for_cmake_is_on_or_off(self):
        values = {"ON": "ON", "TRUE": "ON", "yes": "ON", "1": "ON", "OFF": "OFF", "FALSE": "OFF", "No": "OFF", "off": "OFF", "0": "OFF",
                  "AUTO": "AUTO", "auto": "AUTO"}
        options = {f"Switch_{i}": value for i, value in enumerate(values)}
        resolved, status, errors = self.resolve(f"kformer_resolve_auto({' '.join(options)})", **options)
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(resolved, {name: values[value] for name, value in options.items()})

    def test_what_is_neither_is_refused(self):
        for value in ("ATUO", ""):
            _, status, errors = self.resolve("kformer_resolve_auto(Kformer_ENABLE_MPI)", Kformer_ENABLE_MPI=value)
            self.assertNotEqual(status, 0)
            self.assertIn(f"Kformer_ENABLE_MPI is '{value}'; choose AUTO (where found), ON or OFF.", errors)

    def test_every_option_that_may_be_auto_is_resolved(self):
        text = (SOURCE / "CMakeLists.txt").read_text()
        resolved = re.search(r"^kformer_resolve_auto\((.*)\)$", text, re.M)[1].split()
        self.assertEqual(sorted(resolved), sorted(re.findall(r"^set\((\w+) AUTO CACHE", text, re.M)))

    def test_fuzz_targets_need_tests_and_drivers(self):
        call = re.search(r"^kformer_require_for\(Kformer_ENABLE_FUZZ .*\)$", (SOURCE / "CMakeLists.txt").read_text(), re.M)[0]
        for tests, drivers, fuzz, lacking in (("ON", "ON", "ON", None), ("OFF", "OFF", "OFF", None), ("OFF", "ON", "ON", "TESTS"),
                                              ("ON", "OFF", "ON", "DRIVERS")):
            _, status, errors = self.resolve(call, Kformer_ENABLE_TESTS=tests, Kformer_ENABLE_DRIVERS=drivers, Kformer_ENABLE_FUZZ=fuzz)
            self.assertEqual(status != 0, lacking is not None, errors)
            if lacking:
                self.assertIn(f"Kformer_ENABLE_FUZZ is ON and needs Kformer_ENABLE_{lacking}, which is OFF.", errors)


class Presets(unittest.TestCase):
    """As CMake resolves them: a preset has what it inherits, unless it says otherwise."""

    def presets(self, kind):
        all_of_kind = {preset["name"]: preset for preset in json.loads((SOURCE / "CMakePresets.json").read_text())[f"{kind}Presets"]}

        def resolved(preset):
            inherited = resolved(all_of_kind[preset["inherits"]]) if "inherits" in preset else {}
            return {**inherited, **preset, "cacheVariables": {**inherited.get("cacheVariables", {}), **preset.get("cacheVariables", {})}}

        return {name: resolved(preset) for name, preset in all_of_kind.items() if not preset.get("hidden")}

    def test_a_call_that_runs_no_test_has_failed(self):
        presets = self.presets("test")
        self.assertGreaterEqual(presets.keys(), {"openmp", "serial", "asan", "tsan", "cuda"})
        for name, preset in presets.items():
            self.assertEqual(preset["execution"]["noTestsAction"], "error", name)

    def test_what_a_sanitizer_finds_ends_the_program(self):
        presets = self.presets("configure")
        for name in "asan", "fuzz":
            flags = presets[name]["cacheVariables"]["CMAKE_CXX_FLAGS"].split()
            self.assertRegex(" ".join(flags), r"-fsanitize=\S*\baddress,undefined\b")
            self.assertIn("-fno-sanitize-recover=undefined", flags)
        self.assertIn("-fsanitize=thread", presets["tsan"]["cacheVariables"]["CMAKE_CXX_FLAGS"].split())
        # A thread sanitizer goes on, and ends with a code of its own unless it is told otherwise.
        options = "".join(text for preset in self.presets("test").values() for text in preset.get("environment", {}).values())
        self.assertNotRegex(options, "exitcode|halt_on_error|detect_leaks|report_bugs")


if __name__ == "__main__":
    unittest.main()
