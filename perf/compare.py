#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two JSON files of Google Benchmark and lists what became slower.

Prints the median times and their ratio for each benchmark of the baseline. Exits with 1 if one takes longer than the
threshold allows, and with 2 if the files cannot be compared: a file or a benchmark is missing, or the threads differ.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


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


def medians(data, path):
    """Nanoseconds by benchmark name: the median in the file, or else that of its repetitions."""
    given, single = {}, {}
    for entry in data["benchmarks"]:
        name = entry.get("run_name", entry["name"])
        if entry.get("error_occurred"):
            raise NotComparable(f"{path}: {name} failed: {entry.get('error_message', 'no message')}")
        if entry.get("run_type") == "aggregate" and entry.get("aggregate_name") != "median":
            continue
        time = entry["real_time"] * NANOSECONDS[entry["time_unit"]]
        if entry.get("run_type") == "aggregate":
            given[name] = time
        else:
            single.setdefault(name, []).append(time)
    return {name: statistics.median(times) for name, times in single.items()} | given


def compare(baseline_path, new_path, threshold):
    """Prints the table; returns the names of the benchmarks that became slower."""
    baseline_file, new_file = read(baseline_path), read(new_path)
    threads = [data.get("context", {}).get("threads") for data in (baseline_file, new_file)]
    if threads[0] != threads[1]:
        raise NotComparable(f"measured with {threads[0]} and {threads[1]} threads")
    baseline, new = medians(baseline_file, baseline_path), medians(new_file, new_path)
    missing = sorted(baseline.keys() - new.keys())
    if missing:
        raise NotComparable(f"{new_path}: lacks {', '.join(missing)}")
    slower = []
    width = max(map(len, baseline))
    print(f"{'':<{width}} {'baseline ms':>12} {'new ms':>12} {'new/baseline':>12}")
    for name, before in baseline.items():
        ratio = new[name] / before
        verdict = ""
        if ratio > 1 + threshold:
            slower.append(name)
            verdict = "  slower"
        print(f"{name:<{width}} {before * 1e-6:12.4f} {new[name] * 1e-6:12.4f} {ratio:12.3f}{verdict}")
    for name in new.keys() - baseline.keys():
        print(f"{name:<{width}} is new")
    print(f"{len(slower)} of {len(baseline)} slower by more than {100 * threshold:g} %")
    return slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--threshold", type=float, default=0.05, help="share by which a time may grow (default 0.05)")
    arguments = parser.parse_args()
    try:
        return 1 if compare(arguments.baseline, arguments.new, arguments.threshold) else 0
    except NotComparable as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
