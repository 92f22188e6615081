# SPDX-License-Identifier: MIT
"""The pictures of a result file of any kind."""

from pathlib import Path
from typing import Any

from .generate_plots import save_generate_plot
from .memory_plots import save_memory_plot
from .plots import save_plots
from .quantize_plots import save_quantize_plot
from .reader import Groups
from .scaling_plots import save_scaling_plots
from .series import case_frame, selections
from .train_plots import save_train_plots

# By the root attribute `kind`; others are sweeps.
_OF_KIND = {
    "train": save_train_plots, "memory_plan": save_memory_plot, "generate": save_generate_plot,
    "quantize": save_quantize_plot, "scaling": save_scaling_plots,
}  # fmt: skip


def save_pictures(
    groups: Groups, out: str | Path, *, separate: bool = False, op: str | None = None,
    batch: int | None = None, configuration: int = 0,
) -> list[Path]:  # fmt: skip
    """Plots a file of any kind that open_results read; returns the paths of the PNG files.

    The options are those of `save_plots`, and only sweeps have them. Raises ResultFileError if there is nothing to draw.
    """
    if (draw := _OF_KIND.get(str(groups[""].attrs.get("kind", "")))) is not None:
        return draw(groups, out)
    return save_plots(groups, out, separate=separate, op=op, batch=batch, configuration=configuration)


def picture_options(groups: Groups) -> list[tuple[dict[str, Any], str]]:
    """The options by which `save_pictures` draws everything, one picture after the other, each with what it is of.

    Raises ResultFileError if there is nothing to draw.
    """
    return [({}, "")] if str(groups[""].attrs.get("kind", "")) in _OF_KIND else selections(case_frame(groups))
