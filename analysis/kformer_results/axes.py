# SPDX-License-Identifier: MIT
"""Which columns of the cases are the axes of a sweep."""

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
FOLLOWS = {"q_len": "seq_len", "v_head_dim": "head_dim"}


@dataclass(frozen=True)
class _Sweep:
    """The lists of a deck's sweep, and whether they go together."""

    values: Mapping[str, list[Any]]
    is_zip: bool

    def zipped(self) -> list[str]:
        return [name for name, found in self.values.items() if len(found) > 1 and self.is_zip]

    def is_point(self) -> bool:
        return self.is_zip and not self.zipped()

    def attributes(self, kind: str, columns: Collection[str]) -> dict[str, str]:
        axes = _known(list(self.values), columns) or _known(_AXES.get(kind, []), columns)
        return {"sweep_axes": " ".join(axes), "zipped_axes": " ".join(_known(self.zipped(), columns))}


def _sweep_of(deck: str) -> _Sweep | None:
    """None if the deck cannot be read."""
    try:
        sweep = tomllib.loads(deck).get("sweep", {})
        values = {name: found for name, found in sweep.items() if isinstance(found, list) and name != "exclude"}
        return _Sweep(values, sweep.get("mode") == "zip") if deck else None
    except (AttributeError, RecursionError, ValueError):
        return None


def with_axes(cases: xr.Dataset, kind: str, deck: str) -> xr.Dataset:
    """The cases with the attributes `sweep_axes` and `zipped_axes`: names from the resolved deck, in its order.

    Zipped axes are those with several values in a sweep of mode "zip". Without a readable deck there are no attributes.
    """
    return cases.assign_attrs(joined_axes(kind, [deck], key_names(cases)))


def joined_axes(kind: str, decks: Iterable[str], columns: Collection[str]) -> dict[str, str]:
    """The attributes of `with_axes` for cases of these decks with these key columns, whatever the order of the decks.

    Those of each deck if all agree. Otherwise all that are axes in any deck, in the order of `columns`; they are zipped where
    every deck zips the same ones. A zip of one point agrees with any other.
    """
    sweeps = [_sweep_of(deck) for deck in dict.fromkeys(decks)]
    found = [{} if sweep is None else sweep.attributes(kind, columns) for sweep in sweeps]
    if all(one == found[0] for one in found):
        return found[0]
    axes = [set(one.get("sweep_axes", "").split()) for one in found]
    zipped = [set(one.get("zipped_axes", "").split()) for one, sweep in zip(found, sweeps) if not (sweep and sweep.is_point())]
    together = zipped[0] if zipped and all(one == zipped[0] for one in zipped) else set()
    return {name: " ".join(column for column in columns if column in chosen)
            for name, chosen in (("sweep_axes", set().union(*axes)), ("zipped_axes", together))}  # fmt: skip


def key_names(cases: xr.Dataset) -> list[str]:
    """The columns of the cases that say what was run."""
    names = dict.fromkeys((*KEYS, *_SCALING_KEYS) if "grid" in cases else KEYS)
    return [name for name in names if name in cases and cases[name].dims == ("case",)]


def followed(column: pd.Series, leader: pd.Series) -> pd.Series:
    """The column with 0 where it is as its leader, as in the deck.

    A value that it also has where the leader has another stays: 512 queries of 512, 1024 and 2048 keys are 512.
    """
    same = column == leader
    return column.mask(same & ~column.isin(column[~same]), 0)


def key_frame(cases: xr.Dataset, follow: bool = True) -> pd.DataFrame:
    """The columns of key_names, indexed by case.

    With `follow`, `q_len` is 0 where it is the sequence length, and `v_head_dim` where it is `head_dim` (followed);
    otherwise they could not be told from these. What is 0 depends on all cases, so those of two runs match without it.
    """
    found = {name: np.asarray(cases[name].values) for name in key_names(cases)}
    frame = pd.DataFrame(found, index=pd.Index(np.asarray(cases["case"].values), name="case"))
    for name, leader in FOLLOWS.items():
        if follow and {name, leader} <= set(frame):
            frame[name] = followed(frame[name], frame[leader])
    return frame


def listed(names: str | Iterable[str]) -> list[str]:
    """One name, which is not its letters, or several."""
    return [names] if isinstance(names, str) else list(names)


def _known(names: list[str], columns: Collection[str]) -> list[str]:
    renamed = [_COLUMNS.get(name, name) for name in names]
    return [name for name in renamed if name in columns]
