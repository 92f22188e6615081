# SPDX-License-Identifier: MIT
"""The tables of result files without timed sweeps: generations, memory plans, quantised checkpoints."""

import pandas as pd
import xarray as xr

from .reader import ResultFileError


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
    return table.assign(status=frame["status"])


def memory_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per case of a memory plan, in GiB."""
    frame = _frame(groups)
    keys = ["op", "execution_space", "dtype", "weights", "kv_cache", "prefill_chunk", "batch", "context"]
    table = frame[keys].rename(columns={"op": "purpose"})
    for name in ("weights", "kv_cache", "activations", "workspace"):
        table[f"{name}_GiB"] = frame[f"{name}_bytes"] / 2**30
    table["total_GiB"] = frame["predicted_bytes"] / 2**30
    return table.join(frame[["fits", "largest_context", "status"]])


def quantization_table(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row per quantised tensor."""
    if "tensors" not in groups:
        raise ResultFileError("the file has no tensors: the run did not finish")
    frame = groups["tensors"].drop_dims("axis", errors="ignore").to_dataframe()
    return frame[frame["quantized"] == "yes"].drop(columns="quantized").reset_index(drop=True)


# By the root attribute `kind`.
TABLES = {"generate": generation_table, "memory_plan": memory_table, "quantize": quantization_table}

# Formats of columns that are not printed with three decimals.
FORMATS = {"max_abs_err": "{:.3g}".format, "rel_rms_err": "{:.3g}".format, "cosine": "{:.6f}".format}


def _frame(groups: dict[str, xr.Dataset]) -> pd.DataFrame:
    if "cases" not in groups or groups["cases"].sizes.get("case", 0) == 0:
        raise ResultFileError("the file has no cases: the run stopped before its first case was finished")
    return groups["cases"].to_dataframe()
