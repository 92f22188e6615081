# SPDX-License-Identifier: MIT
"""perf/tables: what it runs, what it keeps, and what it writes into the page."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(os.environ["KFORMER_SOURCE"])
PROGRAMS = Path(os.environ["KFORMER_PERF_PROGRAM"]).parent
loader = importlib.machinery.SourceFileLoader("perf_tables", str(SOURCE / "perf/tables"))
tables = importlib.util.module_from_spec(importlib.util.spec_from_loader("perf_tables", loader))
sys.modules["perf_tables"] = tables
loader.exec_module(tables)

ABOUT = {"version": "kformer-perf-blocks 1 (abc)", "isa": "avx2+fma", "threads": 2, "pytorch": "2", "processor": "P"}
ROW = {"name": "rope/forward/f32/H128", "kernel": "simd", "share_of_limit": 0.876, "ratio": 1.25,
       "median": {"ours": 0.004, "eager": 0.006, "compile": 0.005}}
PAGE = "words\n<!-- one -->\nold\n<!-- end of one -->\nmore\n<!-- two -->\n<!-- end of two -->\n"


def table(name, alone=False):
    return tables.Table(name, "blocks", 2, "^rope", alone)


class Markdown(unittest.TestCase):
    def test_row_beside_the_faster_path(self):
        self.assertEqual(tables.line_of(ROW, False), "| rope/forward/f32/H128 | simd | 4 | 88 % | 5 | `torch.compile` | 1.25 × |")

    def test_row_without_a_peer(self):
        row = {**ROW, "median": {"ours": 2.34567}, "ratio": None, "kernel": "rope:simd norm:simd"}
        self.assertEqual(tables.line_of(row, True), "| rope/forward/f32/H128 | simd | 2346 | 88 % |")

    def test_several_kernels(self):
        for kernel, cell in (("a:x b:y", "x, y"), ("a:x b:y c:z", "several"), ("simd_avx512", "simd_avx512")):
            self.assertEqual(tables.line_of({**ROW, "kernel": kernel}, False).split(" | ")[1], cell)

    def test_a_table_names_its_command_commit_and_machine(self):
        text = tables.markdown(table("one"), {"about": ABOUT, "rows": [ROW, {"name": "n", "failed": "no memory"}]})
        for part in ("kformer-perf-blocks 1 (abc); P; 2 threads;\nlimits by avx2+fma, PyTorch 2", "--filter '^rope'",
                     "build/perf/kformer-perf-blocks", "\n| rope/forward", "Not measured: n (no memory)."):
            self.assertIn(part, text)
        lines = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual({line.count("|") for line in lines}, {8})

    def test_a_table_without_a_peer_has_fewer_columns(self):
        about = {key: ABOUT[key] for key in ABOUT if key != "pytorch"}
        text = tables.markdown(table("one", True), {"about": about, "rows": [ROW]})
        self.assertNotIn("PyTorch", text)
        self.assertIn("--alone", text)
        self.assertEqual({line.count("|") for line in text.splitlines() if line.startswith("|")}, {5})


class Page(unittest.TestCase):
    def test_only_what_is_between_the_markers_changes(self):
        self.assertEqual(tables.with_table(PAGE, "one", "new"), PAGE.replace("old", "new"))

    def test_missing_markers(self):
        for page in ("", PAGE.replace("<!-- end of one -->", "")):
            with self.assertRaisesRegex(tables.Failed, "the page lacks '<!-- one -->' and '<!-- end of one -->'"):
                tables.with_table(page, "one", "new")

    def test_the_page_of_the_project_has_all_tables(self):
        page = (SOURCE / "docs/performance_tables.md").read_text(encoding="utf-8")
        for each in tables.TABLES:
            page = tables.with_table(page, each.name, "")
        self.assertEqual(len(re.findall("<!-- end of", page)), len(tables.TABLES))


class Run(unittest.TestCase):
    """The whole program, whose comparisons write what they are given."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.ran, self.code = Path(folder.name), [], 0
        self.page = self.folder / "page.md"
        self.page.write_text(PAGE)
        for patch in (mock.patch.object(tables, "TABLES", [table("one"), table("two", True)]),
                      mock.patch.object(tables.subprocess, "run", self.comparison)):
            patch.start()
            self.addCleanup(patch.stop)

    def comparison(self, command, stdout, **_):
        self.ran.append(command)
        stdout.write("words of the run")
        command[command.index("--output") + 1].write_text(json.dumps({"about": ABOUT, "rows": [ROW]}))
        return mock.Mock(returncode=self.code)

    def tables(self, *arguments):
        command = ["tables", "--build", "b", "--results", str(self.folder / "r"), "--page", str(self.page), *arguments]
        with mock.patch.object(sys, "argv", command), contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()) as errors:
            return tables.main(), errors.getvalue()

    def test_every_table_once(self):
        self.assertEqual(self.tables(), (0, ""))
        self.assertEqual([command[2:] for command in self.ran],
                         [[*table(name, alone).command(Path("b/perf"))[1:], "--output", self.folder / f"r/{name}.part"]
                          for name, alone in (("one", False), ("two", True))])
        self.assertEqual(self.ran[0][:2], [sys.executable, SOURCE / "perf/peers/blocks.py"])
        self.assertEqual(self.page.read_text().count("| rope/forward"), 2)
        self.assertEqual((self.folder / "r/one.log").read_text(), "words of the run")
        self.assertEqual(self.tables(), (0, ""))
        self.assertEqual(len(self.ran), 2)

    def test_some_tables(self):
        self.assertEqual(self.tables("--only", "^two$")[0], 0)
        self.assertEqual(len(self.ran), 1)
        self.assertIn("old", self.page.read_text())

    def test_a_run_that_fails_is_repeated_and_the_others_count(self):
        self.code = 3
        self.tables("--only", "one")
        self.code = 0
        self.tables("--only", "two")
        self.assertIn("old", self.page.read_text())
        self.code = 3
        code, errors = self.tables()
        self.assertEqual((code, len(self.ran)), (1, 3))
        self.assertIn("tables: one: the comparison ended with 3; its last words are in", errors)
        self.assertIn("| rope/forward", self.page.read_text())

    def test_a_page_without_markers(self):
        self.page.write_text("nothing\n")
        code, errors = self.tables()
        self.assertEqual(code, 1)
        self.assertIn("tables: the page lacks '<!-- one -->'", errors)


class Cases(unittest.TestCase):
    def test_every_table_has_cases(self):
        for script in ("attention", "blocks"):
            program = PROGRAMS / f"kformer-perf-{script}"
            if not program.exists():
                continue
            done = subprocess.run([program, "--serve"], input="cases\n", capture_output=True, text=True, check=True)
            names = [case["name"] for case in json.loads(done.stdout)]
            for each in tables.TABLES:
                if each.script == script:
                    found = [name for name in names if re.search(each.cases, name)]
                    self.assertTrue(found, each.name)
                    self.assertLess(len(found), 60, each.name)

    def test_alone_needs_no_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "rows.json"
            command = [sys.executable, "-B", "-c", "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
                       "sys.path.insert(0, sys.argv[0].rsplit('/', 1)[0]); runpy.run_path(sys.argv[0], run_name='__main__')",
                       str(SOURCE / "perf/peers/blocks.py"), str(PROGRAMS / "kformer-perf-blocks"), "--smoke", "--alone",
                       "--repetitions", "2", "--filter", "^adamw_8bit/step/f32", "--output", str(output)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            data = json.loads(output.read_text())
        self.assertNotIn("pytorch", data["about"])
        [row] = data["rows"]
        self.assertEqual((list(row["median"]), row["ratio"]), (["ours"], None))
        self.assertGreater(row["share_of_limit"], 0)
        self.assertNotIn("faster in", done.stdout)
        self.assertIn(tables.line_of(row, True).split(" | ")[0][2:], done.stdout)


if __name__ == "__main__":
    unittest.main()
