# SPDX-License-Identifier: MIT
"""Plot of a memory plan: bytes of each case by class, against what there is."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from .heading import add_heading, constant_facts, model_facts
from .plots import RC
from .reader import Groups, ResultFileError
from .style import BLOCK_COLOURS, GREY, IMPL_COLOURS
from .tables import bytes_in_space

CLASSES = ("weights", "gradients", "optimizer", "kv_cache", "activations", "workspace", "communication", "io")
_MOST_CASES = 100
# Columns that say what a case is, with the words for them.
_FACTS = {
    "execution_space": "{}", "op": "{}", "dtype": "{}", "weights": "weights {}", "batch": "batch {}", "context": "context {}",
    "prefill_chunk": "chunk {}",
}  # fmt: skip
# Weights of the dtype and no chunks go without saying.
_USUAL = {"weights": "same", "prefill_chunk": 0}


def save_memory_plot(groups: Groups, out: str | Path) -> list[Path]:
    """Plots a file of kind `memory_plan` that open_results read; returns the path of the PNG file.

    Shows the first hundred cases. Raises ResultFileError if there is no case.
    """
    if "cases" not in groups or groups["cases"].sizes.get("case", 0) == 0:
        raise ResultFileError("the file has no cases: the plan stopped before its first case was counted")
    frame = groups["cases"].to_dataframe()
    shown = frame.head(_MOST_CASES)
    with plt.rc_context(RC):
        figure, axes = plt.subplots(figsize=(12, 1.8 + 0.32 * len(shown)), layout="constrained")
        draw_plan(axes, shown)
        if len(frame) > len(shown):
            axes.set_title(f"Memory, the first {len(shown)} of {len(frame)} cases")
        add_heading(figure, groups, model_facts(groups) + _facts(shown))
        figure.savefig(out, dpi=150)
        plt.close(figure)
    return [Path(out)]


def _facts(frame: pd.DataFrame) -> list[str]:
    """What the cases have in common, but what goes without saying."""
    facts = constant_facts(frame, {name: text for name, text in _FACTS.items() if (frame[name] != _USUAL.get(name)).any()})
    available = frame["available_bytes"].dropna().unique()
    return facts + ([f"{available[0] / 2**30:.4g} GiB available"] if len(available) == 1 else [])


def draw_plan(axes: Axes, frame: pd.DataFrame) -> None:
    """A bar for each case: the peaks of the classes, the peak of all together, what of it lies in the memory of the execution
    space, where that differs, and how much of that memory is available."""
    positions = np.arange(len(frame))
    left = np.zeros(len(frame))
    for name, colour in zip(CLASSES, BLOCK_COLOURS):
        if f"{name}_bytes" not in frame:
            continue
        width = frame[f"{name}_bytes"].to_numpy(dtype=float) / 2**30
        if width.any():
            axes.barh(positions, width, left=left, height=0.75, color=colour, edgecolor="white", label=name)
        left += width
    # Classes do not reach their peaks at one moment.
    total = frame["predicted_bytes"].to_numpy(dtype=float) / 2**30
    axes.plot(total, positions, "|", color="black", ms=13, mew=2, label="all together")
    in_space = bytes_in_space(frame).to_numpy() / 2**30
    if (apart := in_space < total).any():
        axes.plot(in_space[apart], positions[apart], "|", color=GREY, ms=13, mew=2, label="in device memory")
    available = frame["available_bytes"].to_numpy(dtype=float) / 2**30
    limited = np.isfinite(available)
    if limited.any():
        axes.plot(
            available[limited], positions[limited], "|", color=IMPL_COLOURS["standard"], ms=13, mew=2, label="available"
        )  # fmt: skip
    end = max(left.max(initial=0), total.max(initial=0))
    if limited.any() and available[limited].max() > 2 * end:
        axes.set_xlim(0, 1.25 * end)  # far more than is needed: it may lie outside
    for y, row in enumerate(frame.itertuples()):
        note = {"ok": "", "skipped_memory": "  does not fit"}.get(row.status, f"  {row.status}")
        axes.text(max(left[y], total[y]), y, note, va="center", fontsize=9, color=GREY)
    axes.set_yticks(positions, labels(frame))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlabel("peak  [GiB]")
    axes.set_title("Memory")
    axes.set_xlim(right=1.12 * axes.get_xlim()[1])  # room for what stands behind the longest bar
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=9)


def labels(frame: pd.DataFrame) -> list[str]:
    """What tells the cases apart, and always the policy of training or the cache of generation; not what goes without saying."""
    parts = [
        ["" if value == _USUAL.get(name) else text.format(value) for value in frame[name]]
        for name, text in _FACTS.items() if frame[name].nunique() > 1
    ]  # fmt: skip
    parts.append([
        recompute if op == "train" else cache
        for op, recompute, cache in zip(frame["op"], frame["recompute"], frame["kv_cache"])
    ])  # fmt: skip
    return [", ".join(filter(None, words)) for words in zip(*parts)]
