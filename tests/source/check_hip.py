#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds for AMD GPUs, without such a compiler: how files are compiled, and what scripts/check_hip asks of CMake."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
# Says what it was called with, and fails where the test wants it to.
TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
case "$*" in "$FAILS"*) exit 3 ;; esac
"""


# A Kokkos with HIP as far as CMake can tell, and files that include it and do not.
KOKKOS = """set(Kokkos_VERSION 4.6.1)
set(Kokkos_DEVICES SERIAL;HIP)
add_library(Kokkos::kokkos INTERFACE IMPORTED)
set_target_properties(Kokkos::kokkos PROPERTIES INTERFACE_COMPILE_OPTIONS "-x;hip")
"""
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(files LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
list(APPEND CMAKE_MODULE_PATH {source}/cmake)
set(Kformer_ENABLE_KOKKOS_KERNELS OFF)
include(KformerDependencies)
include(KformerBlocks)
kformer_precompile(kformer_kokkos_header Kokkos::kokkos <vector>)
add_library(files device.cpp)
target_link_libraries(files PRIVATE Kokkos::kokkos)
kformer_kokkos_sources(files)
add_library(host host.cpp)
# Newer versions of CMake warn of this by themselves.
get_target_property(header files PRECOMPILE_HEADERS_REUSE_FROM)
if(header)
  message(WARNING "no such header is compiled: ${{header}}")
endif()
"""


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


@unittest.skipUnless(all(map(shutil.which, ("cmake", "ninja", "c++"))), "no CMake, no Ninja or no C++ compiler on this machine")
class Commands(Case):
    def configure(self, kokkos=KOKKOS):
        for name, text in (("CMakeLists.txt", PROJECT.format(source=SOURCE)), ("KokkosConfig.cmake", kokkos), ("device.cpp", ""),
                           ("host.cpp", "")):
            (self.folder / name).write_text(text)
        return subprocess.run(["cmake", "-G", "Ninja", "-S", self.folder, "-B", self.folder / "build", f"-DKokkos_DIR={self.folder}"],
                              check=False, capture_output=True, text=True)

    def commands(self):
        """The words that compile each file."""
        done = self.configure()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        commands = json.loads((self.folder / "build/compile_commands.json").read_text())
        return {Path(command["file"]).name: command["command"].split() for command in commands}

    def test_how_files_are_compiled(self):
        commands = self.commands()
        self.assertIn("-xc++", commands["host.cpp"])
        self.assertNotIn("hip", commands["host.cpp"])
        # Of two the last counts.
        self.assertLess(commands["device.cpp"].index("-xc++"), commands["device.cpp"].index("hip"))
        self.assertFalse([word for command in commands.values() for word in command if "cmake_pch" in word])

    def test_hip_as_a_language_of_cmake_is_refused(self):
        done = self.configure(KOKKOS + "set(Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE ON)\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("-DKokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE=OFF", done.stderr)


class CheckHip(Case):
    def setUp(self):
        super().setUp()
        self.tools("hipcc", "cmake", "ninja")

    def tools(self, *names):
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        for file in tools.iterdir():
            file.unlink()
        for name in names:
            (tools / name).write_text(TOOL)
            (tools / name).chmod(0o755)
        for name in ("sh", "basename"):
            (tools / name).symlink_to(f"/bin/{name}")

    def kokkos(self, devices="SERIAL;HIP", arch="ZEN3;AMD_GFX942"):
        config = self.folder / "kokkos/lib64/cmake/Kokkos"
        config.mkdir(parents=True, exist_ok=True)
        (config / "KokkosConfigCommon.cmake").write_text(f"set(Kokkos_DEVICES {devices})\nset(Kokkos_ARCH {arch})\n")
        return self.folder / "kokkos"

    def run_check(self, *arguments, fails="nothing"):
        """Exit code, text, and what the tools were called with."""
        log = self.folder / "log"
        log.write_text("")
        environment = dict(os.environ, PATH=str(self.folder / "tools"), LOG=str(log), FAILS=fails)
        done = subprocess.run([sys.executable, "-B", SOURCE / "scripts/check_hip", *arguments], env=environment,
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr, log.read_text().splitlines()

    def test_the_library_is_configured_and_built(self):
        prefix = self.kokkos()
        build = self.folder / "build"
        status, text, (configure, compile_) = self.run_check(prefix, "--build", build, "--jobs", "3", "-DKformer_ENABLE_MPI=ON")
        self.assertEqual((status, text), (0, "check_hip: the library compiles for ZEN3, AMD_GFX942; nothing has run\n"))
        self.assertTrue(configure.startswith(f"cmake -S {SOURCE} -B {build} "), configure)
        for part in ("-DCMAKE_CXX_COMPILER=hipcc", f"-DKokkos_ROOT={prefix.resolve()}", "-DKformer_ENABLE_DRIVERS=OFF"):
            self.assertIn(part, configure.split())
        # The last of two wins.
        self.assertGreater(configure.index("ENABLE_MPI=ON"), configure.index("ENABLE_MPI=OFF"))
        self.assertEqual(compile_, f"cmake --build {build} --parallel 3 --target kformer-libraries")

    def test_a_failure_is_one(self):
        for step in ("-S", "--build"):
            status, text, calls = self.run_check(self.kokkos(), fails=step)
            self.assertEqual((status, text), (1, f"check_hip: cmake {step} failed with 3\n"))
            self.assertEqual(len(calls), 1 if step == "-S" else 2)

    def test_what_is_no_kokkos_with_hip(self):
        status, text, calls = self.run_check(self.folder)
        self.assertEqual((status, calls), (1, []))
        self.assertIn(f"{self.folder.resolve()} has no installed Kokkos", text)
        status, text, calls = self.run_check(self.kokkos(devices="OPENMP;SERIAL", arch=""))
        self.assertEqual((status, calls), (1, []))
        self.assertIn("has OPENMP, SERIAL and not HIP", text)

    def test_without_tools_it_is_skipped(self):
        for missing, package in (("hipcc", "hipcc"), ("cmake", "cmake"), ("ninja", "ninja-build")):
            self.tools(*{"hipcc", "cmake", "ninja"} - {missing})
            status, text, calls = self.run_check(self.kokkos())
            self.assertEqual((status, text, calls),
                             (77, f"skipped: check_hip needs {missing}; apt-get install {package}\n", []))


if __name__ == "__main__":
    unittest.main()
