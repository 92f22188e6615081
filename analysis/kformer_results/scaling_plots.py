# SPDX-License-Identifier: MIT
"""Plots of a scaling study: efficiency and share of communication by grid, measured and simulated."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from .heading import add_heading, constant_facts, model_facts
from .plots import RC
from .reader import Groups, ResultFileError
from .series import noisy
from .style import BLOCK_COLOURS, IMPL_COLOURS, NOISY, OWN_COLOUR

_FACTS = {"op": "{}", "dtype": "{}", "execution_space": "{}", "zero": "ZeRO stage {}"}
_MOST_LETTERS = 60  # of the names of all grids side by side
_MEASURED, _SIMULATED = IMPL_COLOURS["flash"], IMPL_COLOURS["standard"]


def save_scaling_plots(groups: Groups, out: str | Path) -> list[Path]:
    """Plots a file of kind `scaling` that open_results read; returns the path of the PNG file.

    Raises ResultFileError if no grid ran and none was simulated.
    """
    cases = groups["cases"].drop_dims("repeat", errors="ignore").to_dataframe() if "cases" in groups else pd.DataFrame({"time_median": []})
    ran = cases[np.isfinite(cases["time_median"].astype(float))]
    simulated = groups["simulation/grids"].to_dataframe() if "simulation/grids" in groups else pd.DataFrame({"case": []})
    if ran.empty and simulated.empty:
        raise ResultFileError("no grid ran, and none was simulated")
    sent = groups["communication"].to_dataframe() if "communication" in groups else pd.DataFrame()
    alone = simulated[simulated["case"] < 0]
    panels = [lambda axes: draw_efficiency(axes, ran, simulated[simulated["case"] >= 0])] if len(ran) else []
    if len(sent):
        panels.append(lambda axes: draw_communication(axes, ran, sent))
    if len(alone):
        panels.append(lambda axes: draw_simulated(axes, alone))
    with plt.rc_context(RC):
        figure, all_axes = plt.subplots(len(panels), 1, figsize=(10, 3.6 * len(panels)), layout="constrained", squeeze=False)
        for axes, draw in zip(all_axes[:, 0], panels):
            draw(axes)
        add_heading(figure, groups, model_facts(groups) + _facts(cases, ran))
        figure.savefig(out, dpi=150)
        plt.close(figure)
    return [Path(out)]


def _facts(cases: pd.DataFrame, ran: pd.DataFrame) -> list[str]:
    """What the cases have in common, and the tokens of those that ran: others have 0."""
    return constant_facts(cases, _FACTS) + constant_facts(ran, {"tokens": "{} tokens"})


def draw_efficiency(axes: Axes, ran: pd.DataFrame, simulated: pd.DataFrame) -> None:
    """Bars of the measured efficiency of each grid, a ring where noise decides its time, and what its simulation says."""
    positions = np.arange(len(ran))
    axes.bar(positions, 100 * ran["efficiency"], width=0.6, color=_MEASURED, label="measured")
    if (disturbed := noisy(ran).to_numpy()).any():
        axes.plot(positions[disturbed], 100 * ran["efficiency"][disturbed], **NOISY, label="noise decides")
    if len(simulated):
        by_case = simulated.set_index("case")["efficiency"].reindex(ran.index)
        axes.plot(positions, 100 * by_case, "D", color=_SIMULATED, label="simulated")
    _name_grids(axes, ran)
    axes.set_ylabel("tokens per second and rank  [%]")
    axes.set_title(f"Efficiency beside the first grid, {ran['scaling'].iloc[0]} scaling")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def draw_communication(axes: Axes, ran: pd.DataFrame, sent: pd.DataFrame) -> None:
    """Stacked bars of the mean share of a rank's time in the exchanges of each region, waits included."""
    shares = sent.assign(what=sent["operation"] + ", " + sent["region"]).groupby(["case", "what"])["share"].sum().unstack(fill_value=0)
    shares = shares.reindex(ran.index, fill_value=0).div(ran["ranks"], axis=0)
    shares = shares[shares.mean().sort_values(ascending=False).index]
    if (few := len(BLOCK_COLOURS)) < len(shares.columns):  # one colour would mean two things
        shares = shares.iloc[:, :few].assign(others=shares.iloc[:, few:].sum(axis=1))
    bottom = np.zeros(len(ran))
    for what, colour in zip(shares, [*BLOCK_COLOURS, OWN_COLOUR]):
        height = 100 * shares[what].to_numpy()
        axes.bar(np.arange(len(ran)), height, bottom=bottom, width=0.6, label=what, color=colour)
        bottom += height
    _name_grids(axes, ran)
    axes.set_ylabel("time in exchanges  [%]")
    axes.set_title("Communication, with the time in which ranks waited for others")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def draw_simulated(axes: Axes, alone: pd.DataFrame) -> None:
    """The efficiency of grids that were simulated on the machine of the deck, one line for each way to divide a model."""
    for number, ((context, tensor, stages), frame) in enumerate(alone.groupby(["context", "tensor", "pipeline"])):
        frame = frame.sort_values("ranks")
        colour, marker = BLOCK_COLOURS[number % len(BLOCK_COLOURS)], "Dosv^"[number // len(BLOCK_COLOURS) % 5]
        label = f"context {context}, tensor {tensor}" + (f", pipeline {stages}" if stages > 1 else "")
        axes.plot(frame["ranks"], 100 * frame["efficiency"], marker, ls="--", color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ranks")
    axes.set_ylabel("tokens per second and rank  [%]")
    axes.set_title("Simulated, not measured: efficiency on the machine of the deck")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def _name_grids(axes: Axes, ran: pd.DataFrame) -> None:
    crowded = ran["grid"].str.len().sum() > _MOST_LETTERS
    axes.set_xticks(np.arange(len(ran)), ran["grid"], rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.set_xlabel("ranks along data x context x tensor x pipeline")
    axes.grid(False, axis="x")
