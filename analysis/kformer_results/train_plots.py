# SPDX-License-Identifier: MIT
"""Plots of a training: loss with evaluations, rewards, learning rate, gradient norm, speed, memory, checkpoints, a profile."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .heading import add_heading, constant_facts, model_facts
from .plots import RC
from .reader import Groups, ResultFileError
from .style import BLOCK_COLOURS, GREY, IMPL_COLOURS, log_ticks
from .treemap import draw_treemap, tree_of

_PARTS = 50  # the running mean of the loss is over a part of the steps
_MOST_REGIONS = 16
_LINE, _MARKS = IMPL_COLOURS["flash"], IMPL_COLOURS["standard"]


def save_train_plots(groups: Groups, out: str | Path) -> list[Path]:
    """Plots a file of kind `train` that open_results read; returns the paths of the PNG files.

    Raises ResultFileError if the file has no steps.
    """
    if "steps" not in groups or groups["steps"].sizes.get("step", 0) == 0:
        raise ResultFileError("the file has no steps: the run stopped before its first step was finished")
    panels = [draw_loss, draw_learning_rate, draw_norm, draw_speed]
    if "margin" in groups["steps"]:
        panels[1:1] = [draw_rewards, draw_accuracy]
    if "reward" in groups["steps"]:
        panels[:1] = [draw_reward, draw_completions, draw_shares, draw_loss]
        if np.asarray(groups["steps"]["kl"]).any():
            panels.insert(3, draw_divergence)
    if (np.asarray(groups["steps"]["loss_scale"]) != 1).any():
        panels.append(draw_loss_scale)
    for group, panel in (("memory/timeline", draw_memory), ("memory/bookings", draw_bookings), ("checkpoints", draw_waits),
                         ("regions", draw_profile)):
        if group in groups and all(groups[group].sizes.values()):
            panels.append(panel)
    if draw_profile in panels and {"parent", "inclusive"} <= set(groups["regions"]):
        panels.append(draw_profile_areas)
    with plt.rc_context(RC):
        figure, all_axes = plt.subplots(
            len(panels), 1, figsize=(10, 3.1 * len(panels)), layout="constrained"
        )
        for axes, draw in zip(all_axes, panels):
            draw(axes, groups)
        add_heading(figure, groups, _facts(groups))
        figure.savefig(out, dpi=150)
        plt.close(figure)
    return [Path(out)]


def _facts(groups: Groups) -> list[str]:
    case = groups["cases"].to_dataframe() if "cases" in groups else pd.DataFrame()
    run = {"parameters": "{:,} parameters", "dtype": "{}", "execution_space": "{}", "recompute": "recompute {}"}
    return model_facts(groups) + constant_facts(case, run)


def smoothed(values: Sequence[float] | xr.DataArray) -> np.ndarray:
    """The running mean of a loss, without the bias of its beginning; numbers that are not finite do not count."""
    mean, weight, result = 0.0, 0.0, []
    newest = min(1.0, _PARTS / max(len(values), 1))
    for value in np.asarray(values, dtype=float):
        if np.isfinite(value):
            mean += newest * (value - mean)
            weight += newest * (1 - weight)
        result.append(mean / weight if weight else np.nan)
    return np.array(result)


def draw_loss(axes: Axes, groups: Groups) -> None:
    """Loss of each step, its running mean, and the evaluations."""
    steps = groups["steps"]
    axes.plot(steps["step"], steps["loss"], color=_LINE, lw=0.8, alpha=0.35, label="step")
    axes.plot(steps["step"], smoothed(steps["loss"]), color=_LINE, lw=1.9, label="running mean")
    if "evaluations" in groups:
        found = groups["evaluations"]
        axes.plot(found["step"], found["loss"], color=_MARKS, marker="o", mfc="white", lw=1.5, label="evaluation")
    _finish(axes, "Loss", "" if "margin" in steps or "reward" in steps else "nats per token")
    axes.legend()


def draw_rewards(axes: Axes, groups: Groups) -> None:
    """Mean rewards of chosen and rejected completions in each step, and the margins of evaluations."""
    steps = groups["steps"]
    axes.plot(steps["step"], steps["chosen_reward"], color=_LINE, lw=1.5, label="chosen")
    axes.plot(steps["step"], steps["rejected_reward"], color=GREY, lw=1.5, label="rejected")
    if "evaluations" in groups:
        found = groups["evaluations"]
        axes.plot(
            found["step"], found["margin"], color=_MARKS, marker="o", mfc="white", lw=1.5, label="margin, evaluation"
        )
    _finish(axes, "Rewards", "nats")
    axes.legend()


def draw_accuracy(axes: Axes, groups: Groups) -> None:
    """The share of pairs whose chosen completion has the higher reward."""
    steps = groups["steps"]
    axes.plot(steps["step"], steps["accuracy"], color=_LINE, lw=0.9, label="step")
    if "evaluations" in groups:
        found = groups["evaluations"]
        axes.plot(found["step"], found["accuracy"], color=_MARKS, marker="o", mfc="white", lw=1.5, label="evaluation")
    axes.set_ylim(-0.05, 1.05)
    _finish(axes, "Accuracy", "")
    axes.legend()


def draw_reward(axes: Axes, groups: Groups) -> None:
    """Mean reward of the completions of each step, with several rewards also each of them, and that of evaluations."""
    steps = groups["steps"]
    axes.plot(steps["step"], steps["reward"], color=_LINE, lw=0.8, alpha=0.35, label="step")
    axes.plot(steps["step"], smoothed(steps["reward"]), color=_LINE, lw=1.9, label="running mean")
    for k, name in enumerate(name for name in steps if name.startswith("reward_")):
        colour = BLOCK_COLOURS[k % len(BLOCK_COLOURS)]
        axes.plot(steps["step"], smoothed(steps[name]), color=colour, lw=1.2, ls="--", label=name)
    if "evaluations" in groups:
        found = groups["evaluations"]
        axes.plot(found["step"], found["reward"], color=_MARKS, marker="o", mfc="white", lw=1.5, label="evaluation")
    _finish(axes, "Mean reward", "")
    axes.legend()


def draw_completions(axes: Axes, groups: Groups) -> None:
    """Mean length of the completions of each step."""
    axes.plot(groups["steps"]["step"], groups["steps"]["completion_tokens"], color=_LINE, lw=0.9)
    axes.set_ylim(bottom=0)
    _finish(axes, "Length of completions", "tokens")


def draw_shares(axes: Axes, groups: Groups) -> None:
    """Shares of truncated completions, of groups with equal rewards, and of clipped tokens; running means."""
    steps = groups["steps"]
    shares = {"truncated": "truncated completions", "equal_groups": "groups with equal rewards",
              "clip_low": "tokens clipped below", "clip_high": "tokens clipped above"}  # fmt: skip
    for k, (name, label) in enumerate(shares.items()):
        axes.plot(steps["step"], smoothed(steps[name]), color=BLOCK_COLOURS[k], lw=1.5, label=label)
    axes.set_ylim(-0.05, 1.05)
    _finish(axes, "Shares", "")
    axes.legend()


def draw_divergence(axes: Axes, groups: Groups) -> None:
    """Estimated KL divergence from the reference in each step."""
    axes.plot(groups["steps"]["step"], groups["steps"]["kl"], color=_LINE, lw=0.9)
    _finish(axes, "KL divergence from the reference", "nats per token")


def draw_learning_rate(axes: Axes, groups: Groups) -> None:
    """Learning rate of each step."""
    axes.plot(groups["steps"]["step"], groups["steps"]["learning_rate"], color=_LINE, lw=1.9)
    _finish(axes, "Learning rate", "")


def draw_norm(axes: Axes, groups: Groups) -> None:
    """Gradient norm of each step, and the steps that were skipped."""
    steps = groups["steps"]
    axes.plot(steps["step"], steps["gradient_norm"], color=_LINE, lw=0.9, marker=".", ms=3)
    axes.set_yscale("log", nonpositive="mask")  # without rewards there are no gradients
    skipped = np.asarray(steps["step"])[np.asarray(steps["skipped"]) == "yes"]
    finite = np.asarray(steps["gradient_norm"])[np.isfinite(steps["gradient_norm"]) & (steps["gradient_norm"] > 0)]
    if len(finite):
        log_ticks(axes, finite.min(), finite.max())
    _finish(axes, "Gradient norm, before clipping", "")
    if len(skipped):
        axes.plot(
            skipped, np.full(len(skipped), 1.0), "x", color=_MARKS, transform=axes.get_xaxis_transform(),
            clip_on=False, label="skipped",
        )  # fmt: skip
        axes.legend()


def draw_speed(axes: Axes, groups: Groups) -> None:
    """Target tokens per second of each step."""
    steps = groups["steps"]
    axes.plot(steps["step"], steps["tokens"] / steps["time"], color=_LINE, lw=0.9)
    axes.set_ylim(bottom=0)
    _finish(axes, "Speed", "target tokens / s")


def draw_loss_scale(axes: Axes, groups: Groups) -> None:
    """Loss scale of each step."""
    steps = groups["steps"]
    axes.step(steps["step"], steps["loss_scale"], where="mid", color=_LINE, lw=1.9)
    axes.set_yscale("log", base=2)
    _finish(axes, "Loss scale", "")


def draw_waits(axes: Axes, groups: Groups) -> None:
    """Seconds that the training waited for each checkpoint of this run."""
    found = groups["checkpoints"]
    axes.vlines(found["step"], 0, found["waited"], color=_LINE, lw=1.9)
    axes.plot(found["step"], found["waited"], color=_LINE, marker="o", mfc="white", ls="")
    axes.update_datalim([(step, 0) for step in np.asarray(groups["steps"]["step"])])  # as in the panels above
    axes.autoscale_view()
    axes.set_ylim(bottom=0)
    _finish(axes, "Wait for checkpoints", "s")


def draw_profile(axes: Axes, groups: Groups) -> None:
    """Time of one step by region, without the regions inside it; the longest."""
    frame = groups["regions"].to_dataframe()
    frame = frame[frame["exclusive"] > 0].nlargest(_MOST_REGIONS, "exclusive")
    passes = list(dict.fromkeys(path.split("/")[0] for path in frame["path"]))
    colours = [BLOCK_COLOURS[passes.index(path.split("/")[0]) % len(BLOCK_COLOURS)] for path in frame["path"]]
    positions = np.arange(len(frame))
    axes.barh(positions, 1e3 * frame["exclusive"], color=colours, height=0.75)
    axes.set_yticks(positions, frame["path"], fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_title("Profile of one step")
    axes.set_xlabel("time, profiling pass with fences  [ms]")


def draw_profile_areas(axes: Axes, groups: Groups) -> None:
    """The same as areas, divided by kernels."""
    kernels = groups["kernels"].to_dataframe() if "kernels" in groups else None
    draw_treemap(axes, tree_of(groups["regions"].to_dataframe(), kernels), "Profile of one step, by region and kernel")


def draw_bookings(axes: Axes, groups: Groups) -> None:
    """Every change of the booked bytes over the time of the run, by class, stacked."""
    bookings = groups["memory/bookings"]
    seconds = np.asarray(bookings["time"], dtype=float)
    booked = np.asarray(bookings["bytes"], dtype=float) / 2**20
    for_class = dict(zip([str(name) for name in np.asarray(bookings["memory_class"])], booked.T))
    used = {name: values for name, values in for_class.items() if values.any()}
    axes.stackplot(
        seconds, list(used.values()), labels=list(used), step="post", alpha=0.85,
        colors=[BLOCK_COLOURS[list(for_class).index(name) % len(BLOCK_COLOURS)] for name in used],
    )  # fmt: skip
    axes.set_ylim(0, 1.3 * axes.dataLim.ymax)  # room for the legend
    _finish(axes, "Memory over time", "MiB", "time  [s]")
    axes.legend(ncols=4, fontsize=9, loc="upper left")


def draw_memory(axes: Axes, groups: Groups) -> None:
    """Booked bytes by class, stacked, and the memory of the process."""
    timeline = groups["memory/timeline"]
    steps, bytes_ = np.asarray(timeline["step"]), np.asarray(timeline["bytes"], dtype=float) / 2**20
    used = [k for k in range(bytes_.shape[1]) if bytes_[:, k].any()]
    names = [str(name) for name in np.asarray(timeline["memory_class"])]
    axes.stackplot(
        steps,
        [bytes_[:, k] for k in used],
        labels=[names[k] for k in used],
        colors=[BLOCK_COLOURS[k % len(BLOCK_COLOURS)] for k in used],
        step="post",
        alpha=0.85,
    )
    resident = np.asarray(timeline["resident_bytes"], dtype=float) / 2**20
    if resident.any():
        axes.plot(steps, resident, color=GREY, ls="--", lw=1.5, label="process")
    axes.set_ylim(top=1.3 * axes.dataLim.ymax)  # room for the legend
    _finish(axes, "Memory", "MiB")
    axes.legend(ncols=4, fontsize=9, loc="upper left")


def _finish(axes: Axes, title: str, unit: str, along: str = "step") -> None:
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.set_xlabel(along)
    if along == "step":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
