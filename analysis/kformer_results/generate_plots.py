# SPDX-License-Identifier: MIT
"""Plots of generations: time of each new token, rates of prompts, log-probabilities."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from .plots import RC
from .reader import Groups, ResultFileError
from .series import run_label
from .style import BLOCK_COLOURS, GREY, IMPL_COLOURS

_MOST_LINES = 24
_MOST_NAMED = 8


def save_generate_plot(groups: Groups, out: str | Path) -> list[Path]:
    """Plots a file of kind `generate` that open_results read; returns the path of the PNG file.

    Raises ResultFileError if there is no case.
    """
    if "cases" not in groups or groups["cases"].sizes.get("case", 0) == 0:
        raise ResultFileError("the file has no cases: the run stopped before its first generation was finished")
    panels = [draw_rates]
    if {"generations", "tokens"} <= set(groups) and {"time", "log_probability"} <= set(groups["tokens"]):
        panels += [draw_latency] if np.isfinite(groups["tokens"]["time"]).any() else []
        panels += [draw_log_probability] if np.isfinite(groups["tokens"]["log_probability"]).any() else []
    cases = groups["cases"].sizes["case"]
    heights = [1.4 + 0.34 * min(cases, _MOST_LINES), *[3.4] * (len(panels) - 1)]
    with plt.rc_context(RC):
        figure, all_axes = plt.subplots(
            len(panels), 1, figsize=(11, sum(heights) + 0.4), height_ratios=heights, layout="constrained", squeeze=False
        )
        for axes, draw in zip(all_axes[:, 0], panels):
            draw(axes, groups)
        figure.suptitle(run_label(groups), fontsize=10, color=GREY, parse_math=False)
        figure.savefig(out, dpi=150)
        plt.close(figure)
    return [Path(out)]


def draw_rates(axes: Axes, groups: Groups) -> None:
    """Tokens per second of each case, before and after the first new token."""
    frame = groups["cases"].to_dataframe().head(_MOST_LINES)
    positions = np.arange(len(frame))
    for name, label, colour in (
        ("prefill_rate", "prompt", IMPL_COLOURS["standard"]),
        ("decode_rate", "new tokens", IMPL_COLOURS["flash"]),
    ):
        axes.plot(frame[name], positions, "o", color=colour, mfc="white", mew=2, ms=8, label=label)
    for y, row in enumerate(frame.itertuples()):
        if row.status not in ("ok", "unchecked"):
            axes.text(0.01, y, row.status, va="center", fontsize=9, color=GREY, transform=axes.get_yaxis_transform())
    names = [f"{row.prompt} x {row.batch}, repeat {row.repeat}" for row in frame.itertuples()]
    axes.set_yticks(positions, names, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(frame) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("tokens / s, all rows together")
    total = groups["cases"].sizes["case"]
    axes.set_title("Rates" if total <= _MOST_LINES else f"Rates, the first {_MOST_LINES} of {total} cases")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def draw_latency(axes: Axes, groups: Groups) -> None:
    """Time of the first new token of each case, and from each new token to the next; of the row with the most tokens."""
    longest: dict[int, tuple[str, pd.DataFrame]] = {}
    for name, tokens in _new_tokens(groups):
        case = int(groups["generations"]["case"].sel(generation=tokens["generation"].iloc[0]))
        if len(tokens) > len(longest.get(case, ("", pd.DataFrame()))[1]):
            longest[case] = (name.rsplit(", row", 1)[0], tokens)
    for number, (name, tokens) in enumerate(longest.values()):
        times = tokens["time"].to_numpy()
        steps = np.diff(times, prepend=0.0)
        colour = BLOCK_COLOURS[number % len(BLOCK_COLOURS)]
        label = name if number < _MOST_NAMED else "_"  # a line whose name begins so is not in the legend
        axes.plot(np.arange(1, len(steps) + 1), 1e3 * steps, color=colour, lw=1.3, marker=".", label=label)
    axes.set_yscale("log")
    axes.set_title("Latency: the first new token, then from token to token")
    axes.set_xlabel("new token")
    axes.set_ylabel("time  [ms]")
    _legend(axes)


def draw_log_probability(axes: Axes, groups: Groups) -> None:
    """Mean negative log-probability of the new tokens up to each of them."""
    for number, (name, tokens) in enumerate(_new_tokens(groups)):
        surprise = -tokens["log_probability"].to_numpy()
        mean = np.cumsum(np.nan_to_num(surprise)) / np.maximum(np.cumsum(np.isfinite(surprise)), 1)
        colour = BLOCK_COLOURS[number % len(BLOCK_COLOURS)]
        axes.plot(np.arange(1, len(mean) + 1), mean, color=colour, lw=1.3, label=name if number < _MOST_NAMED else "_")
    axes.set_title("Mean surprise of the new tokens so far")
    axes.set_xlabel("new token")
    axes.set_ylabel("nats per token")
    _legend(axes)


def _new_tokens(groups: Groups) -> list[tuple[str, pd.DataFrame]]:
    """Name and new tokens of each generation that has some."""
    generations = groups["generations"].to_dataframe()
    tokens = groups["tokens"].to_dataframe()
    tokens = tokens[tokens["new"] == "yes"]
    found = []
    for number, rows in tokens.groupby("generation", sort=True):
        one = generations.loc[number]
        found.append((f"{one['prompt']}, row {one['row']}", rows.sort_values("position")))
    return found[:_MOST_LINES]


def _legend(axes: Axes) -> None:
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
