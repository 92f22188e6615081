# SPDX-License-Identifier: MIT
"""Texts and tables on a terminal of 100 columns."""

import textwrap

import pandas as pd

WIDTH = 100


def wrapped(text: str, indent: str = "") -> str:
    """The text in lines that fit; all but the first are indented."""
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def folded(table: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """What is the same in all rows as a text, such as "dtype f32, batch 1", and the table of the other columns.

    Measurements of a single row stay in the table.
    """
    names = [
        name for name in table
        if table[name].nunique(dropna=False) == 1 and (len(table) > 1 or table[name].dtype.kind != "f")
    ]  # fmt: skip
    facts = [f"{name} {_shown(table[name].iloc[0])}" for name in names]
    return wrapped(", ".join(facts)), table.drop(columns=names)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.4g}"
    return str(value)
