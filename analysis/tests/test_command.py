# SPDX-License-Identifier: MIT
"""What the commands do with pipes, terminals without some letters, and --help."""

import os
import subprocess
import sys
import unittest

from tests import stored
from tests.test_package import ANALYSIS
from tests.test_results import WithFile, WithMain


class Commands(WithFile, WithMain):
    def started(self, *arguments, **environment):
        return subprocess.Popen([sys.executable, "-B", "-m", "kformer_results", *map(str, arguments)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ANALYSIS), **environment})  # fmt: skip

    def test_a_reader_that_stops_is_no_error(self):
        running = self.started("summary", self.written())
        running.stdout.close()
        self.assertEqual(running.stderr.read(), b"")
        running.stderr.close()
        self.assertEqual(running.wait(), 0)

    def test_a_terminal_without_the_letters(self):
        out, error = self.started("summary", self.written(), PYTHONIOENCODING="ascii").communicate()
        self.assertEqual(error, b"")
        self.assertIn(b"Kformer 0.1.0  ?  git", out)

    def test_commands_of_their_own_say_their_names(self):
        for name in ("check", "report", "trace"):
            program = f"import sys; from kformer_results.__main__ import {name}_main; sys.argv[1:] = ['--help']; {name}_main()"
            done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": str(ANALYSIS)})  # fmt: skip
            self.assertTrue(done.stdout.startswith(f"usage: kformer-{name} [-h]"), done.stdout)

    def test_an_output_that_is_a_folder_gets_the_file(self):
        path = stored.unpack(self.folder, "layer_sweep")
        folder = self.folder / "pictures"
        folder.mkdir()
        for command, ending in (("plot", ".png"), ("report", ".html"), ("trace", ".trace.json")):
            code, out, error = self.run_main(command, path, "-o", folder)
            self.assertEqual((code, out, error), (0, f"{folder}/layer_sweep{ending}\n", ""))
            self.assertTrue((folder / f"layer_sweep{ending}").is_file())

    def test_an_output_without_a_folder_is_named(self):
        path, lost = stored.unpack(self.folder, "layer_sweep"), self.folder / "lost"
        for command, ending in (("plot", ".png"), ("report", ".html"), ("trace", ".json")):
            out = lost / f"out{ending}"
            self.assertEqual(self.run_main(command, path, "-o", out)[::2], (4, f"kformer_results: error: {out}: No such file or directory\n"))

    def test_a_plan_has_no_profile(self):
        code, _, error = self.run_main("trace", stored.unpack(self.folder, "memory_plan"))
        self.assertEqual(code, 4)
        self.assertIn("files of kind 'memory_plan' have no profile to trace", error)

    def test_lines_fit_where_cases_have_much_in_common(self):
        for kind in ("layer_sweep", "generate", "scaling", "train", "quantize"):
            lines = self.run_main("summary", stored.unpack(self.folder, kind))[1].splitlines()
            self.assertLessEqual(max(map(len, lines)), 120, kind)


if __name__ == "__main__":
    unittest.main()
