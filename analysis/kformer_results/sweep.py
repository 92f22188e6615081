# SPDX-License-Identifier: MIT
"""The cases of many result files as one data set."""

import glob
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from .axes import joined_axes, key_names
from .groups import attributes_of, decoded, dims_of
from .reader import DAMAGE, ResultFileError, check_size, checked_file, open_results, with_rates
from .schema import kinds, schema_of

_DECK = "provenance/deck_resolved"


@dataclass(frozen=True)
class _Layout:
    """What the columns of the cases are, by their names; `optional` are those that not every file has."""

    types: Mapping[str, np.dtype[Any]]
    attributes: Mapping[str, Mapping[str, Any]]
    optional: Collection[str]


def open_sweep(paths: str | Path | Iterable[str | Path]) -> xr.Dataset:
    """The cases of many files of one kind, in the order of the files, along "case".

    A text with wildcards that is no file names those it matches, in the order of their names: `open_sweep("runs/*.h5")`.

    Has the columns that all files have and that are along "case" alone, and `file`, the path of each case's file. Samples
    and other groups stay in the files. Names, units and descriptions are read from the first file of each version only,
    as kind and version say what they are: thousands of files open many times faster than one by one. `to_grid` takes the
    result: what differs between the files is an axis. Axes are those of the decks (`joined_axes`): where decks differ, those
    of any file, whatever the order of the files, and they are zipped only if every file zips the same ones or has one point.

    Raises ResultFileError if there are no paths, a file cannot be read, is of another kind than the first, or lacks a
    column of the first file of its version that every file of that version has.
    """
    if isinstance(paths, str) and glob.has_magic(paths) and not Path(paths).exists():
        pattern, paths = paths, sorted(glob.glob(paths, recursive=True))
        if not paths:
            raise ResultFileError(f"no file matches {pattern}")
    paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not paths:
        raise ResultFileError("there are no files to open")
    first = open_results(paths[0], only=["cases"])
    kind, version = (str(first[""].attrs[name]) for name in ("kind", "schema_version"))
    if "cases" not in first:
        raise ResultFileError(f"{paths[0]}: {_without_cases(kind, version)}")
    layouts: dict[str, _Layout] = {}
    parts, decks = zip(*(_columns(Path(path), kind, layouts) for path in paths))
    names = [name for name in parts[0] if name != "case" and all(name in part for part in parts)]
    variables = {name: xr.Variable("case", np.concatenate([part[name].values for part in parts]), parts[0][name].attrs)
                 for name in names}  # fmt: skip
    counts = [part["case"].size for part in parts]
    variables["file"] = xr.Variable("case", np.repeat(np.array([str(path) for path in paths], object), counts),
                                    {"long_name": "file of the case"})  # fmt: skip
    cases = with_rates(xr.Dataset(variables, {"case": np.arange(sum(counts))}, first["cases"].attrs))
    return cases.assign_attrs(joined_axes(kind, decks, key_names(cases)))


def _without_cases(kind: str, version: str) -> str:
    if kind in kinds(version) and "/cases" not in schema_of(kind, version)["groups"]:
        return f"files of kind '{kind}' have no cases"
    return "the file has no cases: the run stopped before its first case was finished"


def _columns(path: Path, kind: str, layouts: dict[str, _Layout]) -> tuple[dict[str, xr.Variable], str]:
    """The columns of a file, and its deck."""
    try:
        with checked_file(path) as file:
            if (found := str(file.attrs.get("kind", ""))) != kind:
                raise ResultFileError(f"{path}: is of kind '{found}', but the first file of kind '{kind}'")
            version = str(file.attrs["schema_version"])
            if version not in layouts:
                layouts[version] = _layout_of(file["cases"], _optional(kind, version))
            layout = layouts[version]
            datasets, deck = _datasets(file["cases"], layout), _deck_of(file)
            check_size(path, [*datasets.values(), *([deck] if deck else [])])
            values = _read(path, datasets, layout)
            columns = {name: decoded(("case",), column, dict(layout.attributes[name])) for name, column in values.items()}
            return columns, str(deck.asstr()[()]) if deck else ""
    except DAMAGE as error:
        raise ResultFileError(f"{path}: its cases cannot be read ({error})") from error


def _deck_of(file: h5py.File) -> h5py.Dataset | None:
    """The deck, if it is one text."""
    deck = file[_DECK] if _DECK in file else None
    return deck if isinstance(deck, h5py.Dataset) and deck.shape == () and h5py.check_string_dtype(deck.dtype) else None


def _optional(kind: str, version: str) -> list[str]:
    if kind not in kinds(version):
        return []
    columns = schema_of(kind, version)["groups"].get("/cases", {"datasets": {}})["datasets"]
    return [name for name, column in columns.items() if "when" in column]


def _layout_of(cases: h5py.Group, optional: Collection[str]) -> _Layout:
    columns = {name: item for name, item in cases.items() if isinstance(item, h5py.Dataset) and dims_of(item) == ("case",)}
    return _Layout({name: item.dtype for name, item in columns.items()},
                   {name: attributes_of(item) for name, item in columns.items()}, optional)  # fmt: skip


def _datasets(cases: h5py.Group, layout: _Layout) -> dict[str, h5py.h5d.DatasetID]:
    """Without h5py's objects, whose making takes as long as reading."""
    names = [name for name in layout.types if name not in layout.optional or name in cases]
    return {name: h5py.h5d.open(cases.id, name.encode()) for name in names}


def _read(path: Path, datasets: Mapping[str, h5py.h5d.DatasetID], layout: _Layout) -> dict[str, np.ndarray]:
    rows = datasets["case"].shape
    if other := [name for name, dataset in datasets.items() if (dataset.shape, dataset.dtype) != (rows, layout.types[name])]:
        raise ResultFileError(f"{path}: '{other[0]}' is of another type than in the first file of its version, or lacks rows")
    values = {name: np.zeros(rows, dataset.dtype) for name, dataset in datasets.items()}
    for name, dataset in datasets.items():
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values[name])
        if values[name].dtype == object:
            values[name] = np.array([text.decode() for text in values[name]], object)
    return values
