# SPDX-License-Identifier: MIT
"""Plots of generations: rates of prompts and new tokens, time of each new token, log-probabilities."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .heading import add_heading, constant_facts, model_facts
from .plots import RC
from .reader import Groups, ResultFileError
from .series import noisy
from .style import BLOCK_COLOURS, GREY, IMPL_COLOURS, NOISY, log_ticks, shortened

_MOST_ROWS = 40
_MOST_LINES = len(BLOCK_COLOURS)  # a colour for each prompt
_FACTS = {
    "dtype": "{}", "execution_space": "{}", "batch": "batch {}", "kv_cache": "cache {}", "activations": "activations {}",
}  # fmt: skip
_OK = ("ok", "unchecked")


def save_generate_plot(groups: Groups, out: str | Path) -> list[Path]:
    """Plots a file of kind `generate` that open_results read; returns the path of the PNG file.

    Raises ResultFileError if there is no case.
    """
    if "cases" not in groups or groups["cases"].sizes.get("case", 0) == 0:
        raise ResultFileError("the file has no cases: the run stopped before its first generation was finished")
    frame = groups["cases"].to_dataframe()
    panels = []
    if {"generations", "tokens"} <= set(groups) and {"time", "log_probability"} <= set(groups["tokens"]):
        panels += [draw_latency] if np.isfinite(groups["tokens"]["time"]).any() else []
        panels += [draw_log_probability] if np.isfinite(groups["tokens"]["log_probability"]).any() else []
    heights = [1.1 + 0.3 * min(frame["prompt"].nunique(), _MOST_ROWS), *[3.4] * len(panels)]
    with plt.rc_context(RC):
        figure = plt.figure(figsize=(11, sum(heights)), layout="constrained")
        bands = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        left, right = bands[0].subplots(1, 2)
        draw_rates(left, frame, "prefill_rate")
        draw_rates(right, frame, "decode_rate")
        right.tick_params(labelleft=False)
        for band, draw in zip(bands[1:], panels):
            draw(band.subplots(), groups)
        add_heading(figure, groups, model_facts(groups) + constant_facts(frame, _FACTS))
        figure.savefig(out, dpi=150)
        plt.close(figure)
    return [Path(out)]


def draw_rates(axes: Axes, frame: pd.DataFrame, column: str) -> None:
    """Tokens per second of each prompt, a mark for each repeat, with a ring where noise decides; why there is none, where
    there is none.

    `column` is "prefill_rate", before the first new token, or "decode_rate", after it.
    """
    prompts = list(dict.fromkeys(frame["prompt"]))
    shown = prompts[:_MOST_ROWS]
    frame = frame[frame["prompt"].isin(shown)]
    rows = np.array([shown.index(prompt) for prompt in frame["prompt"]])
    colour = IMPL_COLOURS["standard" if column == "prefill_rate" else "flash"]
    axes.plot(frame[column], rows, "o", color=colour, mfc="none", mew=1.5, ms=7, clip_on=False)
    disturbed = noisy(frame).to_numpy()
    axes.plot(frame[column][disturbed], rows[disturbed], **NOISY)
    for prompt, cases in frame[~frame["status"].isin(_OK)].groupby("prompt"):
        status = ", ".join(dict.fromkeys(cases["status"]))
        axes.text(0.01, shown.index(prompt), status, va="center", fontsize=9, color=GREY, transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(shown)), [shortened(prompt) for prompt in shown], parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    highest = frame[column].max()
    axes.set_xlim(0, 1.06 * highest if highest > 0 else 1)  # with room for half a ring
    axes.set_xlabel("tokens / s, all rows together")
    title = "Rate of the prompt" if column == "prefill_rate" else "Rate of new tokens"
    if len(prompts) > len(shown):
        title += f", the first {len(shown)} of {len(prompts)} prompts"
    axes.set_title(title + (", a ring: noise decides" if disturbed.any() else ""))


def draw_latency(axes: Axes, groups: Groups) -> None:
    """Time of the first new token of each generation, and from each new token to the next; of the row with the most tokens."""
    longest: dict[int, tuple[str, pd.DataFrame]] = {}
    for name, case, tokens in _new_tokens(groups):
        if len(tokens) > len(longest.get(case, ("", pd.DataFrame()))[1]):
            longest[case] = (name, tokens)
    lines = [(name, 1e3 * np.diff(tokens["time"].to_numpy(), prepend=0.0)) for name, tokens in longest.values()]
    _draw_lines(axes, lines, "Latency: the first new token, then from token to token", "a line for each repeat")
    axes.set_yscale("log")
    log_ticks(axes, *axes.dataLim.intervaly)
    axes.set_ylabel("time  [ms]")


def draw_log_probability(axes: Axes, groups: Groups) -> None:
    """Mean negative log-probability of the new tokens up to each of them, a line for each row of a batch."""
    lines = []
    for name, _, tokens in _new_tokens(groups):
        surprise = -tokens["log_probability"].to_numpy()
        lines.append((name, np.cumsum(np.nan_to_num(surprise)) / np.maximum(np.cumsum(np.isfinite(surprise)), 1)))
    _draw_lines(axes, lines, "Mean surprise of the new tokens so far", "a line for each row of a batch")
    axes.set_ylabel("nats per token")


def _new_tokens(groups: Groups) -> list[tuple[str, int, pd.DataFrame]]:
    """Name of the prompt with its adapter, case, and new tokens of each generation that has some."""
    generations = groups["generations"].to_dataframe()
    tokens = groups["tokens"].to_dataframe()
    tokens = tokens[tokens["new"] == "yes"]
    found = []
    for number, rows in tokens.groupby("generation", sort=True):
        one = generations.loc[number]
        name = shortened(str(one["prompt"]))
        if adapter := str(one.get("adapter", "")):
            name += f"  ({shortened(adapter)})"
        found.append((name, int(one["case"]), rows.sort_values("position")))
    return found


def _draw_lines(axes: Axes, lines: list[tuple[str, np.ndarray]], title: str, several: str) -> None:
    """Values of new tokens: lines of one name have one colour and one entry in the legend; `several` says what they are."""
    names = list(dict.fromkeys(name for name, _ in lines))
    shown = names[:_MOST_LINES]
    for number, name in enumerate(shown):
        colour = BLOCK_COLOURS[number]
        # A line whose name begins with "_" is not in the legend.
        for label, values in zip([name] + ["_"] * len(lines), (values for of, values in lines if of == name)):
            axes.plot(np.arange(1, len(values) + 1), values, color=colour, lw=1.2, marker=".", ms=4, label=label)
    notes = [several] if len(lines) > len(names) else []
    if len(names) > len(shown):
        notes.append(f"the first {len(shown)} of {len(names)} prompts")
    axes.set_title(title)
    axes.set_xlabel("new token")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=9, title="\n".join(notes), title_fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
