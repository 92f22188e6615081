# SPDX-License-Identifier: MIT
"""The values by which two runs are compared: of each case its samples, or one exact value."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from .axes import key_frame
from .reader import ResultFileError

METRICS = ("time", "memory", "error")
# Of kinds without times.
_DEFAULTS = {"memory_plan": "memory", "quantize": "error"}
_PER_TOKEN = ("generate", "train")
# Of cases that did not run to their end.
_WITHOUT_PEAK = ("out_of_memory", "error", "unsupported", "skipped_memory")
# Plans forecast also what does not fit. A training that diverged has the status "error", but ran all its steps.
_WITHOUT_PEAK_OF = {"memory_plan": ("unsupported",), "train": ("out_of_memory", "unsupported", "skipped_memory")}


class CompareError(ResultFileError):
    """The two runs cannot be compared; the text says why and what to do."""


def default_metric(kind: str) -> str:
    """What runs of this kind are compared by unless somebody asks for another metric."""
    return _DEFAULTS.get(kind, "time")


def unit_of(kind: str, metric: str) -> str:
    """The unit of the values: "s", "s/token", "byte" or "1"."""
    if metric == "time":
        return "s/token" if kind in _PER_TOKEN else "s"
    return {"memory": "byte", "error": "1"}[metric]


def samples_of(groups: Mapping[str, xr.Dataset], kind: str, metric: str) -> pd.DataFrame:
    """A row for each case: its key columns, "values", the samples or one exact value, and "noisy".

    `noisy` says whether the run itself says that noise decides the time. Raises CompareError if there are no such values.
    """
    if kind == "quantize":
        return _tensors(groups, kind, metric)
    cases = groups.get("cases")
    if cases is None or cases.sizes.get("case", 0) == 0:
        raise CompareError(f"a file of kind '{kind}' without cases cannot be compared")
    if metric == "error":
        raise CompareError(f"files of kind '{kind}' are compared by time or memory, not by error")
    noisy = metric == "time" and "noisy" in cases and cases["noisy"].values == "yes"
    frame = key_frame(cases, follow=False).assign(noisy=noisy)
    if metric == "memory":
        values = _exact(_column(cases, "peak_bytes" if "peak_bytes" in cases else "predicted_bytes", kind))
        if "status" in cases:
            without = _WITHOUT_PEAK_OF.get(kind, _WITHOUT_PEAK)
            values = [x[:0] if status in without else x for x, status in zip(values, cases["status"].values)]
    elif kind == "generate":
        return _repeats(frame, 1 / _column(cases, "decode_rate", kind)[:, None])
    elif kind == "train":
        steps = groups.get("steps", xr.Dataset())
        times = _column(steps, "time", kind) / np.where(_column(steps, "tokens", kind) > 0, steps["tokens"], np.nan)
        values = [times] * len(frame)
    else:
        values = list(_column(cases, "time", kind))
    return frame.assign(values=[_positive(x) for x in values])


def _repeats(frame: pd.DataFrame, times: np.ndarray) -> pd.DataFrame:
    """Repeats of a prompt are the samples of one case, which is noisy if one of them is."""
    frame = frame.assign(values=[_positive(x) for x in times]).drop(columns="repeat", errors="ignore")
    groups = frame.groupby(list(frame.columns.drop(["values", "noisy"])), sort=False)
    values = groups["values"].agg(lambda found: np.concatenate(list(found)))
    return values.to_frame().assign(noisy=groups["noisy"].any()).reset_index()


def _tensors(groups: Mapping[str, xr.Dataset], kind: str, metric: str) -> pd.DataFrame:
    """A row for each tensor: the error of those that were made anew, or the bytes of all."""
    if metric == "time":
        raise CompareError(f"files of kind '{kind}' are compared by error or memory, not by time")
    if "tensors" not in groups:
        raise CompareError("a quantised checkpoint without tensors cannot be compared: the run did not finish")
    tensors = groups["tensors"]
    if metric == "error":
        tensors = tensors.isel(tensor=_column(tensors, "quantized", kind) == "yes")
    values = _exact(_column(tensors, "rel_rms_err" if metric == "error" else "bytes_after", kind))
    names = _column(tensors, "name", kind)
    return pd.DataFrame({"name": names, "noisy": False, "values": [x[np.isfinite(x)] for x in values]})


def _exact(column: np.ndarray) -> list[np.ndarray]:
    return [np.array([value]) for value in column.astype(float)]


def _positive(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values) & (values > 0)]


def _column(data: xr.Dataset, name: str, kind: str) -> np.ndarray:
    if name not in data:
        raise CompareError(f"a file of kind '{kind}' has no column '{name}' to compare")
    return np.asarray(data[name].values)
