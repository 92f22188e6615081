# SPDX-License-Identifier: MIT
"""Compares two runs: their cases matched by what was run, ratios with intervals of confidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from .axes import listed
from .inputs import input_differences
from .ranks import ratio_interval
from .samples import METRICS, CompareError, default_metric, samples_of, unit_of

CONFIDENCE = 0.95
# Attributes that say where numbers come from, of the root and of /provenance.
_ORIGIN = (
    "git_sha", "git_dirty", "softwareVersion", "hostname", "cpu_model", "cpu_threads", "device_name", "compiler",
    "compiler_version", "build_type", "cxx_flags", "kokkos_version", "kokkos_backends", "kokkos_concurrency",
)  # fmt: skip
_MOST_NAMED = 3


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    `table` has a row for each case of both runs: its keys, the values `a` and `b` in `unit` ("s", "s/token", "byte", or
    "1" of errors), `ratio` (b over a: above 1, B takes more), the limits `low` and `high` of its interval, `verdict`:
    "equal", "undecided" (the interval contains 1), "less", "more", "lost" (only A has a value), "gained" (only B has one)
    or "none" (neither has one), and `noisy`: the runs that say themselves that noise decides this time, "A", "B", "A and
    B" or "".

    `inputs` names each key of the decks that differs, with both values (input_differences): where it is a model, a prompt
    or a setting, the ratios compare different work. `missing` counts the cases that A has a value of and that are not in B,
    as of a run that did not end: they have no row. `notes` are sentences on what was not compared and on what else
    differs, such as machines and commits.
    """

    metric: str
    unit: str
    table: pd.DataFrame
    inputs: list[str]
    notes: list[str]
    missing: int = 0

    def beyond(self, threshold: float, strict: bool = False) -> pd.DataFrame:
        """The cases whose ratio exceeds the threshold and is decided, and those that only A has a value of.

        Noisy ratios count only if `strict`.
        """
        verdict, quiet = self.table["verdict"], self.table["noisy"] == ""
        return self.table[(verdict == "more") & (self.table["ratio"] > threshold) & (quiet | strict) | (verdict == "lost")]


def compare(
    a: Mapping[str, xr.Dataset], b: Mapping[str, xr.Dataset], metric: str | None = None, ignore: str | Sequence[str] = ()
) -> Comparison:
    """Compares what open_results returned of two files, case by case; of quantised checkpoints, tensor by tensor.

    `metric` is "time", "memory" or "error"; by default, plans are compared by memory, quantised checkpoints by error, and
    all others by time. Time is the median of the samples of a case; of a generation, the seconds per new token, with its
    repeats as samples; of a training, the seconds per target token, with its steps as samples. The interval is that of
    `ratio_interval`; it covers the scatter inside the two runs only. Memory is the peak in the ledger, the forecast of a
    plan, or the bytes of a tensor, and an error the rms error over the rms of the weights: exact, without an interval.
    Cases match if all key columns that both files have are equal, except those in `ignore`, such as "execution_space" for
    two kinds of machine. Keys do not say which model ran, or the text of a prompt: see `Comparison.inputs`.

    Raises CompareError if the kinds differ, a file has no such values, there is no column to ignore, keys are not unique,
    or no case matches.
    """
    if metric is not None and metric not in METRICS:
        raise CompareError(f"no metric '{metric}'; there are: {', '.join(METRICS)}")
    kinds = [str(groups[""].attrs.get("kind", "")) for groups in (a, b)]
    if kinds[0] != kinds[1]:
        raise CompareError(f"a run of kind '{kinds[0]}' cannot be compared with one of kind '{kinds[1]}'")
    metric = metric or default_metric(kinds[0])
    frames = [samples_of(groups, kinds[0], metric) for groups in (a, b)]
    keys = _keys(frames, listed(ignore))
    numbered = [frame.assign(row=range(len(frame))) for frame in frames]
    both = numbered[0].merge(numbered[1], on=keys, how="outer", suffixes=("_a", "_b"), indicator=True)
    both = both.sort_values(["row_a", "row_b"])
    matched = both[both["_merge"] == "both"]
    if matched.empty:
        raise CompareError(f"no case of A is in B: {_first_difference(frames, keys)}")
    rows = [_compared(x, y, exact=metric != "time") for x, y in zip(matched["values_a"], matched["values_b"])]
    table = matched[keys].reset_index(drop=True)
    table = table.join(pd.DataFrame(rows, columns=["a", "b", "ratio", "low", "high", "verdict"]))
    table["noisy"] = [" and ".join(name for name, noisy in zip("AB", pair) if noisy)
                      for pair in zip(matched["noisy_a"], matched["noisy_b"])]  # fmt: skip
    missing = sum(len(values) > 0 for values in both.loc[both["_merge"] == "left_only", "values_a"])
    notes = _unshared_columns(frames) + _unmatched(both, keys)
    if metric == "time":
        notes += [note for name, groups in zip("AB", (a, b)) for note in _noise(name, groups)]
    notes += _formats(a, b) + _origins(a, b)
    return Comparison(metric, unit_of(kinds[0], metric), table, input_differences(a, b), notes, missing)


def _keys(frames: list[pd.DataFrame], ignore: Sequence[str]) -> list[str]:
    """The columns by which cases match."""
    known = [name for name in dict.fromkeys((*frames[0], *frames[1])) if name not in ("values", "noisy")]
    if unknown := [name for name in ignore if name not in known]:
        raise CompareError(f"'{unknown[0]}' is not a column that identifies cases; these are: {', '.join(known)}")
    keys = [name for name in known if name in frames[0] and name in frames[1] and name not in ignore]
    for name, frame in zip("AB", frames):
        if frame.duplicated(keys).any():
            advice = "ignore fewer columns" if ignore else "no other column tells them apart"
            raise CompareError(f"run {name} has several cases with the same {', '.join(keys)}; {advice}")
    return keys


def _compared(a: np.ndarray, b: np.ndarray, exact: bool) -> tuple:
    """A row of the table, behind its keys."""
    x, y = (float(np.median(values)) if len(values) else np.nan for values in (a, b))
    if np.isnan(x) or np.isnan(y):
        verdict = {(True, True): "none", (True, False): "gained", (False, True): "lost"}[bool(np.isnan(x)), bool(np.isnan(y))]
        return x, y, np.nan, np.nan, np.nan, verdict
    if x == y == 0:
        return x, y, 1.0, 1.0, 1.0, "equal"
    ratio = y / x if x else np.inf
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


def _unmatched(both: pd.DataFrame, keys: list[str]) -> list[str]:
    """Sentences on the cases of each run that the other one does not have."""
    varying = [key for key in keys if both[key].nunique() > 1] or keys
    notes = []
    for side, name, other in (("left_only", "A", "B"), ("right_only", "B", "A")):
        rows = both[both["_merge"] == side]
        some = [" ".join(f"{key} {row[key]}" for key in varying) for _, row in rows.head(_MOST_NAMED).iterrows()]
        more = "; ..." if len(rows) > _MOST_NAMED else ""
        count = "1 case of {} is" if len(rows) == 1 else f"{len(rows)} cases of {{}} are"
        notes += [f"{count.format(name)} not in {other}: {'; '.join(some)}{more or '.'}"] if some else []
    return notes


def _first_difference(frames: list[pd.DataFrame], keys: list[str]) -> str:
    for key in keys:
        if not set(frames[0][key]) & set(frames[1][key]):
            values = [", ".join(map(str, frame[key].unique()[:_MOST_NAMED])) for frame in frames]
            return f"{key} is {values[0]} in A and {values[1]} in B; 'ignore' can leave it out"
    return f"no two have the same {', '.join(keys)}"


def _formats(a: Mapping[str, xr.Dataset], b: Mapping[str, xr.Dataset]) -> list[str]:
    """Sentences on tensors of quantised checkpoints that are of different formats."""
    tensors = [groups.get("tensors", xr.Dataset()) for groups in (a, b)]
    if not all({"name", "format_after"} <= set(found) for found in tensors):
        return []
    formats = [pd.Series(found["format_after"].values, found["name"].values, name="format") for found in tensors]
    both = pd.concat(formats, axis=1, keys=["a", "b"], join="inner")
    counts = both[both["a"] != both["b"]].value_counts(sort=False)
    return [f"{count} tensor{'s are' if count > 1 else ' is'} {x} in A and {y} in B." for (x, y), count in counts.items()]


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
