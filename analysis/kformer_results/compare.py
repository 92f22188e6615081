# SPDX-License-Identifier: MIT
"""Compares two runs: their cases matched by what was run, ratios with intervals of confidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from .axes import key_frame
from .ranks import ratio_interval
from .reader import ResultFileError

METRICS = ("time", "memory")
CONFIDENCE = 0.95
# Attributes that say where numbers come from, of the root and of /provenance.
_ORIGIN = (
    "git_sha", "git_dirty", "softwareVersion", "hostname", "cpu_model", "cpu_threads", "device_name", "compiler",
    "compiler_version", "build_type", "cxx_flags", "kokkos_version", "kokkos_backends", "kokkos_concurrency",
)  # fmt: skip
_MOST_NAMED = 3


class CompareError(ResultFileError):
    """The two runs cannot be compared; the text says why and what to do."""


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    `table` has a row for each case of both runs: its keys, the values `a` and `b`, `ratio` (b over a: above 1, B takes
    more), the limits `low` and `high` of its interval, and `verdict`: "equal", "undecided" (the interval contains 1),
    "less", "more", "lost" (only A has a value), "gained" (only B has one) or "none" (neither has one). `notes` are
    sentences on what was not compared and on what else differs.
    """

    metric: str
    table: pd.DataFrame
    notes: list[str]

    def beyond(self, threshold: float) -> pd.DataFrame:
        """The cases whose ratio exceeds the threshold and is decided, and those that only A has a value of."""
        verdict = self.table["verdict"]
        return self.table[(verdict == "more") & (self.table["ratio"] > threshold) | (verdict == "lost")]


def compare(
    a: Mapping[str, xr.Dataset], b: Mapping[str, xr.Dataset], metric: str = "time", ignore: Sequence[str] = ()
) -> Comparison:
    """Compares what open_results returned of two files, case by case.

    `metric` is "time" or "memory". Time is the median of the samples of a case; of a generation, the seconds per new
    token, with its repeats as samples; of a training, the seconds per target token, with its steps as samples. The
    interval is that of `ratio_interval`; it covers the scatter inside the two runs only. Memory is the peak in the
    ledger, or the forecast of a plan: exact, without an interval. Cases match if all key columns that both files have
    are equal, except those in `ignore`, such as "execution_space" for two kinds of machine.

    Raises CompareError if the kinds differ, a file has no such values, keys are not unique, or no case matches.
    """
    if metric not in METRICS:
        raise CompareError(f"no metric '{metric}'; there are: {', '.join(METRICS)}")
    kinds = [str(groups[""].attrs.get("kind", "")) for groups in (a, b)]
    if kinds[0] != kinds[1]:
        raise CompareError(f"a run of kind '{kinds[0]}' cannot be compared with one of kind '{kinds[1]}'")
    frames = [_values(groups, kinds[0], metric) for groups in (a, b)]
    keys = [name for name in frames[0] if name in frames[1] and name not in (*ignore, "values")]
    notes = _unshared_columns(frames)
    for name, frame in zip("AB", frames):
        if frame.duplicated(keys).any():
            raise CompareError(f"run {name} has several cases with the same {', '.join(keys)}; ignore fewer columns")
    numbered = [frame.assign(row=range(len(frame))) for frame in frames]
    both = numbered[0].merge(numbered[1], on=keys, how="outer", suffixes=("_a", "_b"), indicator=True)
    both = both.sort_values(["row_a", "row_b"])
    matched = both[both["_merge"] == "both"]
    if matched.empty:
        raise CompareError(f"no case of A is in B: {_first_difference(frames, keys)}")
    notes += [_unmatched(both[both["_merge"] == side], keys, name, other)
              for side, name, other in (("left_only", "A", "B"), ("right_only", "B", "A"))
              if (both["_merge"] == side).any()]  # fmt: skip
    rows = [_compared(x, y, exact=metric == "memory") for x, y in zip(matched["values_a"], matched["values_b"])]
    names = ["a", "b", "ratio", "low", "high", "verdict"]
    table = matched[keys].reset_index(drop=True).join(pd.DataFrame(rows, columns=names))
    if metric == "time":
        notes += [note for name, groups in zip("AB", (a, b)) for note in _noise(name, groups)]
    return Comparison(metric, table, notes + _origins(a, b))


def _values(groups: Mapping[str, xr.Dataset], kind: str, metric: str) -> pd.DataFrame:
    """The key columns of the cases, and "values": the samples of each case, one where they are exact."""
    cases = groups.get("cases")
    if cases is None or cases.sizes.get("case", 0) == 0:
        raise CompareError(f"a file of kind '{kind}' without cases cannot be compared")
    frame = key_frame(cases)
    if metric == "memory":
        name = "peak_bytes" if "peak_bytes" in cases else "predicted_bytes"
        values = [np.array([value]) for value in _column(cases, name, kind).astype(float)]
        if "time_median" in cases:  # what did not run has no peak
            values = [x if np.isfinite(t) else x[:0] for x, t in zip(values, cases["time_median"].values)]
    elif kind == "generate":
        values = list(1 / _column(cases, "decode_rate", kind)[:, None])
        frame = frame.assign(values=values).drop(columns="repeat", errors="ignore")
        keys = list(frame.columns.drop("values"))
        frame = frame.groupby(keys, sort=False)["values"].agg(lambda found: np.concatenate(list(found))).reset_index()
        values = list(frame["values"])
    elif kind == "train":
        steps = groups.get("steps", xr.Dataset())
        times = _column(steps, "time", kind) / np.where(_column(steps, "tokens", kind) > 0, steps["tokens"], np.nan)
        values = [times] * len(frame)
    else:
        values = list(_column(cases, "time", kind))
    return frame.assign(values=[x[np.isfinite(x) & (x > 0)] for x in values])


def _column(data: xr.Dataset, name: str, kind: str) -> np.ndarray:
    if name not in data:
        raise CompareError(f"a file of kind '{kind}' has no column '{name}' to compare")
    return np.asarray(data[name].values)


def _compared(a: np.ndarray, b: np.ndarray, exact: bool) -> tuple:
    """A row of the table, behind its keys."""
    x, y = (float(np.median(values)) if len(values) else np.nan for values in (a, b))
    if np.isnan(x) or np.isnan(y):
        verdict = {(True, True): "none", (True, False): "gained", (False, True): "lost"}[bool(np.isnan(x)), bool(np.isnan(y))]
        return x, y, np.nan, np.nan, np.nan, verdict
    ratio = y / x
    low, high = (ratio, ratio) if exact else ratio_interval(a, b, CONFIDENCE)
    if low == high == 1:
        return x, y, ratio, low, high, "equal"
    verdict = "more" if low > 1 else "less" if high < 1 else "undecided"
    return x, y, ratio, low, high, verdict


def _noise(name: str, groups: Mapping[str, xr.Dataset]) -> list[str]:
    """What a run itself says of its times: the interval knows the scatter inside it alone."""
    cases = groups.get("cases", xr.Dataset())
    noisy = int(np.count_nonzero(cases["noisy"].values == "yes")) if "noisy" in cases else 0
    if noisy == 0:
        return []
    return [f"Noise decides the times of {noisy} of {cases.sizes['case']} cases of {name}: repeat the run on an idle machine."]


def _unshared_columns(frames: list[pd.DataFrame]) -> list[str]:
    names = sorted(set(frames[0]) ^ set(frames[1]))
    return [f"Only one of the runs has {', '.join(names)}: this was not compared."] if names else []


def _unmatched(rows: pd.DataFrame, keys: list[str], name: str, other: str) -> str:
    """A sentence on the cases that the other run does not have."""
    varying = [key for key in keys if rows[key].nunique() > 1] or keys
    some = [" ".join(f"{key} {row[key]}" for key in varying) for _, row in rows.head(_MOST_NAMED).iterrows()]
    more = ", ..." if len(rows) > _MOST_NAMED else ""
    count = "1 case" if len(rows) == 1 else f"{len(rows)} cases"
    return f"{count} of {name} {'is' if len(rows) == 1 else 'are'} not in {other}: {'; '.join(some)}{more}."


def _first_difference(frames: list[pd.DataFrame], keys: list[str]) -> str:
    for key in keys:
        if not set(frames[0][key]) & set(frames[1][key]):
            values = [", ".join(map(str, frame[key].unique()[:_MOST_NAMED])) for frame in frames]
            return f"{key} is {values[0]} in A and {values[1]} in B; 'ignore' can leave it out"
    return f"no two have the same {', '.join(keys)}"


def _origins(a: Mapping[str, xr.Dataset], b: Mapping[str, xr.Dataset]) -> list[str]:
    """Sentences on different machines, commits and builds, and on runs that did not end."""
    attributes = []
    for groups in (a, b):
        attributes.append({**(groups["provenance"].attrs if "provenance" in groups else {}), **groups[""].attrs})
    notes = []
    for name in _ORIGIN:
        values = [str(found.get(name, "")).strip() for found in attributes]
        if values[0] != values[1]:
            notes.append(f"{name} differs: {values[0] or 'none'} in A, {values[1] or 'none'} in B.")
    notes += [f"Run {name} did not end." for name, found in zip("AB", attributes) if not int(found.get("complete", 1))]
    return notes
