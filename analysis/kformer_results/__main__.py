# SPDX-License-Identifier: MIT
"""python3 -m kformer_results plot|summary|compare|check|report|trace FILE.h5..."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xarray as xr

from . import compare_command, summary
from .check import check_file
from .pictures import save_pictures
from .reader import DAMAGE, Groups, ResultFileError, open_results
from .report import save_report
from .trace import save_trace


def main(arguments: list[str] | None = None, prog: str = "python3 -m kformer_results") -> int:
    """Runs the command line; returns the exit code.

    0, or 1 if `compare` found a case that is beyond the threshold or did not run in B, or `check` a fault, or 4 if a file
    cannot be read or shown.
    """
    parser = argparse.ArgumentParser(prog=prog, description="Shows Kformer result files.")
    commands = parser.add_subparsers(required=True, metavar="|".join(_COMMANDS))
    for name, (add, texts) in _COMMANDS.items():
        add(commands.add_parser(name, **texts))
    return _run(parser, arguments)


def results_main() -> int:
    """The command kformer-results."""
    return main(prog="kformer-results")


def check_main() -> int:
    """The command kformer-check."""
    return _run_alone("check")


def report_main() -> int:
    """The command kformer-report."""
    return _run_alone("report")


def trace_main() -> int:
    """The command kformer-trace."""
    return _run_alone("trace")


def _run_alone(name: str) -> int:
    add, texts = _COMMANDS[name]
    parser = argparse.ArgumentParser(prog=f"kformer-{name}", description=texts.get("description", texts["help"]))
    add(parser)
    return _run(parser, None)


def _run(parser: argparse.ArgumentParser, arguments: list[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # letters that the terminal does not have
    try:
        code = _done(parser.parse_args(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # of head: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _done(options: argparse.Namespace) -> int:
    if "files" in options:
        return _check(options.files)
    groups = {"": xr.Dataset()}
    try:
        groups = open_results(options.file)
        return options.run(groups, options) or 0
    except BrokenPipeError:
        raise
    except ResultFileError as error:
        return _fail(error)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else error)
    except DAMAGE as error:
        kind = groups[""].attrs.get("kind", "")
        files = " or ".join(str(file) for file in (options.file, getattr(options, "other", None)) if file)
        what = f"{files}: its groups are not those of a result file of kind '{kind}'"
        return _fail(f"{what} ({type(error).__name__}: {error})")


def _fail(reason: object) -> int:
    print(f"kformer_results: error: {reason}", file=sys.stderr)
    return 4


def _add_plot(command: argparse.ArgumentParser) -> None:
    _add_file(command, _plot)
    command.add_argument(
        "-o", "--output", type=Path, metavar="OUT.png", help="or .pdf or .svg, or a folder; default: FILE.png beside the file"
    )
    command.add_argument(
        "--separate", action="store_true", help="write one PNG per kind of plot instead of a single one"
    )
    command.add_argument("--op", help="op to plot, default: that of the first case")
    command.add_argument("--batch", type=int, help="batch size to plot, default: that of the first case")
    command.add_argument(
        "--configuration", type=int, default=0, metavar="N", help="configuration of a comparison, counted from 0"
    )


def _add_summary(command: argparse.ArgumentParser) -> None:
    _add_file(command, summary.run)


def _add_check(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", type=Path, nargs="+", metavar="FILE.h5")


def _add_report(command: argparse.ArgumentParser) -> None:
    _add_file(command, _report)
    command.add_argument("-o", "--output", type=Path, metavar="OUT.html", help="or a folder; default: FILE.html beside the file")


def _add_trace(command: argparse.ArgumentParser) -> None:
    _add_file(command, _trace)
    command.add_argument("-o", "--output", type=Path, metavar="OUT.json", help="or a folder; default: FILE.trace.json beside the file")
    command.add_argument("--case", type=int, action="append", metavar="N", help="case to show, may be repeated; default: all")


def _add_file(command: argparse.ArgumentParser, run: Callable[[Groups, argparse.Namespace], int | None]) -> None:
    command.add_argument("file", type=Path, metavar="FILE.h5", help="result file, or the .h5.part of a run")
    command.set_defaults(run=run)


# What adds the arguments of each command, and the texts of its parser.
_COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], dict[str, Any]]] = {
    "plot": (_add_plot, {"help": "plot time, memory and other measurements as PNG"}),
    "summary": (_add_summary, {"help": "print a table of all cases"}),
    "compare": (
        compare_command.add_arguments,
        {"help": "ratio of every case of two runs, with intervals of 95 %% confidence",
         "description": compare_command.DESCRIPTION},
    ),
    "check": (
        _add_check,
        {"help": "check files against the schema of their kind",
         "description": "Prints a line for each fault. Exit codes: 0 if there are none, 1 if there are, 4 files."},
    ),
    "report": (_add_report, {"help": "write a report as one HTML file, with pictures, tables and the deck"}),
    "trace": (_add_trace, {"help": "write the profile as a trace for Perfetto or chrome://tracing"}),
}  # fmt: skip


def _plot(groups: Groups, options: argparse.Namespace) -> None:
    chosen = {name: getattr(options, name) for name in ("separate", "op", "batch", "configuration")}
    out = _beside(options, ".png")
    if out.suffix.lower() not in (".png", ".pdf", ".svg"):
        out = Path(f"{out}.png")
    for path in save_pictures(groups, out, **chosen):
        print(path)


def _report(groups: Groups, options: argparse.Namespace) -> None:
    print(save_report(groups, _beside(options, ".html")))


def _trace(groups: Groups, options: argparse.Namespace) -> None:
    out = _beside(options, ".trace.json")
    save_trace(groups, out, options.case)
    print(out)


def _beside(options: argparse.Namespace, ending: str) -> Path:
    """The output that was asked for, or one beside the file or in the folder that was asked for."""
    file: Path = options.file
    own = file.with_name(file.name.removesuffix(".part")).with_suffix(ending)
    asked: Path | None = options.output
    return asked / own.name if asked and asked.is_dir() else asked or own


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


if __name__ == "__main__":
    sys.exit(main())
