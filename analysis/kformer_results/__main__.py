# SPDX-License-Identifier: MIT
"""python3 -m kformer_results plot|summary FILE.h5"""

import argparse
import sys
from pathlib import Path

from .memory_plots import save_memory_plot
from .plots import save_plots
from .reader import DAMAGE, ResultFileError, open_results
from .series import (
    case_frame,
    crossover_table,
    memory_reduction,
    run_label,
    select,
    select_configuration,
    summary_table,
)
from .tables import FORMATS, TABLES
from .train_plots import save_train_plots


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code: 0, or 4 if the file cannot be read or shown."""
    options = _parser().parse_args(arguments)
    try:
        groups = open_results(options.file)
        options.run(groups, options)
    except (ResultFileError, OSError) as error:
        return _fail(error)
    except DAMAGE as error:
        kind = groups[""].attrs.get("kind", "")
        what = f"{options.file}: its groups are not those of a result file of kind '{kind}'"
        return _fail(f"{what} ({type(error).__name__}: {error})")
    return 0


def _fail(reason) -> int:
    print(f"kformer_results: error: {reason}", file=sys.stderr)
    return 4


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m kformer_results", description="Shows Kformer result files."
    )
    commands = parser.add_subparsers(required=True, metavar="plot|summary")
    plot = commands.add_parser("plot", help="plot time, memory and other measurements as PNG")
    plot.add_argument("-o", "--output", type=Path, metavar="OUT.png", help="default: FILE.png beside the file")
    plot.add_argument(
        "--separate", action="store_true", help="write one PNG per kind of plot instead of a single one"
    )
    plot.add_argument("--op", help="op to plot, default: that of the first case")
    plot.add_argument("--batch", type=int, help="batch size to plot, default: that of the first case")
    plot.add_argument(
        "--configuration", type=int, default=0, metavar="N", help="configuration of a comparison, counted from 0"
    )
    plot.add_argument("--if-any", action="store_true", help="kinds of results without plots are no error")
    plot.set_defaults(run=_plot)
    summary = commands.add_parser("summary", help="print a table of all cases")
    summary.set_defaults(run=_summary)
    for command in (plot, summary):
        command.add_argument("file", type=Path, metavar="FILE.h5", help="result file, or the .h5.part of a run")
    return parser


def _plot(groups, options) -> None:
    out = options.output or options.file.with_name(options.file.name.removesuffix(".part")).with_suffix(".png")
    drawn = {"train": save_train_plots, "memory_plan": save_memory_plot}
    if (kind := groups[""].attrs.get("kind")) in drawn:
        for path in drawn[kind](groups, out):
            print(path)
        return
    if kind in TABLES:
        if options.if_any:
            return
        raise ResultFileError(f"{options.file}: no plots for kind '{kind}'; 'summary' prints a table")
    chosen = {name: getattr(options, name) for name in ("separate", "op", "batch", "configuration")}
    for path in save_plots(groups, out, **chosen):
        print(path)


def _summary(groups, _options) -> None:
    print(run_label(groups))
    print()
    if (kind := groups[""].attrs.get("kind")) in TABLES:
        table = TABLES[kind](groups)
        print(table.to_string(index=False, formatters=FORMATS, float_format="{:.3f}".format, na_rep="-"))
        return
    formats = {"max_rel_err": "{:.2e}".format, "time_ms": "{:.3f}".format}
    print(summary_table(groups).to_string(index=False, formatters=formats, float_format="{:.3f}".format))
    _print_crossovers(crossover_table(groups))
    frame = select_configuration(select(case_frame(groups)))
    if "working_bytes" in frame:
        _print_reductions(memory_reduction(frame))


def _print_crossovers(table) -> None:
    if table.empty:
        return
    print("\nFlash against standard, times faster:")
    print(table.to_string(index=False, float_format="{:.2f}".format, na_rep="-"))


def _print_reductions(reductions) -> None:
    if reductions.empty:
        return
    print("\nPeak activations + workspace, flash against standard:")
    table = reductions.pivot_table(
        index=["direction", "dtype"], columns="seq_len", values="reduction", sort=False
    )
    # Plus 0: what rounds to −0.0 is 0.0.
    print(((-100 * table).round(1) + 0.0).to_string(float_format="{:+.1f} %".format))


if __name__ == "__main__":
    sys.exit(main())
