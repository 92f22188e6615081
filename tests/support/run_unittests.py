# SPDX-License-Identifier: MIT
"""Runs Python tests for ctest and says what was skipped: run_unittests.py [--needs MODULE...] [--only|--without
CLASS...] FILE|PACKAGE/FILE

Exits with 1 if a test fails, with 77 if all were skipped, with 0 otherwise. Each reason to skip is a line
`skipped: <reason>` at the end, or `skipped in part: <reason>` if other tests ran. The tests have a TMPDIR of their own, for
the reason that own_tmpdir.sh gives. SIGHUP ends their programs even below nohup.
"""

import argparse
import importlib
import importlib.util
import os
import signal
import sys
import tempfile
import unittest
from pathlib import Path

SKIPPED = 77


def cases_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases_of(test)
        else:
            yield test


def load(path):
    loader = unittest.defaultTestLoader
    if (path.parent / "__init__.py").is_file():  # what it imports is in the package
        return loader.discover(str(path.parent), pattern=path.name, top_level_dir=str(path.parent.parent))
    sys.path.insert(0, str(path.parent))
    return loader.loadTestsFromModule(importlib.import_module(path.stem))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--needs", nargs="+", default=[])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--without", nargs="+", default=[])
    arguments = parser.parse_args()
    for name in arguments.needs:
        if importlib.util.find_spec(name) is None:
            print(f"skipped: {name} is not installed")
            return SKIPPED
    cases = list(cases_of(load(arguments.path.resolve())))
    classes = {type(case).__name__ for case in cases}
    if unknown := {*(arguments.only or []), *arguments.without} - classes:
        print(f"there are no tests of {', '.join(sorted(unknown))}")
        return 1

    def chosen(name):
        return name not in arguments.without and (arguments.only is None or name in arguments.only)

    cases = [case for case in cases if chosen(type(case).__name__)]
    names = {case.id() for case in cases}
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(unittest.TestSuite(cases))
    if not result.wasSuccessful() or not names:
        return 1
    # Of a class that is skipped as a whole, no test counts as run.
    wholly = result.testsRun == len(names & {case.id() for case, _ in result.skipped})
    for reason in dict.fromkeys(reason for _, reason in result.skipped):
        print(f"{'skipped' if wholly else 'skipped in part'}: {reason}")
    return SKIPPED if wholly else 0


def main_in_own_tmpdir():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # tests that run programs as another user have their files in it
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = None  # asks TMPDIR anew
        return main()


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests send it, and a program inherits that it is ignored
    sys.exit(main_in_own_tmpdir())
