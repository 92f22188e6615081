# SPDX-License-Identifier: MIT
"""The profile of a case as a trace that Perfetto and Chrome's chrome://tracing open."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .reader import Groups, ResultFileError

_US = 1e6
_WITHOUT_PROFILE = ("memory_plan", "quantize", "scaling")
_MEMORY = 1_000_000  # the process that shows the memory; those below are cases
_RANKS = 2_000_000  # and from here on ranks


def save_trace(groups: Groups, out: str | Path, cases: list[int] | None = None) -> list[int]:
    """Writes the trace of the profiled cases, by default of all; returns their numbers."""
    trace = trace_of(groups, cases)
    Path(out).write_text(json.dumps(trace, allow_nan=False), encoding="utf-8")
    return sorted({event["pid"] for event in trace["traceEvents"] if event["pid"] < _MEMORY})


def trace_of(groups: Groups, cases: list[int] | None = None) -> dict[str, Any]:
    """The trace as a dictionary: an event for each region and kernel; a case is a process.

    The profile holds sums, not moments: a slice is as long as all visits of its region together, regions follow each
    other in the order of their first visit, and the kernels of a region come after the regions inside it. Widths are
    times, places are not. Of a training, the memory of each class is a counter over the time of the run.

    With `profile.timeline` of a training there is a process for each rank, too, whose slices are where they were: regions
    and kernels, and above them what was under way, such as messages. Ranks count the time from the beginning of the step.

    Raises ResultFileError if no such case was profiled.
    """
    regions = groups.get("regions")
    if (kind := str(groups[""].attrs.get("kind", ""))) in _WITHOUT_PROFILE:
        raise ResultFileError(f"files of kind '{kind}' have no profile to trace")
    if regions is None or regions.sizes.get("region", 0) == 0:
        raise ResultFileError("no case was profiled: [profile] kernels = true in the deck asks for it")
    frame = regions.to_dataframe()
    kernels = groups["kernels"].to_dataframe() if "kernels" in groups else pd.DataFrame({"case": [], "region": []})
    profiled = [int(case) for case in frame["case"].unique()]
    if unknown := set(cases or []) - set(profiled):
        raise ResultFileError(f"case {min(unknown)} was not profiled; these were: {', '.join(map(str, profiled))}")
    events: list[dict[str, Any]] = []
    for case in cases or profiled:
        events.append({"ph": "M", "pid": case, "tid": 0, "name": "process_name", "args": {"name": _name(groups, case)}})
        events += _slices(frame[frame["case"] == case], kernels[kernels["case"] == case], case)
    note = str(regions.attrs.get("overhead_note", ""))
    events += _memory_events(groups)
    events += _moments(groups)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"note": note, "slices": "sums of all visits"}}


def _slices(regions: pd.DataFrame, kernels: pd.DataFrame, case: int) -> list[dict[str, Any]]:
    """Events of one case. A region begins where its elder sibling ends, the first one where its parent begins."""
    begin: dict[int, float] = {}
    free = {-1: 0.0}  # where the next child of each region begins
    events = []
    for number, row in regions.iterrows():
        parent = int(row["parent"])
        begin[number] = free[number] = free[parent]
        free[parent] += float(row["inclusive"])
        events.append(_slice(case, str(row["path"]).rsplit("/", 1)[-1], "region", begin[number], float(row["inclusive"]),
                             path=str(row["path"]), visits=int(row["count"]), exclusive_s=float(row["exclusive"])))  # fmt: skip
    by_path = {str(row["path"]): number for number, row in regions.iterrows()}
    for _, row in kernels.iterrows():
        number = by_path.get(str(row["region"]), -1)
        end = begin[number] + float(regions.at[number, "inclusive"]) if number >= 0 else np.inf
        # Clocks are read between kernel and region: the last kernel may seem to end after its region.
        shown = max(0.0, min(float(row["time_total"]), end - free[number]))
        events.append(_slice(case, str(row["name"]), "kernel", free[number], shown, region=str(row["region"]),
                             launches=int(row["count"]), time_total_s=float(row["time_total"]), kind=str(row["kind"])))  # fmt: skip
        free[number] += shown
    return events


def _slice(case: int, name: str, category: str, begin: float, seconds: float, **facts: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": case, "tid": 0, "name": name, "cat": category, "ts": begin * _US, "dur": seconds * _US,
            "args": facts}  # fmt: skip


def _moments(groups: Groups) -> list[dict[str, Any]]:
    """Events of each rank at their times. Sections overlap, and so are asynchronous ones."""
    moments = groups.get("timeline")
    if moments is None or moments.sizes.get("moment", 0) == 0:
        return []
    events: list[dict[str, Any]] = []
    for rank in sorted({int(rank) for rank in moments["rank"].values}):
        events.append({"ph": "M", "pid": _RANKS + rank, "tid": 0, "name": "process_name",
                       "args": {"name": f"rank {rank}, at its times"}})  # fmt: skip
    columns = (moments[name].values.tolist() for name in ("rank", "kind", "name", "begin", "duration"))
    for number, (rank, kind, name, begin, seconds) in enumerate(zip(*columns)):
        pid = _RANKS + int(rank)
        if kind != "section":
            category = "region" if kind == "region" else "kernel"
            events.append(_slice(pid, name, category, begin, seconds, kind=kind))
            continue
        for ph, time in (("b", begin), ("e", begin + seconds)):
            events.append({"ph": ph, "pid": pid, "tid": 0, "id": number, "name": name, "cat": "section", "ts": time * _US})
    return events


def _memory_events(groups: Groups) -> list[dict[str, Any]]:
    bookings = groups.get("memory/bookings")
    if bookings is None or bookings.sizes.get("change", 0) == 0:
        return []
    names = [str(name) for name in bookings["memory_class"].values]
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": _MEMORY, "tid": 0, "name": "process_name", "args": {"name": "memory of the run"}}
    ]
    for time, row in zip(bookings["time"].values.tolist(), bookings["bytes"].values.tolist()):
        events.append({"ph": "C", "pid": _MEMORY, "tid": 0, "name": "bytes", "ts": time * _US,
                       "args": dict(zip(names, row))})  # fmt: skip
    return events


def _name(groups: Groups, case: int) -> str:
    """What was run, such as "layer standard f32 forward seq_len 512"."""
    columns = groups["cases"]
    words = [str(columns[name].values[case]) for name in ("op", "impl", "dtype", "direction") if name in columns]
    words += [f"{name} {columns[name].values[case]}" for name in ("batch", "seq_len") if name in columns]
    return f"case {case}: {' '.join(words)}"
