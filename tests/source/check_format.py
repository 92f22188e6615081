#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/check_format looks at every C++ file. A program that only lists its operands stands in for clang-format."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(os.environ["KFORMER_SOURCE"]) / "scripts/check_format"
FILES = ["include/kformer/a.hpp", "src/b.cpp", "drivers/c.cu", "tests/support/d.h", "perf/e.cuh", "docs/examples/f.cpp"]
OTHERS = ["src/template.cpp.in", "docs/page.md", "build/made.cpp"]


class CheckFormat(unittest.TestCase):
    def test_every_file_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            for name in (*FILES, *OTHERS):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).touch()
            (tree / "scripts").mkdir()
            shutil.copy(SCRIPT, tree / "scripts")
            program = tree / "clang-format-19"
            program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
            program.chmod(0o755)
            done = subprocess.run([tree / "scripts/check_format"], capture_output=True, text=True,
                                  env={**os.environ, "PATH": f"{tree}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stderr)
        *lines, last = done.stdout.splitlines()
        self.assertEqual(sorted(line for line in lines if not line.startswith("-")), sorted(FILES))
        self.assertEqual(last, "check_format: 6 files are formatted")


if __name__ == "__main__":
    unittest.main()
