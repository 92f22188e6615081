# SPDX-License-Identifier: MIT
"""The command summary: a table of all cases."""

import argparse

import pandas as pd

from .axes import KEYS
from .layout import folded, in_columns, wrapped
from .reader import Groups
from .series import (
    case_frame,
    crossover_table,
    memory_reduction,
    run_label,
    select,
    select_configuration,
    selections,
    summary_table,
)
from .tables import FORMATS, TABLES

# Columns that tell the rows of a table apart; `purpose` is the op of a memory plan.
_LABELS = ("purpose", *KEYS)


def run(groups: Groups, _options: argparse.Namespace) -> None:
    """Prints the table of a file of any kind."""
    print(wrapped(run_label(groups)))
    print()
    if (kind := groups[""].attrs.get("kind")) in TABLES:
        _print_table(TABLES[kind](groups))
        return
    _print_table(summary_table(groups))
    _print_crossovers(crossover_table(groups))
    cases = case_frame(groups)
    if "working_bytes" in cases:
        _, which = selections(cases)[0]
        _print_reductions(memory_reduction(select_configuration(select(cases))), which)


def _print_table(table: pd.DataFrame) -> None:
    """What is the same in all rows above the others."""
    constant, rest = folded(table)
    if constant:
        print(constant)
    print(in_columns(rest, _LABELS, formatters=FORMATS, float_format="{:.3f}".format))


def _print_crossovers(table: pd.DataFrame) -> None:
    if table.empty:
        return
    print("\nFlash against standard, times faster:")
    print(in_columns(table, _LABELS, float_format="{:.2f}".format))


def _print_reductions(reductions: pd.DataFrame, which: str) -> None:
    """`which` says of what cases, where the file has others."""
    if reductions.empty:
        return
    print("\n" + wrapped(f"Peak activations + workspace, flash against standard{', ' if which else ''}{which}:"))
    table = reductions.pivot_table(
        index=["direction", "dtype"], columns="seq_len", values="reduction", sort=False
    )
    # Plus 0: what rounds to −0.0 is 0.0.
    print(((-100 * table).round(1) + 0.0).to_string(float_format="{:+.1f} %".format))
