# SPDX-License-Identifier: MIT
"""The command compare: ratios of two runs as a table, and an exit code."""

import argparse
from pathlib import Path

import pandas as pd

from .axes import KEYS
from .compare import Comparison, compare
from .layout import folded, in_columns, wrapped
from .reader import Groups, open_results
from .samples import METRICS
from .series import run_label

DESCRIPTION = "Exit codes: 0 if no case of B is beyond the threshold, 1 if one is or a case of A did not run in B, 2 usage, 4 files."
# Shown units and their sizes, by those of the values.
_SHOWN = {"s": ("ms", 1e3), "s/token": ("ms/token", 1e3), "byte": ("MiB", 2.0**-20), "1": ("", 1.0)}
_MOST_INPUTS = 12


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Adds what the command takes to its parser."""
    command.add_argument("file", type=Path, metavar="A.h5")
    command.add_argument("other", type=Path, metavar="B.h5")
    command.add_argument(
        "--metric", choices=METRICS, help="default: time; of memory plans memory, of quantised checkpoints error"
    )
    command.add_argument(
        "--threshold", "--fail-above", type=_ratio, default=1.05, metavar="X",
        help="how much more B may take than A: 5%%, 0.05 or the ratio 1.05, which is the default",
    )  # fmt: skip
    command.add_argument("--strict", action="store_true", help="let noisy cases decide the exit code, too")
    command.add_argument(
        "--ignore", action="append", default=[], metavar="COLUMN", help="match cases that differ in it; may be repeated"
    )
    command.set_defaults(run=run)


def run(groups: Groups, options: argparse.Namespace) -> int:
    """Prints the comparison of the run that was opened with the other one; returns the exit code."""
    other = open_results(options.other)
    found = compare(groups, other, options.metric, options.ignore)
    for name, run in zip("AB", (groups, other)):
        print(wrapped(f"{name}  {run_label(run)}", "   "))
    print()
    if found.inputs:
        print("\n".join(["Different decks, A against B:" if "input" not in groups[""].attrs else "Different sources:",
                         *(f"  {one}" for one in found.inputs[:_MOST_INPUTS])]))  # fmt: skip
        if (more := len(found.inputs) - _MOST_INPUTS) > 0:
            print(f"  and {more} more")
        print()
    constant, table = _table(found)
    float_format = "{:.4g}".format if found.metric == "error" else "{:.3f}".format
    print(constant)
    print(in_columns(table, KEYS, float_format=float_format))
    print()
    for note in found.notes:
        print(wrapped(note))
    beyond = found.beyond(options.threshold, options.strict)
    print(wrapped(_result(found, len(beyond), options.threshold)))
    if left := len(found.beyond(options.threshold, strict=True)) - len(beyond):
        print(wrapped(f"{left} noisy {'case is' if left == 1 else 'cases are'} beyond {options.threshold:g} and left out: "
                      f"--strict counts {'it' if left == 1 else 'them'}."))  # fmt: skip
    return 1 if len(beyond) or found.missing else 0


def _ratio(text: str) -> float:
    """The ratio of B to A: "5%" and "0.05" are 1.05."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected 5%, 0.05 or the ratio 1.05, got '{text}'")
    if text.endswith("%"):
        return 1 + value / 100
    return value if value >= 1 else 1 + value


def _result(found: Comparison, beyond: int, threshold: float) -> str:
    count = len(found.table)
    undecided = int((found.table["verdict"] == "undecided").sum())
    text = f"{count} {'case' if count == 1 else 'cases'} compared, "
    if found.metric == "time":
        text += f"{undecided} undecided (the interval contains 1), "
    text += f"{beyond} beyond {threshold:g}."
    return text + (f" {found.missing} of A did not run in B." if found.missing else "")


def _table(found: Comparison) -> tuple[str, pd.DataFrame]:
    """The keys that are the same in all rows, and the table of the others, in units that suit a terminal."""
    unit, scale = _SHOWN[found.unit]
    keys = list(found.table.columns[: found.table.columns.get_loc("a")])
    results = found.table.drop(columns=keys)
    results[["a", "b"]] *= scale
    if found.metric != "time":  # exact
        results = results.drop(columns=["low", "high"])
    if (results["noisy"] == "").all():
        results = results.drop(columns="noisy")
    results = results.rename(columns={"a": f"A [{unit}]" if unit else "A", "b": f"B [{unit}]" if unit else "B", "ratio": "B/A"})
    constant, rest = folded(found.table[keys])
    return constant, rest.join(results)
