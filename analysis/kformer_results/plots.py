# SPDX-License-Identifier: MIT
"""Plots of a layer sweep: time and memory against sequence length, breakdown by block."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .attention_plots import attention_rows
from .heading import shrink, source_facts, title_of
from .reader import Groups
from .roofline import roofline_rows
from .series import (
    UNATTRIBUTED,
    breakdown,
    case_frame,
    configuration_numbers,
    memory_reduction,
    noisy,
    run_label,
    select,
    select_configuration,
)
from .style import (
    BLOCK_COLOURS,
    DTYPE_STYLES,
    GREY,
    IMPL_COLOURS,
    NOISY,
    OTHER_COLOUR,
    OTHER_STYLE,
    OWN_COLOUR,
    Row,
    draw_lines,
    lengths_with_room,
)
from .treemap import draw_treemap, tree_of

_FONT_SIZE = 11
RC = {
    "font.size": _FONT_SIZE,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
}
_WIDTH = 12.5
_ROW_HEIGHT = 4.1
_BAR_HEIGHT = 0.36
_MARGIN_TOP, _MARGIN_BOTTOM = 1.25, 0.5


def save_plots(
    groups: Groups, out: str | Path, *, separate: bool = False, op: str | None = None, batch: int | None = None,
    configuration: int = 0,
) -> list[Path]:  # fmt: skip
    """Plots a file that open_results read; returns the paths of the PNG files.

    Writes one picture `out`, or with `separate` one per kind, named like out's stem with -time, -roofline, -memory, -breakdown, -treemap and,
    for attention comparisons, -speedup and -share. Leaves out kinds without data. `op` and `batch` select the cases
    (default: those of the first case); `configuration` selects a configuration of a comparison by number.

    Raises ResultFileError if there are no such cases.
    """
    out = Path(out)
    cases = select(case_frame(groups), op, batch)
    frame = select_configuration(cases, configuration)
    last = configuration_numbers(cases).max()
    which = f"configuration {configuration} (the last is {last})" if last > 0 else ""
    rows = _time_rows(frame) + attention_rows(frame) + roofline_rows(frame) + _memory_rows(frame)
    rows += _breakdown_rows(groups, frame) + _treemap_rows(groups, frame)
    files = {out: rows}
    if separate:
        kinds = dict.fromkeys(row["kind"] for row in rows)
        files = {
            out.with_name(f"{out.stem}-{kind}{out.suffix}"): [row for row in rows if row["kind"] == kind]
            for kind in kinds
        }
    with plt.rc_context(RC):
        for path, chosen in files.items():
            figure = _compose(groups, frame, chosen, which)
            figure.savefig(path, dpi=150)
            plt.close(figure)
    return list(files)


def draw_time(axes: Axes, frame: pd.DataFrame, space: str, direction: str) -> None:
    """Median time against sequence length with its p10-p90 band, one line per impl and dtype."""
    frame = frame[(frame["execution_space"] == space) & (frame["direction"] == direction)]
    low, high = draw_lines(axes, frame, "time_median", scale=1e3, band=True)
    _draw_guides(axes, frame, low, high)
    axes.set_title(f"Time, {direction}, {space}")
    axes.set_ylabel("time per call  [ms]")


def draw_memory(axes: Axes, frame: pd.DataFrame, direction: str) -> None:
    """Peak activation and workspace bytes against sequence length, with the saving of flash at each length."""
    frame = frame[frame["direction"] == direction]
    frame = frame[frame["execution_space"] == frame["execution_space"].iloc[0]]  # the first that has the direction
    low, high = draw_lines(axes, frame, "working_bytes", scale=2.0**-20, band=False)
    _draw_guides(axes, frame, low, high)
    _print_reductions(axes, memory_reduction(frame))
    axes.set_title(f"Activations + workspace, {direction}")
    axes.set_ylabel("peak memory  [MiB]")


def draw_breakdown(axes: Axes, table: pd.DataFrame) -> None:
    """Stacked bars of the time in each block, with the share of time outside all blocks, and a ring where noise decides."""
    positions = _bar_positions(table)
    left = np.zeros(len(table))
    for index, block in enumerate(table.columns):
        unattributed = block == UNATTRIBUTED
        width = table[block].fillna(0).to_numpy() * 1e3
        colour = OWN_COLOUR if unattributed else BLOCK_COLOURS[index % len(BLOCK_COLOURS)]
        axes.barh(
            positions,
            width,
            left=left,
            height=0.78,
            color=colour,
            edgecolor="white",
            linewidth=0.8,
            label=block,
        )
        left += width
    disturbed = np.array([row in table.attrs["noisy"] for row in table.index])
    axes.plot(left[disturbed], positions[disturbed], **NOISY)
    for y, end, words in zip(positions, left, _bar_notes(table, left / 1e3, disturbed)):
        axes.annotate(words, (end, y), xytext=(10, 0), textcoords="offset points", va="center", fontsize=9.5, color=GREY)
    axes.set_yticks(positions, [" ".join((direction, dtype, impl)) for direction, dtype, impl in table.index])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlim(0, left.max() * (1.35 if disturbed.any() else 1.2))  # room for the notes
    axes.set_xlabel("time per call, profiling pass with fences  [ms]")
    legend_rows = -(-len(table.columns) // 10)  # a panel is ten names wide
    axes.set_title(
        f"Where the time goes at sequence length {table.attrs['seq_len']}, {table.attrs['execution_space']}",
        pad=12 + 16 * legend_rows,
    )
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.005, 0.985),
        ncol=-(-len(table.columns) // legend_rows),
        fontsize=9.5,
        handlelength=1.0,
        columnspacing=1.2,
    )


def _bar_notes(table: pd.DataFrame, seconds: np.ndarray, disturbed: np.ndarray) -> list[str]:
    """What stands behind each bar."""
    notes = [["noise decides"] if noise else [] for noise in disturbed]
    if UNATTRIBUTED in table:
        for note, share in zip(notes, table[UNATTRIBUTED].fillna(0).to_numpy() / seconds):
            note.insert(0, f"{100 * share:.1f} % un-attributed")
    return [", ".join(note) for note in notes]


def _time_rows(frame: pd.DataFrame) -> list[Row]:
    return [
        {
            "kind": "time",
            "height": _ROW_HEIGHT,
            "panels": [lambda axes, d=d, s=space: draw_time(axes, frame, s, d) for d in cases["direction"].unique()],
        }
        for space, cases in frame.groupby("execution_space", sort=False)
    ]


def _memory_rows(frame: pd.DataFrame) -> list[Row]:
    if "working_bytes" not in frame or not (frame["working_bytes"] > 0).any():
        return []
    directions = list(frame["direction"].unique())
    panels = [lambda axes, d=d: draw_memory(axes, frame, d) for d in directions]
    return [{"kind": "memory", "height": _ROW_HEIGHT, "panels": panels}]


def _breakdown_rows(groups: Groups, frame: pd.DataFrame) -> list[Row]:
    table = breakdown(groups, frame)
    if table.empty:
        return []
    height = _BAR_HEIGHT * (len(table) + 5)
    return [{"kind": "breakdown", "height": height, "panels": [lambda axes: draw_breakdown(axes, table)]}]


def _treemap_rows(groups: Groups, frame: pd.DataFrame) -> list[Row]:
    """Of the profiled cases of the frame, the one that took longest."""
    if "regions" not in groups or "parent" not in groups["regions"]:
        return []
    regions = groups["regions"].to_dataframe()
    times = regions[regions["case"].isin(frame.index) & (regions["parent"] < 0)].groupby("case")["inclusive"].sum()
    if not (times > 0).any():
        return []
    case = times.idxmax()
    kernels = groups["kernels"].to_dataframe() if "kernels" in groups else pd.DataFrame({"case": []})
    root = tree_of(regions[regions["case"] == case], kernels[kernels["case"] == case])
    words = [str(frame.at[case, name]) for name in ("direction", "dtype", "impl", "execution_space") if name in frame]
    which = f"{' '.join(words)}, sequence length {frame.at[case, 'seq_len']}"
    if noisy(frame)[case]:
        which += "; noise decides its time"
    title = "The case that takes longest, by region and kernel"
    blocks = [name for name in breakdown(groups, frame) if name != UNATTRIBUTED]
    return [{"kind": "treemap", "height": 5.0, "panels": [lambda axes: draw_treemap(axes, root, title, which, blocks)]}]


def _compose(groups: Groups, frame: pd.DataFrame, rows: list[Row], which: str) -> Figure:
    height = sum(row["height"] for row in rows) + _MARGIN_TOP + _MARGIN_BOTTOM
    figure = plt.figure(figsize=(_WIDTH, height))
    bands = figure.subfigures(
        len(rows) + 2, 1, height_ratios=[_MARGIN_TOP, *(r["height"] for r in rows), _MARGIN_BOTTOM]
    )
    for band, row in zip(bands[1:-1], rows):
        all_axes = band.subplots(1, len(row["panels"]), squeeze=False)[0]
        bars = row["kind"] == "breakdown"
        left, above = (0.17, 0.75) if bars else (0.075, 0.42)
        bottom, top = 0.62 / row["height"], 1 - above / row["height"]
        right = 0.86 if row["kind"] == "roofline" else 0.985  # its legend is beside it
        band.subplots_adjust(left=left, right=right, bottom=bottom, top=top, wspace=0.2)
        for axes, draw in zip(all_axes, row["panels"]):
            draw(axes)
        if len(all_axes) > 1:
            _share_y(all_axes)
    _title(bands[0], groups, frame, rows, which)
    origin = bands[-1].text(0.5, 0.5, run_label(groups), ha="center", va="center", fontsize=9.5, color=GREY, parse_math=False)
    shrink(origin, 0.98 * _WIDTH)
    return figure


def _title(band: SubFigure, groups: Groups, frame: pd.DataFrame, rows: list[Row], which: str) -> None:
    first = frame.iloc[0]
    name = title_of(groups, "layer sweep")
    facts = source_facts(groups) + [
        f"{key} {first[column]}"
        for key, column in (
            ("batch", "batch"),
            ("hidden size", "hidden_size"),
            ("heads", "num_attention_heads"),
            ("key/value heads", "num_key_value_heads"),
            ("head dim", "head_dim"),
            ("causal", "causal"),
            ("window", "window"),
        )
        if column in frame
    ] + ([which] if which else [])
    title = band.text(0.02, 0.86, name, fontsize=16, fontweight="bold", va="top", parse_math=False)
    what = band.text(0.02, 0.50, ", ".join(facts), fontsize=10.5, color=GREY, va="top", parse_math=False)
    for text in (title, what):
        shrink(text, 0.96 * _WIDTH)
    handles: list[Any] = [
        Line2D([], [], color=IMPL_COLOURS.get(impl, OTHER_COLOUR), lw=3, label=impl)
        for impl in frame["impl"].unique()
    ]
    for dtype in frame["dtype"].unique():
        line, marker = DTYPE_STYLES.get(dtype, OTHER_STYLE)
        handles.append(Line2D([], [], color="black", ls=line, marker=marker, mfc="white", label=dtype))
    handles.append(Line2D([], [], color=GREY, lw=0.9, ls=":", label="∝ S and ∝ S²"))
    if any(row["kind"] == "time" for row in rows):
        handles.append(Patch(color=GREY, alpha=0.3, label="p10–p90"))
    if noisy(frame).any():
        handles.append(Line2D([], [], **NOISY, label="noise decides"))
    if (~np.isfinite(frame["time_median"])).any():
        handles.append(Line2D([], [], color="black", ls="", marker="x", label="did not run"))
    legend = band.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.012, -0.04), ncol=len(handles), handlelength=2.4
    )
    wide = legend.get_window_extent().width / band.dpi
    if wide > 0.97 * _WIDTH:
        legend.remove()
        band.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0.012, -0.04), ncol=len(handles), handlelength=2.4,
            fontsize=_FONT_SIZE * 0.97 * _WIDTH / wide,
        )  # fmt: skip


def _draw_guides(axes: Axes, frame: pd.DataFrame, low: float, high: float) -> None:
    """Slopes of S and S² through the panel's lowest and highest value at its longest sequence."""
    if not high > 0:
        return
    lengths = np.array(sorted(frame["seq_len"].unique()), dtype=float)
    for power, end, name in ((1, low, "S"), (2, high, "S²")):
        anchor = 0 if power == 1 else -1
        values = end * (lengths / lengths[anchor]) ** power * (0.6 if power == 1 else 1.7)
        axes.plot(lengths, values, color=GREY, lw=0.9, ls=":", zorder=1, label=f"guide {name}")
        axes.annotate(
            f"∝ {name}",
            (lengths[-1], values[-1]),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=GREY,
        )
    # The names of dtypes stand right of the last length: a share of the width, however many lengths there are.
    axes.set_xlim(lengths[0] / max(1.25, (lengths[-1] / lengths[0]) ** 0.1), lengths[-1] * max(1.45, (1.25 * lengths[-1] / lengths[0]) ** 0.28))


def _print_reductions(axes: Axes, reductions: pd.DataFrame) -> None:
    """One line of text per dtype at the foot of the panel: the saving of flash at each length."""
    dtypes = list(reductions["dtype"].unique())
    if not dtypes:
        return
    low, high = axes.get_ylim()
    named = lengths_with_room(axes, sorted(reductions["seq_len"].unique()), letter=0.1)
    axes.set_ylim(low / (high / low) ** (0.075 * (len(dtypes) + 1)), high)
    for row, dtype in enumerate(reversed(dtypes)):
        height = 0.03 + 0.065 * row
        axes.text(0.99, height, dtype, transform=axes.transAxes, ha="right", fontsize=9.5, color=GREY)
        for _, found in reductions[(reductions["dtype"] == dtype) & reductions["seq_len"].isin(named)].iterrows():
            axes.text(
                found["seq_len"],
                height,
                _percent(found["reduction"]),
                transform=axes.get_xaxis_transform(),
                ha="center",
                fontsize=9.5,
                fontweight="bold",
                color=IMPL_COLOURS["flash"],
            )
    axes.text(
        0.01,
        0.03 + 0.065 * len(dtypes),
        "flash against standard",
        transform=axes.transAxes,
        fontsize=9.5,
        color=IMPL_COLOURS["flash"],
    )


def _percent(reduction: float) -> str:
    percent = round(-100 * reduction)
    return "0 %" if percent == 0 else f"{percent:+d} %".replace("-", "−")


def _share_y(all_axes: np.ndarray) -> None:
    limits = [axes.get_ylim() for axes in all_axes if len(axes.get_yticks())]
    for axes in all_axes if limits else []:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _bar_positions(table: pd.DataFrame) -> np.ndarray:
    """Bars of one direction and dtype touch, and a gap sets them off from the next."""
    groups = [key[:2] for key in table.index]
    gaps = np.cumsum([0] + [0.45 if groups[i] != groups[i - 1] else 0 for i in range(1, len(groups))])
    return np.arange(len(table)) + gaps
