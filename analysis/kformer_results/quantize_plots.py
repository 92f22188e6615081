# SPDX-License-Identifier: MIT
"""Plots of a quantised checkpoint: error of each tensor, bytes before and after."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from .heading import add_heading, source_facts
from .plots import RC
from .reader import Groups, ResultFileError
from .style import BLOCK_COLOURS, IMPL_COLOURS, OWN_COLOUR, shortened

_MOST_ROLES = 40


def save_quantize_plot(groups: Groups, out: str | Path) -> list[Path]:
    """Plots a file of kind `quantize` that open_results read; returns the path of the PNG file.

    Raises ResultFileError if no tensor was quantised.
    """
    if "tensors" not in groups:
        raise ResultFileError("the file has no tensors: the run did not finish")
    frame = groups["tensors"].drop_dims("axis", errors="ignore").to_dataframe()
    frame = frame[frame["quantized"] == "yes"].reset_index(drop=True)
    if frame.empty:
        raise ResultFileError("no tensor was quantised: there is nothing to draw")
    frame["role"] = [role(name) for name in frame["name"]]
    panels = [draw_errors, draw_range] + ([draw_bytes] if {"bytes_before", "bytes_after"} <= set(frame) else [])
    height = 1.6 + 0.3 * min(frame["role"].nunique(), _MOST_ROLES)
    with plt.rc_context(RC):
        figure, all_axes = plt.subplots(len(panels), 1, figsize=(11, len(panels) * height), layout="constrained")
        for axes, draw in zip(all_axes, panels):
            draw(axes, frame)
        add_heading(figure, groups, _facts(groups))
        figure.savefig(out, dpi=150)
        plt.close(figure)
    return [Path(out)]


def _facts(groups: Groups) -> list[str]:
    facts = source_facts(groups)
    bits = groups["totals"].attrs.get("bits_per_weight") if "totals" in groups else None
    return facts if bits is None else [*facts, f"{float(bits):.2f} bits per weight"]


def role(name: str) -> str:
    """The name of a tensor without the number of its layer: "model.layers.3.mlp.up_proj.weight" is "mlp.up_proj"."""
    parts = name.removesuffix(".weight").split(".")
    numbers = [k for k, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[numbers[-1] + 1 :] if numbers and numbers[-1] + 1 < len(parts) else parts)


def draw_errors(axes: Axes, frame: pd.DataFrame) -> None:
    """Relative error of each tensor, one row for each role; tensors of the same role differ by layer."""
    _dots(axes, frame, "rel_rms_err", "rms error / rms weight")
    _title(axes, frame, "Error of quantised tensors, a mark for each")


def draw_range(axes: Axes, frame: pd.DataFrame) -> None:
    """Largest error of a weight in each tensor."""
    _dots(axes, frame, "max_abs_err", "largest error of a weight")
    _title(axes, frame, "Largest errors")


def draw_bytes(axes: Axes, frame: pd.DataFrame) -> None:
    """Bytes of each role before and after."""
    sums = frame.groupby("role", sort=False)[["bytes_before", "bytes_after"]].sum().head(_MOST_ROLES) / 2**20
    positions = np.arange(len(sums))
    axes.barh(positions - 0.2, sums["bytes_before"], height=0.38, color=OWN_COLOUR, label="before")
    axes.barh(positions + 0.2, sums["bytes_after"], height=0.38, color=IMPL_COLOURS["flash"], label="after")
    _rows(axes, list(sums.index))
    axes.set_xlabel("MiB")
    _title(axes, frame, "Size")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _dots(axes: Axes, frame: pd.DataFrame, column: str, label: str) -> None:
    roles = list(frame["role"].unique())[:_MOST_ROLES]
    formats = list(frame["format_after"].unique())
    for number, name in enumerate(formats):
        rows = frame[(frame["format_after"] == name) & frame["role"].isin(roles) & (frame[column] > 0)]
        colour = BLOCK_COLOURS[number % len(BLOCK_COLOURS)]
        axes.plot(rows[column], [roles.index(r) for r in rows["role"]], "o", color=colour, mfc="none", label=name)
    _rows(axes, roles)
    axes.set_xlabel(label)
    axes.set_xlim(0, 1.05 * axes.dataLim.xmax if axes.dataLim.xmax > 0 else 1)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _title(axes: Axes, frame: pd.DataFrame, title: str) -> None:
    count = frame["role"].nunique()
    axes.set_title(title if count <= _MOST_ROLES else f"{title}, the first {_MOST_ROLES} of {count} roles")


def _rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [shortened(name) for name in names], parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
