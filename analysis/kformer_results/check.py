# SPDX-License-Identifier: MIT
"""Holds result files against the schemas of their kinds: what is missing, of another type, or unknown."""

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .groups import OWN_ATTRIBUTES, dims_of
from .reader import DAMAGE, ResultFileError, open_results
from .schema import Entry, entry_of, is_later, kinds, schema_of, versions

_TYPES = {"float64": "f64", "int64": "i64", "int32": "i32", "uint64": "u64", "int8": "i8"}
# Units of times, bytes and rates.
_NOT_NEGATIVE = ("s", "byte", "1/s", "byte/s", "s/byte")


def check_file(path: str | Path) -> list[str]:
    """The faults of a file, each one line that begins with the place; empty if there are none.

    The file must open (open_results), be complete, and have exactly the groups, attributes and datasets of its schema,
    except those of which the schema says when a file has them. Types, dimensions, units, descriptions, meanings and
    fill values must be those of the schema, numbers must not be NaN where the schema excludes it, and times, bytes, rates
    and counts of operations must not be negative. A file of a later minor version than the newest schema is held against
    that one, and may have more, also words at the end of meanings, and other descriptions.

    Raises ResultFileError if the file cannot be read, or is not a result file.
    """
    open_results(path)
    try:
        with h5py.File(path, "r") as file:
            version, kind = str(file.attrs.get("schema_version", "")), str(file.attrs.get("kind", ""))
            later = version not in versions() and is_later(version)
            if later:
                version = versions()[-1]
            if version not in versions():
                return [f"/: has schema version {version}; there are schemas of {', '.join(versions())}"]
            if kind not in kinds(version):
                return [f"/: is of kind '{kind}'; there are schemas of {', '.join(kinds(version))}"]
            return list(_faults(file, schema_of(kind, version)["groups"], later))
    except DAMAGE as error:
        raise ResultFileError(f"{path}: cannot be checked ({type(error).__name__}: {error})") from error


def _faults(file: h5py.File, groups: Mapping[str, Entry], later: bool) -> Iterator[str]:
    complete = bool(file.attrs.get("complete", 0))
    if not complete:
        yield "/: the run did not end (complete is 0)"
    found: dict[str, h5py.Group] = {"/": file}
    file.visititems(lambda name, item: found.__setitem__(f"/{name}", item) if isinstance(item, h5py.Group) else None)
    above = {parent for path in groups for parent in _parents(path)}
    for path, schema in groups.items():
        if path in found:
            yield from _group_faults(path, found[path], schema, later)
        elif complete and "when" not in schema:
            yield f"{path}: is missing"
    for path in sorted(found.keys() & above - groups.keys()):  # which hold groups alone
        yield from _group_faults(path, found[path], {"attributes": {}, "datasets": {}}, later)
    for path in sorted(found.keys() - groups.keys() - above) if not later else ():
        yield f"{path}: is no group of this kind of file"


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _group_faults(path: str, group: h5py.Group, schema: Entry, later: bool) -> Iterator[str]:
    yield from _attribute_faults(path, group, schema["attributes"], later)
    datasets = {name: item for name, item in group.items() if isinstance(item, h5py.Dataset)}
    for name, entry in schema["datasets"].items():
        if name not in datasets and "when" not in entry and "*" not in name:
            yield f"{posixpath.join(path, name)}: is missing"
    status = datasets.get("status")
    for name, dataset in datasets.items():
        place, known = posixpath.join(path, name), entry_of(schema["datasets"], name)
        if known is None and later:
            continue
        if known is None:
            yield f"{place}: is no dataset of this kind of file"
        else:
            yield from _dataset_faults(place, dataset, known, status, later)


def _attribute_faults(path: str, group: h5py.Group, schema: Mapping[str, Entry], later: bool) -> Iterator[str]:
    for name, entry in schema.items():
        if name not in group.attrs:
            yield f"{path}@{name}: is missing"
        elif (found := _type_of_value(group.attrs[name])) != entry["type"]:
            yield f"{path}@{name}: is of type {found}, must be {entry['type']}"
    for name in sorted(group.attrs.keys() - schema.keys() - OWN_ATTRIBUTES) if not later else ():
        yield f"{path}@{name}: is no attribute of this group"


def _dataset_faults(
    place: str, dataset: h5py.Dataset, schema: Entry, status: h5py.Dataset | None, later: bool
) -> Iterator[str]:
    kind = _type_of(dataset.dtype)
    if kind != ("i8" if schema["type"] == "flag" else schema["type"]):
        yield f"{place}: is of type {kind}, must be {schema['type']}"
        return
    if (dims := list(dims_of(dataset))) != schema["dims"]:
        yield f"{place}: has the dimensions ({', '.join(dims)}), must have ({', '.join(schema['dims'])})"
        return
    yield from _text_faults(place, dataset, schema, later)
    if "meanings" in schema:
        yield from _flag_faults(place, dataset, schema, later)
    yield from _fill_faults(place, dataset, schema)
    yield from _nan_faults(place, dataset, schema, status)
    if schema.get("units") in _NOT_NEGATIVE or posixpath.basename(place).startswith("flop"):
        rows = (np.nan_to_num(dataset[()]) < 0).reshape(len(dataset), -1).any(axis=1)
        if rows.any():
            yield f"{place}: is negative in row {int(np.flatnonzero(rows)[0])}"


def _text_faults(place: str, dataset: h5py.Dataset, schema: Entry, later: bool) -> Iterator[str]:
    """Of its attributes that are texts, and of those that it must not have: some would change what readers return."""
    expected = {"units": schema.get("units")}
    if not later:
        expected["long_name"] = schema["description"]
    for name, text in expected.items():
        if dataset.attrs.get(name) != text:
            yield f"{place}@{name}: is {dataset.attrs.get(name)!r}, must be {text!r}"
    known = {"units", "long_name"} | ({"flag_values", "flag_meanings"} if "meanings" in schema else set())
    if _fill_of(schema) is not None:
        known.add("_FillValue")
    for name in sorted(dataset.attrs.keys() - known - OWN_ATTRIBUTES) if not later else ():
        yield f"{place}@{name}: is no attribute of this dataset"


def _fill_of(schema: Entry) -> Any:
    """What stands where there is no value: NaN of every f64; None of what has a value everywhere."""
    return np.nan if schema["type"] == "f64" else schema.get("fill")


def _fill_faults(place: str, dataset: h5py.Dataset, schema: Entry) -> Iterator[str]:
    expected, found = _fill_of(schema), dataset.attrs.get("_FillValue")
    if expected is None:
        return
    if found is None:
        yield f"{place}@_FillValue: is missing, must be {expected}"
    elif [str(value) for value in np.atleast_1d(found)] != [str(expected)]:
        yield f"{place}@_FillValue: is {found}, must be {expected}"


def _flag_faults(place: str, dataset: h5py.Dataset, schema: Entry, later: bool) -> Iterator[str]:
    known, meanings = schema["meanings"], dataset.attrs.get("flag_meanings")
    words = str(meanings).split(" ")
    if words != known and not (later and words[: len(known)] == known):
        yield f"{place}@flag_meanings: is {meanings!r}, must be {' '.join(known)!r}"
        words = known
    values = np.atleast_1d(dataset.attrs.get("flag_values", []))
    if values.tolist() != list(range(len(words))):
        yield f"{place}@flag_values: must be 0 to {len(words) - 1}"
    if np.isin(dataset[()], [*values, *np.atleast_1d(schema.get("fill", []))], invert=True).any():
        yield f"{place}: has values that no meaning belongs to"


def _nan_faults(place: str, dataset: h5py.Dataset, schema: Entry, status: h5py.Dataset | None) -> Iterator[str]:
    if "nan" not in schema:
        return
    rows = np.isnan(dataset[()]).reshape(len(dataset), -1).any(axis=1)
    if schema["nan"] == "unless ok":
        if status is None or len(status) != len(rows):
            return
        rows &= status[()] == 0
    if rows.any():
        which = ", whose status is ok" if schema["nan"] == "unless ok" else ""
        yield f"{place}: is NaN in row {int(np.flatnonzero(rows)[0])}{which}"


def _type_of(dtype: np.dtype[Any]) -> str:
    return "text" if h5py.check_string_dtype(dtype) is not None else _TYPES.get(dtype.name, dtype.name)


def _type_of_value(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    array = np.asarray(value)
    return _TYPES.get(array.dtype.name, array.dtype.name) + ("[]" if array.ndim else "")
