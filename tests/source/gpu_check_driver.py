#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/gpu_check from the archive to the report on machines whose driver fails: our program, the static CUDA runtime, and a
library that stands in for the driver (tests/cuda/fake_driver.c). Needs nvcc, but no device."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
# As kformer_first_contact starts, with no kernels behind it.
PROGRAM = ("src/ops/common/cuda/launch.cpp", "src/core/tolerance.cpp", "tests/first_contact/device.cpp",
           "tests/first_contact/main.cpp", "tests/first_contact/report.cpp")
NO_CASES = """#include "first_contact/report.hpp"
namespace kformer::FirstContact {
""" + "".join(f"void check_{block}(Report&) {{}}\n"
              for block in ("attention", "rms_norm", "rope", "swiglu", "cross_entropy", "adamw", "quantized")) + "}\n"
# How the driver fails, how the program ends, and what it says.
FAILURES = {
    "no library": (77, "skipped: there is no CUDA driver here: libcuda.so.1: cannot open shared object file: No such file or "
                       "directory"),
    "no functions": (1, "the driver does not start: libcuda.so.1 lacks the functions of a driver"),
    "no device": (77, "skipped: there is no such device here: the driver, of CUDA 13.0, finds none"),
    "too old": (1, r"the driver is too old: it is of CUDA 12.8, this program of CUDA \d+\.\d+; install a newer driver"),
    "not ready": (1, "the driver does not start: CUDA says: system not yet initialized"),
    "broken": (1, "the driver does not start: CUDA says: unknown error"),
}


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)


@unittest.skipIf(shutil.which("nvcc") is None, "there is no nvcc")
@unittest.skipIf(shutil.which("cc") is None, "there is no C compiler")
class DriversThatFail(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.build_program()
        cls.unpack()
        for name, flags in (("driver", []), ("no functions", ["-DKFORMER_NO_FUNCTIONS"])):
            (cls.folder / name).mkdir()
            cls.must("cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", *flags, SOURCE / "tests/cuda/fake_driver.c", "-o",
                     cls.folder / name / "libcuda.so.1")

    @classmethod
    def must(cls, *command, **options):
        done = run(*command, **options)
        if done.returncode != 0:
            raise AssertionError(f"{command[0]} fails:\n{done.stdout}{done.stderr}")

    @classmethod
    def build_program(cls):
        """A build folder: the program, and others that would say that they ran."""
        for name in ("tests/kformer_tests_cuda", "drivers/kformer-attention", "drivers/kformer-layer"):
            file = cls.folder / "build" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("#!/bin/sh\necho it ran\n", encoding="utf-8")
            file.chmod(0o755)
        cases = cls.folder / "no_cases.cpp"
        cases.write_text(NO_CASES, encoding="utf-8")
        includes = (f"-I{SOURCE / place}" for place in ("tests/support/fake_kokkos", "include", "src", "tests"))
        cls.must("nvcc", "-std=c++20", "-x", "cu", "-arch=sm_90", "-cudart=static", *includes,
                 *(SOURCE / source for source in PROGRAM), cases, "-o", cls.folder / "build/tests/kformer_first_contact")

    @classmethod
    def unpack(cls):
        cls.must(sys.executable, "-B", SOURCE / "scripts/gpu_check", "--pack", cls.folder / "build",
                 cls.folder / "gpu-check.tar.xz")
        with tarfile.open(cls.folder / "gpu-check.tar.xz") as packed:
            packed.extractall(cls.folder, filter="data")

    def environment(self, failure):
        driver = {"no library": "nothing", "no functions": "no functions"}.get(failure, "driver")
        return dict(os.environ, LD_LIBRARY_PATH=str(self.folder / driver), KFORMER_FAKE_DRIVER=failure)

    def setUp(self):
        program = self.folder / "gpu-check/kformer_first_contact"
        if not run(program, env=self.environment("no library")).stdout.startswith("skipped: there is no CUDA driver"):
            self.skipTest("this machine has a driver")

    def test_the_program_says_why(self):
        for failure, (code, sentence) in FAILURES.items():
            with self.subTest(failure):
                done = run(self.folder / "gpu-check/kformer_first_contact", env=self.environment(failure))
                self.assertEqual(done.returncode, code)
                self.assertRegex(done.stdout, f"^{sentence}\n$")

    def test_the_check_reports_it(self):
        for failure, (code, sentence) in FAILURES.items():
            with self.subTest(failure):
                output = self.folder / f"results of {failure}"
                done = run(self.folder / "gpu-check/gpu_check", "--output", output, env=self.environment(failure))
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                with tarfile.open(self.folder / f"{output.name}.tar.xz") as packed:
                    result = json.load(packed.extractfile(f"{output.name}/gpu_check.json"))
                steps = {step["name"]: step for step in result["steps"]}
                self.assertEqual({name: step["status"] for name, step in steps.items()},
                                 {"first_contact": "failed", "figures": "not run", "peers": "not run"})
                self.assertEqual(steps["first_contact"]["exit"], code)
                self.assertRegex(steps["first_contact"]["why"], f"^{sentence}$")
                self.assertFalse(result["ok"])

    def test_the_page_has_each_sentence(self):
        page = (SOURCE / "docs/gpu.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `([^`]*)`[^|]*\|", page.partition("### When a step fails")[2], re.MULTILINE)
        for failure, (_, sentence) in FAILURES.items():
            with self.subTest(failure):
                self.assertTrue([row for row in rows if sentence.removeprefix("skipped: ").startswith(row)], sentence)


if __name__ == "__main__":
    unittest.main()
