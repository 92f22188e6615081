# SPDX-License-Identifier: MIT
"""Colours, line styles, and the lines of a panel: shared by all plots."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from .series import curve, noisy

# A row of panels: its "kind", "height" in inches, and "panels", functions that draw on axes.
Row = dict[str, Any]

# The colours of Okabe and Ito, and for blocks Paul Tol's "muted" (and two of the former): distinct for any colour vision.
IMPL_COLOURS = {"standard": "#D55E00", "flash": "#0072B2"}
OTHER_COLOUR = "#009E73"
BLOCK_COLOURS = [
    "#332288",
    "#88CCEE",
    "#44AA99",
    "#117733",
    "#DDCC77",
    "#CC6677",
    "#882255",
    "#AA4499",
    "#999933",
    "#E69F00",
    "#0072B2",
    "#555555",
]
OWN_COLOUR = "#C4C4C4"  # of what belongs to no block
GREY = "#6B6B6B"
DTYPE_STYLES = {"f32": ("-", "o"), "bf16": ((0, (4, 2)), "s"), "f16": ((0, (1, 1.5)), "^"), "f64": ("-.", "D")}
OTHER_STYLE = ("-", "v")
_MOST_LETTERS = 32
# A ring around a time that noise decides.
NOISY: dict[str, Any] = {"color": GREY, "ls": "", "marker": "o", "mfc": "none", "ms": 13}


def shortened(name: str) -> str:
    """A name that leaves room for what it names."""
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"


def length_axis(axes: Axes, frame: pd.DataFrame) -> None:
    """Sequence lengths along the horizontal axis, one tick for each, with its number where there is room."""
    axes.set_xscale("log", base=2)
    lengths = sorted(frame["seq_len"].unique())
    named = lengths_with_room(axes, lengths, letter=0.095)
    axes.set_xticks(lengths, [str(length) if length in named else "" for length in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(lengths[0] / 1.25, lengths[-1] * 1.25)  # of all panels, whatever ran
    axes.set_xlabel("sequence length S")


def lengths_with_room(axes: Axes, lengths: Sequence[int], letter: float) -> list[int]:
    """Those of the ascending lengths at which a text of five letters, each so many inches wide, meets no other."""
    width = 0.75 * axes.get_window_extent().width / axes.figure.dpi  # guides and names take the rest
    per_octave = width / np.log2(lengths[-1] / lengths[0]) if len(lengths) > 1 else 0.0
    found = list(lengths[:1])
    for length in lengths[1:]:
        if per_octave * np.log2(length / found[-1]) >= 5 * letter:
            found.append(length)
    return found


def draw_lines(axes: Axes, frame: pd.DataFrame, column: str, scale: float, band: bool) -> tuple[float, float]:
    """Lines of one panel; returns its lowest and highest value."""
    low, high = np.inf, 0.0
    for impl in frame["impl"].unique():
        for dtype in frame["dtype"].unique():
            line = curve(frame, column, impl=impl, dtype=dtype)
            colour = IMPL_COLOURS.get(impl, OTHER_COLOUR)
            style, marker = DTYPE_STYLES.get(dtype, OTHER_STYLE)
            ran = line[np.isfinite(line[column]) & (line[column] > 0)]
            axes.plot(
                ran["seq_len"],
                ran[column] * scale,
                color=colour,
                ls=style,
                marker=marker,
                mfc="white",
                ms=6,
                lw=1.9,
                label=f"{impl} {dtype}",
            )
            disturbed = ran[noisy(ran)]
            if column != "working_bytes" and not disturbed.empty:
                axes.plot(disturbed["seq_len"], disturbed[column] * scale, **NOISY, label=f"{impl} {dtype} noisy")
            if band and {"time_p10", "time_p90"} <= set(ran):
                axes.fill_between(
                    ran["seq_len"],
                    ran["time_p10"] * scale,
                    ran["time_p90"] * scale,
                    color=colour,
                    alpha=0.2,
                    lw=0,
                )
            failed = line[~line.index.isin(ran.index)]
            axes.plot(
                failed["seq_len"],
                np.full(len(failed), 1.0),
                color=colour,
                ls="",
                marker="x",
                ms=8,
                mew=2,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                label=f"{impl} {dtype} did not run",
            )
            if not ran.empty:
                low, high = min(low, ran[column].min() * scale), max(high, ran[column].max() * scale)
    length_axis(axes, frame)
    axes.set_yscale("log")
    if high > 0:
        log_ticks(axes, low, high)
    else:  # nothing ran
        axes.set_ylim(1, 10)
        axes.set_yticks([])
        axes.yaxis.set_minor_locator(NullLocator())
    return low, high


def log_ticks(axes: Axes, low: float, high: float) -> None:
    """Ticks with plain numbers on the vertical, logarithmic axis of values from `low` to `high`."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 30 * low else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
