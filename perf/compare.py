#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two JSON files of Google Benchmark and lists what became slower.

Prints the median share of its limit (`% of peak`, `% of bandwidth` or `% of limit`) for each benchmark of the baseline, and
how much longer it takes by that. Shares hardly depend on the clock of the processor; with --times, the times are compared.
Exits with 1 if a benchmark takes longer than the threshold allows, and with 2 if the files cannot be compared: a file, a
benchmark or its share is missing, or the threads or the instructions of the limit differ.
"""

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
SHARES = ("% of peak", "% of bandwidth", "% of limit")
# What must be equal: the name in the context of the file, and in a sentence.
CONDITIONS = {"threads": "threads", "peak_isa": "as the instructions of the limit"}


class NotComparable(Exception):
    pass


def read(path):
    """The parsed file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotComparable(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise NotComparable(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict) or not data.get("benchmarks"):
        raise NotComparable(f"{path}: has no benchmarks; write it with --benchmark_out=FILE --benchmark_out_format=json")
    return data


def time_of(entry):
    """Milliseconds, and in which unit."""
    return entry["real_time"] * NANOSECONDS[entry["time_unit"]] * 1e-6, "ms"


def share_of(entry):
    """The share of its limit in percent, and of which limit; None if it has none."""
    return next(((entry[share], share) for share in SHARES if share in entry), None)


def medians(data, path, value_of):
    """(value, unit) by the name of the benchmark: the median in the file, or else that of its repetitions."""
    given, single, units = {}, {}, {}
    for entry in data["benchmarks"]:
        name = entry.get("run_name", entry["name"]).removesuffix("/manual_time")
        if entry.get("error_occurred"):
            raise NotComparable(f"{path}: {name} failed: {entry.get('error_message', 'no message')}")
        if entry.get("run_type") == "aggregate" and entry.get("aggregate_name") != "median":
            continue
        found = value_of(entry)
        if found is None:
            raise NotComparable(f"{path}: {name} has no share of a limit; compare the times (--times)")
        value, units[name] = found
        # A comparison with NaN says that nothing is slower.
        if not (value > 0 and math.isfinite(value)):
            raise NotComparable(f"{path}: {name} has a value of {value} {units[name]}")
        if entry.get("run_type") == "aggregate":
            given[name] = value
        else:
            single.setdefault(name, []).append(value)
    values = {name: statistics.median(several) for name, several in single.items()} | given
    return {name: (value, units[name]) for name, value in values.items()}


def check_conditions(baseline, new):
    """Raises an exception if the two contexts are not alike."""
    for key, words in CONDITIONS.items():
        if baseline.get(key) != new.get(key):
            raise NotComparable(f"measured with {baseline.get(key)} and {new.get(key)} {words}")


def compare(baseline_path, new_path, threshold, times=False):
    """Prints the table; returns the names of the benchmarks that became slower."""
    baseline_file, new_file = read(baseline_path), read(new_path)
    check_conditions(baseline_file.get("context", {}), new_file.get("context", {}))
    value_of = time_of if times else share_of
    baseline, new = medians(baseline_file, baseline_path, value_of), medians(new_file, new_path, value_of)
    missing = sorted(baseline.keys() - new.keys())
    if missing:
        raise NotComparable(f"{new_path}: lacks {', '.join(missing)}")
    slower = []
    width = max(map(len, baseline))
    print(f"{'':<{width}} {'baseline':>12} {'new':>12} {'':<14} {'time':>6}")
    for name, (before, unit) in baseline.items():
        after, unit_after = new[name]
        if unit != unit_after:
            raise NotComparable(f"{name}: {unit} in {baseline_path}, {unit_after} in {new_path}")
        ratio = after / before if times else before / after
        verdict = ""
        if ratio > 1 + threshold:
            slower.append(name)
            verdict = "  slower"
        print(f"{name:<{width}} {before:12.4f} {after:12.4f} {unit:<14} {ratio:6.3f}{verdict}")
    for name in new.keys() - baseline.keys():
        print(f"{name:<{width}} is new")
    print(f"{len(slower)} of {len(baseline)} slower by more than {100 * threshold:g} %")
    return slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--threshold", type=float, default=0.05,
                        help="share by which a time may grow, relative to the limit (default 0.05)")
    parser.add_argument("--times", action="store_true", help="compare times instead of shares of the limit")
    arguments = parser.parse_args()
    try:
        return 1 if compare(arguments.baseline, arguments.new, arguments.threshold, arguments.times) else 0
    except NotComparable as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
