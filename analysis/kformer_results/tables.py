# SPDX-License-Identifier: MIT
"""The tables of result files without timed sweeps: generations, memory plans, quantised checkpoints."""

import pandas as pd
import xarray as xr

from .reader import ResultFileError

# Of memory, with the columns that have their bytes.
_CLASSES = {
    "weights": "weights_bytes", "grads": "gradients_bytes", "optim": "optimizer_bytes", "cache": "kv_cache_bytes",
    "activ": "activations_bytes", "work": "workspace_bytes", "commun": "communication_bytes", "io": "io_bytes",
}  # fmt: skip

_HOST_SPACES = ("serial", "openmp", "threads")


def generation_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per generation (a prompt, continued by a batch), with `peak_MiB` and with `mean_nll` over its rows."""
    frame = _frame(groups)
    table = frame[["prompt", "repeat", "batch", "dtype", "kv_cache", "prompt_tokens", "new_tokens"]].copy()
    table["prefill_tokens/s"] = frame["prefill_rate"]
    table["decode_tokens/s"] = frame["decode_rate"]
    table["share_of_limit"] = frame["share_of_limit"]
    table["peak_MiB"] = frame["peak_bytes"] / 2**20
    if "generations" in groups:
        rows = groups["generations"].to_dataframe()
        table["mean_nll"] = rows.groupby("case")["mean_nll"].mean().reindex(table.index)
    return table.join(frame[[name for name in ("noisy", "status") if name in frame]])


def memory_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per case of a memory plan, in GiB: every class, their peak together, the budget, and what it leaves or lacks.

    The budget is for the memory of the execution space (`bytes_in_space`). `in_space_GiB` is there if a case also takes other
    memory, as of the host beside a device.
    `fits` is the status of a case that cannot run anyway; nothing was counted of one that is not supported.
    `extra_time` is the share of recomputation.
    """
    frame = _frame(groups)
    keys = ["op", "execution_space", "dtype", "weights", "kv_cache", "recompute", "prefill_chunk", "batch", "context"]
    table = frame[keys].rename(columns={"op": "purpose"})
    for name, column in _CLASSES.items():
        if column in frame:  # files of version 1.0 lack some
            table[f"{name}_GiB"] = frame[column] / 2**30
    total, budget = (frame[name].astype(float) / 2**30 for name in ("predicted_bytes", "available_bytes"))
    in_space = bytes_in_space(frame) / 2**30
    table = table.assign(total_GiB=total, in_space_GiB=in_space, budget_GiB=budget, left_GiB=budget - in_space)
    counted = [name for name in table if name.endswith("_GiB") and name != "budget_GiB"]
    table[counted] = table[counted].where(frame["status"] != "unsupported")
    if (in_space.isna() | (in_space == total)).all():
        table = table.drop(columns="in_space_GiB")
    table["fits"] = frame["fits"].where(frame["status"].isin(["ok", "skipped_memory"]), frame["status"])
    found = {"max_context": "largest_context", "max_batch": "largest_batch", "extra_time": "recompute_share"}
    return table.assign(**{name: frame[column] for name, column in found.items()})


def bytes_in_space(frame: pd.DataFrame) -> pd.Series:
    """Of each case of a memory plan, the peak in the memory of its execution space, to which its budget applies.

    Files of earlier programs lack it: NaN on a device, where `predicted_bytes` contain memory of the host.
    """
    if "space_bytes" in frame:
        return frame["space_bytes"].astype(float)
    return frame["predicted_bytes"].astype(float).where(frame["execution_space"].isin(_HOST_SPACES))


def quantization_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per quantised tensor."""
    if "tensors" not in groups:
        raise ResultFileError("the file has no tensors: the run did not finish")
    frame = groups["tensors"].drop_dims("axis", errors="ignore").to_dataframe()
    return frame[frame["quantized"] == "yes"].drop(columns="quantized").reset_index(drop=True)


def training_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per evaluation of a training, with the mean of the steps since the one before; the last row is its end.

    `tokens/s` is of the steps whose time is known: that of a step with a profile is not.
    """
    if "steps" not in groups or groups["steps"].sizes.get("step", 0) == 0:
        raise ResultFileError("the file has no steps: the run stopped before its first step was finished")
    steps = groups["steps"].to_dataframe().reset_index()
    found = groups["evaluations"].to_dataframe() if "evaluations" in groups else pd.DataFrame({"step": [], "loss": []})
    rows, begin = [], 0
    for end in sorted({*found["step"].astype(int), len(steps)}):
        part = steps.iloc[begin:end]
        losses = found.loc[found["step"] == end, "loss"]
        timed = part["tokens"].where(part["time"].notna())
        rows.append({
            "steps": end, "loss": part["loss"].mean(), "evaluation": losses.iloc[0] if len(losses) else float("nan"),
            "tokens/s": timed.sum() / part["time"].sum(min_count=1), "skipped": int((part["skipped"] == "yes").sum()),
        })  # fmt: skip
        begin = end
    return pd.DataFrame(rows)


def scaling_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per grid of ranks that ran, and one per grid that was simulated on the machine of the deck."""
    frame = _frame({"cases": groups["cases"].drop_dims("repeat", errors="ignore")} if "cases" in groups else groups)
    table = frame[["grid", "ranks", "tokens", "time_median", "efficiency", "communication_share"]].copy()
    table["peak_MiB"] = frame["peak_bytes"] / 2**20
    table = table.join(frame[[name for name in ("noisy", "status") if name in frame]])
    if "simulation/grids" not in groups:
        return table
    simulated = groups["simulation/grids"].to_dataframe()
    ran = simulated[simulated["case"] >= 0].set_index("case")
    table["simulated_time"] = ran["simulated_time"].reindex(table.index)
    table["simulation_error"] = ran["relative_error"].reindex(table.index)
    alone = simulated[simulated["case"] < 0]
    extra = alone[["grid", "ranks", "efficiency", "simulated_time"]].assign(
        peak_MiB=alone["predicted_bytes"] / 2**20, status="simulated"
    )
    return pd.concat([table, extra], ignore_index=True) if len(extra) else table


# By the root attribute `kind`.
TABLES = {
    "generate": generation_table,
    "memory_plan": memory_table,
    "quantize": quantization_table,
    "scaling": scaling_table,
    "train": training_table,
}

# Formats of columns that are not printed with three decimals.
FORMATS = {
    "max_rel_err": "{:.2e}".format, "max_abs_err": "{:.3g}".format, "rel_rms_err": "{:.3g}".format, "cosine": "{:.6f}".format,
    "time_median": "{:.4g}".format, "simulated_time": "{:.4g}".format,
}  # fmt: skip


def _frame(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    if "cases" not in groups or groups["cases"].sizes.get("case", 0) == 0:
        raise ResultFileError("the file has no cases: the run stopped before its first case was finished")
    return groups["cases"].to_dataframe()
