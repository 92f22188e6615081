# SPDX-License-Identifier: MIT
"""Plots of an attention comparison: speed-up and share of the machine's peak against sequence length."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from .series import speedups
from .style import DTYPE_STYLES, GREY, IMPL_COLOURS, OTHER_STYLE, Row, draw_lines, length_axis

_ROW_HEIGHT = 4.1


def draw_speedup(axes: Axes, frame: pd.DataFrame, space: str, direction: str) -> None:
    """Speed-up of flash over standard, one line per dtype."""
    frame = frame[(frame["execution_space"] == space) & (frame["direction"] == direction)]
    table = speedups(frame)
    for dtype in table["dtype"].unique():
        line = table[table["dtype"] == dtype].sort_values("seq_len")
        style, marker = DTYPE_STYLES.get(dtype, OTHER_STYLE)
        axes.plot(
            line["seq_len"],
            line["speedup"],
            color=IMPL_COLOURS["flash"],
            ls=style,
            marker=marker,
            mfc="white",
            ms=6,
            lw=1.9,
            label=dtype,
        )
    axes.axhline(1, color=GREY, lw=0.9, ls=":", label="equally fast")
    length_axis(axes, frame)
    axes.set_ylim(0, 1.1 * max(1.0, table["speedup"].max()) if len(table) else 1.1)
    axes.set_title(f"Speed-up, {direction}, {space}")
    axes.set_ylabel("time of standard / time of flash")


def draw_share(axes: Axes, frame: pd.DataFrame, space: str, direction: str) -> None:
    """Share of the machine's multiply-add rate, one line per impl and dtype."""
    frame = frame[(frame["execution_space"] == space) & (frame["direction"] == direction)]
    _, high = draw_lines(axes, frame, "share_of_fma_peak", scale=100, band=False)
    axes.set_yscale("linear")
    axes.set_ylim(0, max(100, 1.05 * high))
    axes.set_yticks(np.arange(0, max(100, high) + 1, 20))
    axes.set_title(f"Share of FMA peak, {direction}, {space}")
    axes.set_ylabel("FLOP/s over peak  [%]")


def attention_rows(frame: pd.DataFrame) -> list[Row]:
    """Rows of panels for a frame that has their columns; none for other kinds of sweep."""
    if "share_of_fma_peak" not in frame:
        return []
    kinds = [("share", draw_share)]
    if not speedups(frame).empty:
        kinds.insert(0, ("speedup", draw_speedup))
    return [
        {
            "kind": kind,
            "height": _ROW_HEIGHT,
            "panels": [lambda axes, draw=draw, s=space, d=d: draw(axes, frame, s, d) for d in cases["direction"].unique()],
        }
        for kind, draw in kinds
        for space, cases in frame.groupby("execution_space", sort=False)
    ]
