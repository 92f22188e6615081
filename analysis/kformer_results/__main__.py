# SPDX-License-Identifier: MIT
"""python3 -m kformer_results plot|summary|compare|check|report|trace FILE.h5..."""

import argparse
import sys
from pathlib import Path

import pandas as pd
import xarray as xr

from .check import check_file
from .compare import METRICS, Comparison, compare
from .pictures import save_pictures
from .reader import DAMAGE, Groups, ResultFileError, open_results
from .report import save_report
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
from .trace import save_trace


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code.

    0, or 1 if `compare` found a case beyond the threshold or `check` a fault, or 4 if a file cannot be read or shown.
    """
    options = _parser().parse_args(arguments)
    if "files" in options:
        return _check(options.files)
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


def check_main() -> int:
    """The command kformer-check."""
    return main(["check", *sys.argv[1:]])


def report_main() -> int:
    """The command kformer-report."""
    return main(["report", *sys.argv[1:]])


def trace_main() -> int:
    """The command kformer-trace."""
    return main(["trace", *sys.argv[1:]])


def _fail(reason: object) -> int:
    print(f"kformer_results: error: {reason}", file=sys.stderr)
    return 4


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m kformer_results", description="Shows Kformer result files."
    )
    commands = parser.add_subparsers(required=True, metavar="plot|summary|compare|check|report|trace")
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
    check = commands.add_parser(
        "check",
        help="hold files against the schema of their kind",
        description="Prints a line for each fault. Exit codes: 0 if there are none, 1 if there are, 4 files.",
    )
    check.add_argument("files", type=Path, nargs="+", metavar="FILE.h5")
    report = commands.add_parser("report", help="write a report as one HTML file, with pictures, tables and the deck")
    report.add_argument("-o", "--output", type=Path, metavar="OUT.html", help="default: FILE.html beside the file")
    report.set_defaults(run=_report)
    trace = commands.add_parser("trace", help="write the profile as a trace for Perfetto or chrome://tracing")
    trace.add_argument("-o", "--output", type=Path, metavar="OUT.json", help="default: FILE.trace.json beside the file")
    trace.add_argument("--case", type=int, action="append", metavar="N", help="case to show, may be repeated; default: all")
    trace.set_defaults(run=_trace)
    for command in (plot, summary, report, trace):
        command.add_argument("file", type=Path, metavar="FILE.h5", help="result file, or the .h5.part of a run")
    return parser


def _add_compare(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
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


def _compare(groups: Groups, options: argparse.Namespace) -> int:
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


def _folded(found: Comparison) -> tuple[pd.DataFrame, dict[str, object]]:
    """The table in ms or MiB, and the keys that are the same in all of its rows."""
    table = found.table.copy()
    unit, scale = ("ms", 1e3) if found.metric == "time" else ("MiB", 2.0**-20)
    keys = list(table.columns[: table.columns.get_loc("a")])
    constant = {name: table[name].iloc[0] for name in keys if table[name].nunique() == 1}
    table[["a", "b"]] *= scale
    table = table.rename(columns={"a": f"A [{unit}]", "b": f"B [{unit}]", "ratio": "B/A"})
    return table.drop(columns=list(constant)), constant


def _plot(groups: Groups, options: argparse.Namespace) -> None:
    chosen = {name: getattr(options, name) for name in ("separate", "op", "batch", "configuration")}
    for path in save_pictures(groups, _beside(options, ".png"), **chosen):
        print(path)


def _report(groups: Groups, options: argparse.Namespace) -> None:
    print(save_report(groups, _beside(options, ".html")))


def _trace(groups: Groups, options: argparse.Namespace) -> None:
    out = _beside(options, ".trace.json")
    save_trace(groups, out, options.case)
    print(out)


def _beside(options: argparse.Namespace, ending: str) -> Path:
    """The output that was asked for, or one beside the file."""
    file: Path = options.file
    return options.output or file.with_name(file.name.removesuffix(".part")).with_suffix(ending)


def _check(files: list[Path]) -> int:
    code = 0
    for file in files:
        try:
            faults = check_file(file)
        except (ResultFileError, OSError) as error:
            code = _fail(error)
            continue
        for fault in faults:
            print(f"{file}: {fault}")
        if faults:
            code = max(code, 1)
    return code


def _summary(groups: Groups, _options: argparse.Namespace) -> None:
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


def _print_crossovers(table: pd.DataFrame) -> None:
    if table.empty:
        return
    print("\nFlash against standard, times faster:")
    print(table.to_string(index=False, float_format="{:.2f}".format, na_rep="-"))


def _print_reductions(reductions: pd.DataFrame) -> None:
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
