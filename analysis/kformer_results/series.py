# SPDX-License-Identifier: MIT
"""The numbers behind the plots and the table: plain pandas, no plotting."""

from typing import Any

import pandas as pd
import xarray as xr

from .axes import FOLLOWS, followed
from .reader import ResultFileError

UNATTRIBUTED = "un-attributed"
_PASSES = ("forward", "backward", "optimizer")  # of which a step has all
# What distinguishes the configurations of an attention comparison, besides space, dtype and direction.
_CONFIGURATION = (
    "causal", "window", "num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim", "batch", "q_len",
)  # fmt: skip


def case_frame(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row for each case, indexed by its number; with `working_bytes`, the peak of activations and workspace.

    A case without a time did not run to its end, so it has no peak either.

    Raises ResultFileError if the file has no cases, because the run ended before its first one.
    """
    cases = groups.get("cases")
    if cases is None or cases.sizes.get("case", 0) == 0:
        raise ResultFileError("the file has no cases: the run stopped before its first case was finished")
    frame = cases.drop_dims("repeat", errors="ignore").to_dataframe()
    if "execution_space" not in frame:
        frame["execution_space"] = "unknown"
    if "memory/classes" in groups:
        peaks = groups["memory/classes"]["peak_bytes"].astype(float)
        wanted = [name for name in ("activations", "workspace") if name in peaks["memory_class"].values]
        peak = peaks.sel(memory_class=wanted).sum("memory_class").to_series()
        frame["working_bytes"] = peak.where(frame["time_median"].notna())
    return frame


def select(frame: pd.DataFrame, op: str | None = None, batch: int | None = None) -> pd.DataFrame:
    """The cases that one plot can show: one op and one batch size, by default those of the first case.

    Raises ResultFileError if the file has no such case; the text lists what it has.
    """
    for name, value in (("op", op), ("batch", batch)):
        if name not in frame:
            continue
        value = frame[name].iloc[0] if value is None else value
        if value not in set(frame[name]):
            known = ", ".join(str(known) for known in frame[name].unique())
            raise ResultFileError(f"no case has {name} {value}; the file has: {known}")
        frame = frame[frame[name] == value]
    return frame


def configuration_numbers(frame: pd.DataFrame) -> "pd.Series[int]":
    """The configuration of each case of an attention comparison, counted from 0 in the order of their first cases.

    Cases of one configuration differ only in length and implementation. All cases of other frames have number 0.
    """
    keys = _configurations(frame)
    return keys.groupby(list(keys), sort=False).ngroup() if len(keys.columns) else pd.Series(0, frame.index)


def _configurations(frame: pd.DataFrame) -> pd.DataFrame:
    """What tells configurations apart; no columns for other frames.

    As in the deck, `q_len` is 0 where it is the sequence length, and `v_head_dim` where it is `head_dim` (followed).
    """
    if not set(_CONFIGURATION) <= set(frame):
        return frame[[]]
    keys = frame[list(_CONFIGURATION)].copy()
    for name, leader in FOLLOWS.items():
        keys[name] = followed(frame[name], frame[leader])
    return keys


def select_configuration(frame: pd.DataFrame, number: int = 0) -> pd.DataFrame:
    """The cases that one plot can show: those of one configuration.

    Raises ResultFileError if there is no such number.
    """
    if not set(_CONFIGURATION) <= set(frame):
        return frame
    numbers = configuration_numbers(frame)
    if not 0 <= number <= numbers.max():
        raise ResultFileError(f"no configuration {number}; the file has 0 to {numbers.max()}")
    return frame[numbers == number]


def selections(frame: pd.DataFrame) -> list[tuple[dict[str, Any], str]]:
    """What `select` and `select_configuration` can choose, in the order of the first cases: names and values of their
    arguments, and what tells these cases from the others, such as "batch 4, window 1024"."""
    names = [name for name in ("op", "batch") if name in frame]
    parts = [part for _, part in frame.groupby(names, sort=False, dropna=False)] if names else [frame]
    keys = pd.concat([part[names].assign(**_configurations(part)) for part in parts]).loc[frame.index]
    firsts = keys.drop_duplicates() if len(keys.columns) else keys.head(1)
    differ = [name for name in firsts if firsts[name].nunique() > 1]
    found: list[tuple[dict[str, Any], str]] = []
    for case, row in firsts.iterrows():
        chosen = {name: row[name] for name in names}
        number = int(configuration_numbers(select(frame, **chosen))[case])
        # What is as another column says is 0.
        words = [f"{name} {row[name]}" for name in differ if name not in FOLLOWS or row[name]]
        found.append(({**chosen, "configuration": number}, ", ".join(words)))
    return found


def noisy(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Of each case whether the run says that noise decides its time."""
    return frame["noisy"] == "yes" if "noisy" in frame else pd.Series(False, frame.index)


def speedups(frame: pd.DataFrame) -> pd.DataFrame:
    """Time of standard attention over time of flash, where both were timed and noise decides neither.

    One row for each execution space, direction, dtype and sequence length.
    """
    keys = ["execution_space", "direction", "dtype", "seq_len"]
    both = frame[~noisy(frame)].pivot_table(index=keys, columns="impl", values="time_median", sort=False)
    if not {"standard", "flash"} <= set(both):
        return pd.DataFrame(columns=keys + ["speedup"])
    return (both["standard"] / both["flash"]).dropna().rename("speedup").reset_index()


def crossover_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per configuration of a comparison: its keys, the length from which flash is faster ("-" if there is
    none), and its speed-up at each length. Empty if nothing was timed both ways."""
    if "comparison" not in groups:
        return pd.DataFrame()
    comparison = groups["comparison"]
    scalars = comparison.drop_dims("seq_len").to_dataframe()
    shown = ["execution_space", "dtype", "direction"]
    shown += [name for name in _CONFIGURATION if name in scalars and scalars[name].nunique() > 1]
    table = scalars[shown].copy()
    table["faster_from"] = ["-" if pd.isna(length) else str(int(length)) for length in scalars["crossover_seq_len"]]
    for length in comparison["seq_len"].values:
        table[f"x@{length}"] = comparison["speedup"].sel(seq_len=length).to_series()
    return table


def curve(frame: pd.DataFrame, column: str, **where: str) -> pd.DataFrame:
    """The cases of one line in a plot, sorted by sequence length; values are missing where a case did not run."""
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return frame.sort_values("seq_len")[
        ["seq_len", column] + [c for c in ("time_p10", "time_p90", "noisy") if c in frame]
    ]


def memory_reduction(frame: pd.DataFrame) -> pd.DataFrame:
    """The share of working memory that flash saves against standard; 0.9 means ninety per cent less.

    One row for each direction, dtype and sequence length that ran both ways. Spaces take the same memory up to
    rounding, so the smallest reduction of them counts.
    """
    keys = ["execution_space", "direction", "dtype", "seq_len"]
    both = frame.pivot_table(index=keys, columns="impl", values="working_bytes", sort=False)
    if not {"standard", "flash"} <= set(both):
        return pd.DataFrame(columns=keys[1:] + ["reduction"])
    reduction = (1 - both["flash"] / both["standard"]).dropna().rename("reduction")
    return reduction.groupby(keys[1:], sort=False).min().reset_index()


def block_seconds(regions: xr.Dataset, case: int) -> pd.DataFrame:
    """Seconds that one call of one case spent in each block, with columns direction, block, seconds.

    The second part of a region's path names the block ("forward/attention/scores" counts for "attention"); what
    the enclosing region ("forward") spent outside of its blocks is the block "un-attributed".
    """
    rows = regions.to_dataframe()
    rows = rows[rows["case"] == case]
    parts = rows["path"].str.split("/")
    found = []
    for direction in _PASSES:
        inside = parts.str[0] == direction
        whole = rows[inside & (parts.str.len() == 1)]
        blocks = rows[inside & (parts.str.len() == 2)]
        if blocks.empty:
            continue
        seconds = blocks["inclusive"].groupby(parts[blocks.index].str[1], sort=False).sum()
        calls = blocks["count"].min()
        if not whole.empty:
            calls = whole["count"].sum()
            seconds[UNATTRIBUTED] = max(whole["inclusive"].sum() - seconds.sum(), 0.0)
        found += [(direction, block, time / calls) for block, time in seconds.items()]
    return pd.DataFrame(found, columns=["direction", "block", "seconds"])


def breakdown(groups: dict[str, xr.Dataset], frame: pd.DataFrame) -> pd.DataFrame:
    """Block times at the longest sequence that every attention implementation finished, on the first space.

    Rows are (direction, dtype, impl), columns are blocks in the order in which they ran, values are seconds;
    the attributes `seq_len` and `execution_space` of `.attrs` say for which cases, and `noisy` lists the rows whose
    time noise decides. Empty if nothing was profiled.
    """
    if "regions" not in groups:
        return pd.DataFrame()
    regions = groups["regions"]
    space = frame["execution_space"].iloc[0]
    profiled = frame[frame.index.isin(regions["case"].values) & (frame["execution_space"] == space)]
    if profiled.empty:
        return pd.DataFrame()
    ways = profiled.groupby("seq_len")["impl"].nunique()
    seq_len = int(ways.index[ways == ways.max()].max())
    found = []
    disturbed = []
    at_length = profiled[profiled["seq_len"] == seq_len].assign(noisy=noisy)
    for case, row in at_length.iterrows():
        times = block_seconds(regions, case)
        if row["direction"] == "step":
            times = times.assign(direction="step")
        elif row["direction"] in _PASSES:
            times = times[times["direction"] == row["direction"]]
        found.append(times.assign(dtype=row["dtype"], impl=row["impl"]))
        if row["noisy"]:
            disturbed += [(direction, row["dtype"], row["impl"]) for direction in times["direction"].unique()]
    long = pd.concat(found)
    if long.empty:
        return pd.DataFrame()
    table = long.pivot_table(
        index=["direction", "dtype", "impl"], columns="block", values="seconds", aggfunc="sum", sort=False
    )
    table = table[[name for name in table if name != UNATTRIBUTED] + [n for n in table if n == UNATTRIBUTED]]
    table.attrs.update(seq_len=seq_len, execution_space=space, noisy=disturbed)
    return table


def run_label(groups: dict[str, xr.Dataset]) -> str:
    """One line on the origin of the numbers: git sha, device, date."""
    root = groups[""].attrs
    sha = str(root.get("git_sha", "")).strip()[:10] or "unknown"
    dirty = " with local changes" if int(root.get("git_dirty", 0)) else ""
    parts = [f"Kformer {root.get('softwareVersion', '')}".strip(), f"git {sha}{dirty}", _device(groups)]
    parts.append(str(root.get("date", "")))
    if not int(root.get("complete", 1)):
        parts.append("the run did not end: cases so far")
    return "  ·  ".join(part for part in parts if part)


def summary_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per case, in common units: ms, TFLOP/s, MiB."""
    frame = case_frame(groups)
    keys = ["op", "impl", "direction", "dtype", "execution_space", "batch", "seq_len"]
    table = frame[[name for name in keys if name in frame]].copy()
    table["time_ms"] = frame["time_median"] * 1e3
    if "working_bytes" in frame:
        table["act+work_MiB"] = frame["working_bytes"] / 2**20
    if set(_CONFIGURATION) <= set(frame):
        keys += [name for name in _CONFIGURATION if name not in keys and frame[name].nunique() > 1]
        table = frame[keys].assign(**table.drop(columns=keys, errors="ignore"))
    shown = ["tflops", "share_of_limit", "share_of_fma_peak", "max_rel_err", "noisy", "status"]
    return table.join(frame[[name for name in shown if name in frame]])


def _device(groups: dict[str, xr.Dataset]) -> str:
    attrs = groups["provenance"].attrs if "provenance" in groups else {}
    device = str(attrs.get("device_name", "")).strip()
    cpu = str(attrs.get("cpu_model", "")).strip()
    if cpu and "cpu_threads" in attrs:
        cpu += f", {int(attrs['cpu_threads'])} threads"
    return device or cpu
