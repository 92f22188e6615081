# SPDX-License-Identifier: MIT
"""The cases of many result files as one data set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from .groups import decoded
from .reader import DAMAGE, ResultFileError, check_size, checked_file, open_results, with_rates

Types = Mapping[str, np.dtype[Any]]  # of columns


def open_sweep(paths: Sequence[str | Path]) -> xr.Dataset:
    """The cases of many files of one kind and version, in the order of the files, along "case".

    Has the columns of the first file that are along "case" alone, and `file`, the path of each case's file. Samples and
    other groups stay in the files. Names, units and descriptions are read from the first file only, as kind and version
    say what they are: thousands of files open many times faster than one by one. `to_grid` takes the result: what
    differs between the files is an axis.

    Raises ResultFileError if there are no paths, a file cannot be read, is of another kind or version than the first,
    or lacks one of its columns.
    """
    if not paths:
        raise ResultFileError("there are no files to open")
    first = open_results(paths[0], only=["cases"])
    if "cases" not in first:
        raise ResultFileError(f"{paths[0]}: the file has no cases: the run stopped before its first case was finished")
    like, root = first["cases"], first[""].attrs
    with h5py.File(paths[0], "r") as file:
        names = [name for name in file["cases"] if name in like and like[name].dims == ("case",)]
        attributes = {name: dict(file[f"cases/{name}"].attrs) for name in names}
        types = {name: file[f"cases/{name}"].dtype for name in names}
    parts = [_columns(Path(path), types, (root["kind"], root["schema_version"])) for path in paths]
    counts = [len(part["case"]) for part in parts]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in names if name != "case"}
    variables = {name: decoded(("case",), values, attributes[name]) for name, values in joined.items()}
    variables["file"] = xr.Variable("case", np.repeat(np.array([str(path) for path in paths], object), counts),
                                    {"long_name": "file of the case"})  # fmt: skip
    return with_rates(xr.Dataset(variables, {"case": np.arange(sum(counts))}, like.attrs))


def _columns(path: Path, types: Types, kind_and_version: tuple[str, str]) -> dict[str, np.ndarray]:
    try:
        with checked_file(path) as file:
            found = (str(file.attrs.get("kind", "")), str(file.attrs["schema_version"]))
            if found != kind_and_version:
                raise ResultFileError(
                    f"{path}: is of kind '{found[0]}' and version {found[1]}, but the first file of kind "
                    f"'{kind_and_version[0]}' and version {kind_and_version[1]}"
                )
            return _read(path, file["cases"], types)
    except DAMAGE as error:
        raise ResultFileError(f"{path}: its cases cannot be read ({error})") from error


def _read(path: Path, cases: h5py.Group, types: Types) -> dict[str, np.ndarray]:
    # Without h5py's objects, whose making takes as long as reading.
    datasets = {name: h5py.h5d.open(cases.id, name.encode()) for name in types}
    check_size(path, datasets.values())
    rows = datasets["case"].shape
    if other := [name for name, dataset in datasets.items() if (dataset.shape, dataset.dtype) != (rows, types[name])]:
        raise ResultFileError(f"{path}: '{other[0]}' is of another type than in the first file, or lacks rows")
    values = {name: np.zeros(rows, dataset.dtype) for name, dataset in datasets.items()}
    for name, dataset in datasets.items():
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values[name])
        if values[name].dtype == object:
            values[name] = np.array([text.decode() for text in values[name]], object)
    return values
