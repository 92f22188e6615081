# SPDX-License-Identifier: MIT
"""Roofline of the cases of a sweep: rate against intensity, under the limits that the run measured."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from .series import noisy
from .style import BLOCK_COLOURS, DTYPE_STYLES, IMPL_COLOURS, NOISY, OTHER_COLOUR, OTHER_STYLE, Row, log_ticks

_ROW_HEIGHT = 4.6


def draw_roofline(axes: Axes, frame: pd.DataFrame, space: str) -> None:
    """A point for each case, and a roof for each dtype from the medians of the limits of its cases.

    Bandwidth depends on the size of the arrays (caches), so a case can lie above the roof of its dtype.
    """
    frame = frame[(frame["execution_space"] == space) & (frame["flop_rate"] > 0) & (frame["intensity"] > 0)]
    reach = np.array([frame["intensity"].min() / 2, frame["intensity"].max() * 2])
    for number, (dtype, cases) in enumerate(frame.groupby("dtype", sort=False)):
        colour = BLOCK_COLOURS[number % len(BLOCK_COLOURS)]
        peak, bandwidth = cases["flop_rate_limit"].median(), cases["bandwidth_limit"].median()
        if not (peak > 0 and bandwidth > 0):
            continue
        line = np.unique([*reach, np.clip(peak / bandwidth, *reach)])
        roof = np.minimum(peak, bandwidth * line) * 1e-9
        axes.plot(line, roof, color=colour, ls=DTYPE_STYLES.get(dtype, OTHER_STYLE)[0], lw=1.9, label=f"limit {dtype}")
    for (impl, dtype), cases in frame.groupby(["impl", "dtype"], sort=False):
        marker = DTYPE_STYLES.get(dtype, OTHER_STYLE)[1]
        colour = IMPL_COLOURS.get(impl, OTHER_COLOUR)
        axes.plot(
            cases["intensity"], cases["flop_rate"] * 1e-9, ls="", marker=marker, color=colour, mfc="none", ms=6,
            label=f"{impl} {dtype}",
        )  # fmt: skip
    if not (disturbed := frame[noisy(frame)]).empty:
        axes.plot(disturbed["intensity"], disturbed["flop_rate"] * 1e-9, **NOISY, label="noise decides")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yscale("log")
    log_ticks(axes, *axes.dataLim.intervaly)
    axes.set_title(f"Roofline, all directions, {space}")
    axes.set_xlabel("FLOP per byte of compulsory traffic")
    axes.set_ylabel("GFLOP/s")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=9.5)


def roofline_rows(frame: pd.DataFrame) -> list[Row]:
    """Rows of panels, one for each space; none for frames without limits."""
    if not {"flop_rate", "intensity", "flop_rate_limit", "bandwidth_limit"} <= set(frame):
        return []
    measured = frame[(frame["flop_rate"] > 0) & (frame["intensity"] > 0)]
    return [
        {"kind": "roofline", "height": _ROW_HEIGHT, "panels": [lambda axes, s=space: draw_roofline(axes, frame, s)]}
        for space in measured["execution_space"].unique()
    ]
