# SPDX-License-Identifier: MIT
"""python3 -m kformer_results plot|summary FILE.h5"""

import argparse
import sys
from pathlib import Path

from .plots import save_plots
from .reader import ResultFileError, open_results
from .series import case_frame, memory_reduction, run_label, select, summary_table


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit code: 0, or 4 when the file cannot be read or shown."""
    options = _parser().parse_args(arguments)
    try:
        groups = open_results(options.file)
        options.run(groups, options)
    except (ResultFileError, OSError) as error:
        print(f"kformer_results: error: {error}", file=sys.stderr)
        return 4
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m kformer_results", description="Shows Kformer's result files."
    )
    commands = parser.add_subparsers(required=True, metavar="plot|summary")
    plot = commands.add_parser("plot", help="draw time, memory and breakdown by block as PNG")
    plot.add_argument("-o", "--output", type=Path, metavar="OUT.png", help="default: FILE.png beside the file")
    plot.add_argument(
        "--separate", action="store_true", help="one PNG for each kind of plot instead of one for all"
    )
    plot.add_argument("--op", help="which op to draw, default: that of the first case")
    plot.add_argument("--batch", type=int, help="which batch size to draw, default: that of the first case")
    plot.set_defaults(run=_plot)
    summary = commands.add_parser("summary", help="print a table of all cases")
    summary.set_defaults(run=_summary)
    for command in (plot, summary):
        command.add_argument("file", type=Path, metavar="FILE.h5", help="result file, or the .h5.part of a run")
    return parser


def _plot(groups, options) -> None:
    out = options.output or options.file.with_name(options.file.name.removesuffix(".part")).with_suffix(".png")
    for path in save_plots(groups, out, separate=options.separate, op=options.op, batch=options.batch):
        print(path)


def _summary(groups, _options) -> None:
    print(run_label(groups))
    print()
    formats = {"max_rel_err": "{:.2e}".format, "time_ms": "{:.3f}".format}
    print(summary_table(groups).to_string(index=False, formatters=formats, float_format="{:.3f}".format))
    frame = select(case_frame(groups))
    if "working_bytes" in frame:
        _print_reductions(memory_reduction(frame))


def _print_reductions(reductions) -> None:
    if reductions.empty:
        return
    print("\nPeak activations + workspace, flash against standard:")
    table = reductions.pivot_table(
        index=["direction", "dtype"], columns="seq_len", values="reduction", sort=False
    )
    print((-100 * table).to_string(float_format="{:+.1f} %".format))


if __name__ == "__main__":
    sys.exit(main())
