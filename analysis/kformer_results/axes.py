# SPDX-License-Identifier: MIT
"""Which columns of the cases are the axes of a sweep."""

import tomllib

import numpy as np
import pandas as pd
import xarray as xr

# The columns of /cases that say what was run, of every kind. All others are results.
KEYS = (
    "op", "prompt", "execution_space", "dtype", "direction", "impl", "causal", "window", "num_attention_heads",
    "num_key_value_heads", "head_dim", "v_head_dim", "hidden_size", "intermediate_size", "parameters", "weights",
    "activations", "kv_cache", "recompute", "prefill_chunk", "batch", "context", "q_len", "seq_len", "repeat",
)  # fmt: skip
# Those of a scaling study, which alone has a column `grid`: elsewhere `schedule` is a result.
_SCALING_KEYS = (
    "data", "context", "tensor", "pipeline", "zero", "sequence", "context_exchange", "schedule", "parts", "scaling",
)  # fmt: skip
# Where the sweep of the deck names none that are columns, by kind.
_AXES = {"generate": ["prompt", "repeat"], "scaling": ["data", "context", "tensor", "pipeline"]}
_COLUMNS = {"purpose": "op"}  # the columns of axes that have another name in the deck
# Columns that follow another one where the deck says 0.
_FOLLOWS = {"q_len": "seq_len", "v_head_dim": "head_dim"}


def with_axes(cases: xr.Dataset, kind: str, deck: str) -> xr.Dataset:
    """The cases with the attributes `sweep_axes` and `zipped_axes`: names from the resolved deck, in its order.

    Zipped axes are those with several values in a sweep of mode "zip". Without a readable deck there are no attributes.
    """
    try:
        sweep = tomllib.loads(deck).get("sweep", {})
        values = {name: found for name, found in sweep.items() if isinstance(found, list) and name != "exclude"}
        zipped = [name for name, found in values.items() if len(found) > 1 and sweep.get("mode") == "zip"]
    except (AttributeError, RecursionError, ValueError):
        return cases
    if not deck:
        return cases
    axes = _known(list(values), cases) or _known(_AXES.get(kind, []), cases)
    return cases.assign_attrs(sweep_axes=" ".join(axes), zipped_axes=" ".join(_known(zipped, cases)))


def key_names(cases: xr.Dataset) -> list[str]:
    """The columns of the cases that say what was run."""
    names = dict.fromkeys((*KEYS, *_SCALING_KEYS) if "grid" in cases else KEYS)
    return [name for name in names if name in cases and cases[name].dims == ("case",)]


def key_frame(cases: xr.Dataset) -> pd.DataFrame:
    """The columns of key_names, indexed by case.

    As in the deck, `q_len` is 0 where it is the sequence length, and `v_head_dim` where it is `head_dim`; otherwise
    they could not be told from these.
    """
    found = {name: np.asarray(cases[name].values) for name in key_names(cases)}
    frame = pd.DataFrame(found, index=pd.Index(np.asarray(cases["case"].values), name="case"))
    for name, leader in _FOLLOWS.items():
        if {name, leader} <= set(frame):
            frame[name] = frame[name].where(frame[name] != frame[leader], 0)
    return frame


def _known(names: list[str], cases: xr.Dataset) -> list[str]:
    columns = [_COLUMNS.get(name, name) for name in names]
    return [name for name in columns if name in key_names(cases)]
