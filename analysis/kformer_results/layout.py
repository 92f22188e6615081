# SPDX-License-Identifier: MIT
"""Texts and tables on a terminal of 100 columns."""

import textwrap
from typing import Any

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


def in_columns(table: pd.DataFrame, **formats: Any) -> str:
    """The table as text. Where it is too wide, its headings break at underscores.

    :param formats: arguments of ``DataFrame.to_string``
    """
    text = table.to_string(index=False, na_rep="-", **formats)
    if table.empty or max(map(len, text.splitlines())) <= WIDTH:
        return text
    columns = []
    for name in table:
        cells = table[[name]].to_string(index=False, header=False, na_rep="-", **formats).splitlines()
        cells = [cell.strip() for cell in cells]
        width = max(map(len, [*cells, *str(name).split("_")]))
        heading = textwrap.wrap(str(name).replace("_", " "), width)
        columns.append(([line.replace(" ", "_") for line in heading], cells, width))
    height = max(len(heading) for heading, _, _ in columns)
    lines = [[""] * (height - len(heading)) + heading + cells for heading, cells, _ in columns]
    widths = [width for _, _, width in columns]
    return "\n".join(
        " ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip() for row in zip(*lines)
    )


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.4g}"
    return str(value)
