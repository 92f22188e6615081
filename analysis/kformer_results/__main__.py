# SPDX-License-Identifier: MIT
"""python3 -m kformer_results plot|summary|compare FILE.h5..."""

import argparse
import sys
from pathlib import Path

import xarray as xr

from .compare import METRICS, Comparison, compare
from .generate_plots import save_generate_plot
from .memory_plots import save_memory_plot
from .plots import save_plots
from .quantize_plots import save_quantize_plot
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
    """Runs the command line; returns the exit code.

    0, or 1 if `compare` found a case beyond the threshold, or 4 if a file cannot be read or shown.
    """
    options = _parser().parse_args(arguments)
    groups = {"": xr.Dataset()}
    try:
        groups = open_results(options.file)
        return options.run(groups, options) or 0
    except (ResultFileError, OSError) as error:
        return _fail(error)
    except DAMAGE as error:
        kind = groups[""].attrs.get("kind", "")
        what = f"{options.file}: its groups are not those of a result file of kind '{kind}'"
        return _fail(f"{what} ({type(error).__name__}: {error})")


def _fail(reason) -> int:
    print(f"kformer_results: error: {reason}", file=sys.stderr)
    return 4


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m kformer_results", description="Shows Kformer result files."
    )
    commands = parser.add_subparsers(required=True, metavar="plot|summary|compare")
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
    plot.set_defaults(run=_plot)
    summary = commands.add_parser("summary", help="print a table of all cases")
    summary.set_defaults(run=_summary)
    _add_compare(commands)
    for command in (plot, summary):
        command.add_argument("file", type=Path, metavar="FILE.h5", help="result file, or the .h5.part of a run")
    return parser


def _add_compare(commands) -> None:
    command = commands.add_parser(
        "compare",
        help="ratio of every case of two runs, with intervals of 95 %% confidence",
        description="Exit codes: 0 if no case of B is beyond the threshold, 1 if one is or did not run, 2 usage, 4 files.",
    )
    command.add_argument("file", type=Path, metavar="A.h5")
    command.add_argument("other", type=Path, metavar="B.h5")
    command.add_argument("--metric", choices=METRICS, default="time", help="default: time")
    command.add_argument(
        "--threshold", type=_ratio, default=1.05, metavar="X", help="largest ratio of B to A that passes, default 1.05"
    )
    command.add_argument(
        "--ignore", action="append", default=[], metavar="COLUMN", help="match cases that differ in it; may be repeated"
    )
    command.set_defaults(run=_compare)


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def _compare(groups, options) -> int:
    found = compare(groups, open_results(options.other), options.metric, options.ignore)
    print(f"A  {run_label(groups)}\nB  {run_label(open_results(options.other))}\n")
    table, constant = _folded(found)
    print(", ".join(f"{name} {value}" for name, value in constant.items()))
    print(table.to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    print()
    for note in found.notes:
        print(note)
    beyond = found.beyond(options.threshold)
    undecided = int((found.table["verdict"] == "undecided").sum())
    print(f"{len(table)} cases compared, {undecided} undecided (the interval contains 1), "
          f"{len(beyond)} beyond {options.threshold:g}.")  # fmt: skip
    return 1 if len(beyond) else 0


def _folded(found: Comparison):
    """The table in ms or MiB, and the keys that are the same in all of its rows."""
    table = found.table.copy()
    unit, scale = ("ms", 1e3) if found.metric == "time" else ("MiB", 2.0**-20)
    keys = list(table.columns[: table.columns.get_loc("a")])
    constant = {name: table[name].iloc[0] for name in keys if table[name].nunique() == 1}
    table[["a", "b"]] *= scale
    table = table.rename(columns={"a": f"A [{unit}]", "b": f"B [{unit}]", "ratio": "B/A"})
    return table.drop(columns=list(constant)), constant


def _plot(groups, options) -> None:
    out = options.output or options.file.with_name(options.file.name.removesuffix(".part")).with_suffix(".png")
    drawn = {
        "train": save_train_plots, "memory_plan": save_memory_plot, "generate": save_generate_plot,
        "quantize": save_quantize_plot,
    }  # fmt: skip
    if (kind := groups[""].attrs.get("kind")) in drawn:
        for path in drawn[kind](groups, out):
            print(path)
        return
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
