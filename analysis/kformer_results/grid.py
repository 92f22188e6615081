# SPDX-License-Identifier: MIT
"""The cases of a sweep as an array whose dimensions are the axes of the sweep."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from .axes import key_frame, key_names, listed
from .reader import ResultFileError

POINT = "point"
FILE = "file"  # of open_sweep
# Of the grid. A sweep with exclusions can be much smaller than the product of its axes.
MOST_CELLS = 2**24


class GridError(ResultFileError):
    """The cases do not form a grid; the text says why and what to do."""


def to_grid(cases: xr.Dataset, axes: str | Sequence[str] | None = None) -> xr.Dataset:
    """The cases with one dimension for each axis of their sweep, in place of the dimension "case".

    `cases` is the group "cases" of open_results, or cases selected from it with `isel(case=...)`. `axes` names the axes
    in order; by default, they are those of the deck (attribute `sweep_axes`), also with a single value, and any other
    key column (KEYS) that varies. Two runs of one kind thus have the same dimensions: `xarray.align` and
    `xarray.concat` match them by the values of the axes.

    The cases of `open_sweep` have the axis "file", too, if other columns do not tell them all apart, as of two runs of one
    deck.

    Numbers along an axis ascend, words keep their order of appearance. Key columns that are no axes become scalar
    coordinates; those that vary along the axes are variables on the grid, as results are. Axes that vary together (mode
    "zip", attribute `zipped_axes`) are one dimension "point": its coordinate is a text such as "batch 8, seq_len 16", and
    each of these axes is a coordinate along it. `q_len` is 0 where it is `seq_len`, as in the deck, and `v_head_dim` where
    it is `head_dim`, unless a case in which they differ has the same value. Where the sweep has no case, numbers are NaN
    and texts empty, and `case` is -1.

    Raises GridError if `cases` is no data set or has no cases, an axis is no column, two cases have the same values of all axes, or the
    grid has more than MOST_CELLS values.
    """
    if not isinstance(cases, xr.Dataset):
        raise GridError("to_grid lays out a data set of cases, of a file to_grid(groups['cases'])")
    if "case" not in cases.dims or cases.sizes["case"] == 0:
        raise GridError("there are no cases to lay out as a grid")
    keys = key_frame(cases)
    if FILE in cases:
        keys[FILE] = np.asarray(cases[FILE].values)
    zipped = _names(cases, "zipped_axes", keys) if axes is None else []
    names = _names(cases, "sweep_axes", keys) if axes is None else listed(axes)
    if unknown := [name for name in names if name not in keys]:
        raise GridError(f"'{unknown[0]}' is not an axis of these cases; they have: {', '.join(keys)}")
    if axes is None:
        names += [name for name in keys if keys[name].nunique() > 1 and name not in (*names, FILE)]
        if FILE in keys and (keys.duplicated(names).any() if names else len(keys) > 1):
            names.insert(0, FILE)
    if zipped:
        keys[POINT] = _points(keys, zipped)
        names = _replaced(names, zipped)
    indexes = {name: _index(keys[name]) for name in names}
    place = _places(keys, indexes)
    other = {name: cases[name] for name in [*cases.data_vars, *cases.coords] if "case" not in cases[name].dims}
    varying = [name for name in key_names(cases) if name not in (*indexes, *zipped) and keys[name].nunique() > 1]
    cases = cases.assign({name: cases[name].copy(data=keys[name].to_numpy()) for name in varying})
    grid = xr.Dataset(_scattered(cases, indexes, place, varying), attrs=cases.attrs).assign(other)
    return grid.assign_coords(_coordinates(cases, keys, zipped, indexes))


def _names(cases: xr.Dataset, attribute: str, keys: pd.DataFrame) -> list[str]:
    return [name for name in str(cases.attrs.get(attribute, "")).split() if name in keys]


def _points(keys: pd.DataFrame, zipped: list[str]) -> list[str]:
    return [
        ", ".join(f"{name} {value}" for name, value in zip(zipped, row)) for row in keys[zipped].itertuples(index=False)
    ]


def _replaced(names: list[str], zipped: list[str]) -> list[str]:
    """The dimension of points takes the place of the first zipped axis."""
    place = min(names.index(name) for name in zipped)
    return [POINT if k == place else name for k, name in enumerate(names) if k == place or name not in zipped]


def _index(column: pd.Series) -> np.ndarray:
    values = column.unique()
    return np.sort(values) if np.issubdtype(np.asarray(values).dtype, np.number) else np.asarray(values)


def _places(keys: pd.DataFrame, indexes: dict[str, np.ndarray]) -> np.ndarray:
    """The number of each case's cell."""
    shape = [len(index) for index in indexes.values()]
    codes = [pd.Index(index).get_indexer(keys[name]) for name, index in indexes.items()]
    place: np.ndarray = np.zeros(len(keys), dtype=np.int64)
    if codes and np.prod(shape, dtype=float) <= MOST_CELLS:
        place = np.asarray(np.ravel_multi_index(codes, shape))
    elif codes:
        raise GridError(
            f"{len(keys)} cases span a grid of {' x '.join(map(str, shape))} points, more than {MOST_CELLS}: "
            f"select cases first, or name the `axes`"
        )
    repeated = pd.Series(place).duplicated(keep=False).to_numpy()
    if repeated.any():
        first, second = keys.index[place == place[repeated][0]][:2]
        differ = [name for name in keys if name != POINT and keys.at[first, name] != keys.at[second, name]]
        advice = f"they differ in {', '.join(differ)}, which must be an axis too" if differ else "they are alike"
        raise GridError(f"cases {first} and {second} have the same place on the axes {', '.join(indexes)}: {advice}")
    return place


def _scattered(
    cases: xr.Dataset, indexes: dict[str, np.ndarray], place: np.ndarray, varying: list[str]
) -> dict[str, tuple]:
    """Every result of the cases on the grid, the key columns that vary along it, and "case" itself."""
    shape = tuple(len(index) for index in indexes.values())
    cells = int(np.prod(shape, dtype=np.int64))
    found = {}
    placed = {*key_names(cases), *indexes} - set(varying)
    for name in ["case", *cases.data_vars]:
        column = cases[name].transpose("case", ...) if "case" in cases[name].dims else None
        if column is None or name in placed:
            continue
        rest = column.shape[1:]
        if cells * int(np.prod(rest, dtype=np.int64)) > MOST_CELLS:
            raise GridError(f"'{name}' has more than {MOST_CELLS} values as a grid: drop it, or select cases first")
        values = np.asarray(column.values)
        if cells == len(place):
            grid = np.empty((cells, *rest), values.dtype)
        else:
            grid = _empty((cells, *rest), values.dtype, name)
        grid[place] = values
        found[name] = ((*indexes, *column.dims[1:]), grid.reshape(shape + rest), column.attrs)
    return found


def _empty(shape: tuple[int, ...], dtype: np.dtype, name: str) -> np.ndarray:
    """Of no case: -1, NaN or empty texts."""
    if name == "case":
        return np.full(shape, -1, dtype)
    if dtype.kind in "iuf":
        return np.full(shape, np.nan, dtype if dtype.kind == "f" else np.float64)
    return np.full(shape, "", object)


def _coordinates(
    cases: xr.Dataset, keys: pd.DataFrame, zipped: list[str], indexes: dict[str, np.ndarray]
) -> dict[str, tuple]:
    """The axes, the zipped axes along the points, and the other key columns as scalars."""
    found: dict[str, tuple] = {name: (name, index, _attributes(cases, name)) for name, index in indexes.items()}
    points = keys.drop_duplicates(POINT) if zipped else keys
    for name in keys.columns.drop([*indexes, POINT, FILE], errors="ignore"):
        if name in zipped:
            found[name] = (POINT, points[name].to_numpy(), _attributes(cases, name))
        elif keys[name].nunique() == 1:
            found[name] = ((), keys[name].iloc[0], _attributes(cases, name))
    return found


def _attributes(cases: xr.Dataset, name: str) -> dict:
    return dict(cases[name].attrs) if name in cases else {"long_name": "values of the axes that vary together"}
