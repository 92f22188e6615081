# SPDX-License-Identifier: MIT
"""Texts and tables on a terminal of 100 columns."""

import textwrap
from collections.abc import Collection, Iterable
from dataclasses import dataclass
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


def in_columns(table: pd.DataFrame, labels: Collection[str] = (), **formats: Any) -> str:
    """The table as text. Where it is too wide, its headings break at underscores; then the labels that change least often
    move into lines between the rows.

    :param labels: columns that tell rows apart
    :param formats: arguments of ``DataFrame.to_string``
    """
    text = table.to_string(index=False, na_rep="-", **formats)
    if table.empty or max(map(len, text.splitlines())) <= WIDTH:
        return text
    columns = {str(name): _column(table[[name]], formats) for name in table}
    movable = sorted((name for name in columns if name in labels), key=lambda name: _changes(columns[name].cells))
    between: dict[str, list[str]] = {}
    while movable and sum(column.width + 1 for column in columns.values()) > WIDTH + 1:
        name = movable.pop(0)
        between[name] = columns.pop(name).cells
    height = max(len(column.heading) for column in columns.values())
    headings = [[""] * (height - len(column.heading)) + column.heading for column in columns.values()]
    widths = [column.width for column in columns.values()]
    lines = [_row(row, widths) for row in zip(*headings)]
    above = ""
    for number, row in enumerate(zip(*(column.cells for column in columns.values()))):
        group = wrapped(", ".join(f"{name} {cells[number]}" for name, cells in between.items()))
        lines += [f"{group}:"] if group != above else []
        above = group
        lines.append(_row(row, widths))
    return "\n".join(lines)


@dataclass(frozen=True)
class _Column:
    heading: list[str]
    cells: list[str]
    width: int


def _column(table: pd.DataFrame, formats: dict[str, Any]) -> _Column:
    """The only column of the table, its heading in as many lines as its cells make necessary."""
    (name,) = table
    cells = table.to_string(index=False, header=False, na_rep="-", **formats).splitlines()
    cells = [cell.strip() for cell in cells]
    width = max(map(len, [*cells, *str(name).split("_")]))
    heading = textwrap.wrap(str(name).replace("_", " "), width)
    return _Column([line.replace(" ", "_") for line in heading], cells, width)


def _changes(cells: list[str]) -> int:
    return sum(a != b for a, b in zip(cells, cells[1:]))


def _row(cells: Iterable[str], widths: list[int]) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, widths)).rstrip()


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.4g}"
    return str(value)
