# SPDX-License-Identifier: MIT
"""Reads a result file (docs/results.md) into xarray data sets, one per group."""

import mmap
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import h5py
import xarray as xr

from .axes import listed, with_axes
from .groups import read_group

# What a file holds: data sets by the path of their group, the root's is "".
Groups = dict[str, xr.Dataset]

SCHEMA = "kformer-results"
SCHEMA_MAJOR = 1
# Of all datasets of a file together. A small file can declare any size, and everything is read.
MOST_BYTES = 2**30
# How a collection of texts begins.
TEXTS = b"GCOL\x01\0\0\0"
# What h5py, h5netcdf and xarray raise for a file that is damaged.
DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


class ResultFileError(Exception):
    """This package cannot read the file; the text says why and what to do."""


def open_results(path: str | Path, only: str | Collection[str] | None = None) -> Groups:
    """Opens every group of a result file; its data are those of `xarray.open_dataset` with default arguments.

    `only` leaves out the groups that it does not name, except the root and "provenance": of a thousand files of a sweep,
    `only=["cases"]` opens faster. Keys are the group paths ("cases", "memory/classes"); "" is the root, whose attributes describe the run.
    Coded flags (status, direction, ...) become words, case numbers become coordinates, and "cases" gains `tflops`
    and, from its compulsory traffic, `intensity` (FLOP per byte), and the attributes `sweep_axes` and `zipped_axes`, names
    of columns. Files of a later minor version are accepted, and
    unknown groups are returned unchanged. The `.part` file of a running or stopped run opens like a finished one.
    All data are in memory afterwards.

    Raises ResultFileError if the file is missing, is not HDF5, is not a result file, has another major version, holds
    more than MOST_BYTES, or is damaged.
    """
    path = Path(path)
    groups = _read_groups(path, None if only is None else listed(only))
    if "cases" in groups:
        try:
            groups["cases"] = with_axes(with_rates(groups["cases"]), *_kind_and_deck(groups))
        except DAMAGE as error:
            raise ResultFileError(f"{path}: the columns of 'cases' do not fit together: {error}") from error
    return groups


def _read_groups(path: Path, only: Collection[str] | None) -> Groups:
    """The groups by their paths, the root ("") first, after the checks that make later errors unlikely."""
    try:
        with checked_file(path) as file:
            items = _items(file, only)
            check_size(path, [item for item in items.values() if isinstance(item, h5py.Dataset)])
            return {name: _open_group(path, name, item) for name, item in items.items() if isinstance(item, h5py.Group)}
    except DAMAGE as error:
        raise ResultFileError(f"{path}: is not a readable HDF5 file ({error})") from error


@contextmanager
def checked_file(path: Path) -> Iterator[h5py.File]:
    """The open file, if it is a result file of a version that this package reads; else raises ResultFileError."""
    if not path.is_file():
        raise ResultFileError(f"{path}: is a folder" if path.is_dir() else f"{path}: no such file")
    if path.stat().st_size == 0:
        raise ResultFileError(f"{path}: is empty")
    _check_texts(path)
    with h5py.File(path, "r") as file:
        _check_schema(path, file)
        yield file


def _items(file: h5py.File, only: Collection[str] | None) -> dict[str, h5py.Group | h5py.Dataset]:
    """Groups and datasets by their paths, of all groups or of some with what is in them."""
    items: dict[str, h5py.Group | h5py.Dataset] = {"": file}
    if only is None:
        file.visititems(items.__setitem__)
        return items
    for name in ("provenance", *only):
        if name in file:
            items[name] = file[name]
            items[name].visititems(lambda below, item, name=name: items.__setitem__(f"{name}/{below}", item))
    return items


def _open_group(path: Path, name: str, group: h5py.Group) -> xr.Dataset:
    try:
        return read_group(group)
    except DAMAGE as error:
        raise ResultFileError(f"{path}: cannot open group '/{name}': {error}") from error


def _check_texts(path: Path) -> None:
    """Refuses a collection of texts (a global heap of HDF5) in which something takes no room.

    libhdf5 would never get past it.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        begin = data.find(TEXTS)
        while begin >= 0:
            at = begin + 16
            size = int.from_bytes(data[begin + 8 : at], "little")
            while at + 16 <= min(begin + size, len(data)):
                index, _, _, length = struct.unpack_from("<HHIQ", data, at)
                step = (16 + (length + 7 & ~7) if index else length) % 2**64
                if step == 0:
                    raise ResultFileError(f"{path}: is damaged: the texts at byte {begin} do not end")
                at += step
            begin = data.find(TEXTS, begin + len(TEXTS))


def _check_schema(path: Path, file: h5py.File) -> None:
    schema, kind = file.attrs.get("schema"), file.attrs.get("kind", "")
    if not isinstance(schema, str) or schema != SCHEMA:
        raise ResultFileError(
            f"{path}: is HDF5 but not a Kformer result file: root attribute 'schema' is {schema!r}, "
            f"expected {SCHEMA!r}"
        )
    version = str(file.attrs.get("schema_version", ""))
    major = version.split(".")[0]
    if not (major.isascii() and major.isdigit()):
        raise ResultFileError(f"{path}: root attribute 'schema_version' is {version!r}, expected a version like '1.0'")
    if int(major) != SCHEMA_MAJOR:
        raise ResultFileError(
            f"{path}: has schema version {version}, this package reads version {SCHEMA_MAJOR}.x: "
            f"use the kformer_results that came with the Kformer that wrote it"
        )
    if not isinstance(kind, str):
        raise ResultFileError(f"{path}: root attribute 'kind' is {kind!r}, expected a word")


def check_size(path: Path, datasets: Collection[h5py.Dataset | h5py.h5d.DatasetID]) -> None:
    """Raises ResultFileError if the datasets have more than MOST_BYTES together."""
    sizes = [prod(dataset.shape or ()) * dataset.dtype.itemsize for dataset in datasets]
    if sum(sizes) > MOST_BYTES:
        largest = list(datasets)[sizes.index(max(sizes))]
        name = h5py.h5i.get_name(largest.id if isinstance(largest, h5py.Dataset) else largest).decode()
        raise ResultFileError(
            f"{path}: declares {sum(sizes)} bytes, at most {MOST_BYTES} are read; the largest dataset is '{name}'"
        )


def _kind_and_deck(groups: dict[str, xr.Dataset]) -> tuple[str, str]:
    deck = groups["provenance"].get("deck_resolved") if "provenance" in groups else None
    return groups[""].attrs.get("kind", ""), "" if deck is None else str(deck.values)


def with_rates(cases: xr.Dataset) -> xr.Dataset:
    """The cases with `tflops` and `intensity`, as far as they have what these follow from."""
    added = {}
    if {"flops", "time_median"} <= set(cases):
        added["tflops"] = (cases["flops"].variable / cases["time_median"].variable * 1e-12, "1e12 s-1")
    if {"flops", "bytes_min"} <= set(cases):
        added["intensity"] = (cases["flops"].variable / cases["bytes_min"].variable, "byte-1")
    return cases.assign({name: (rate.dims, rate.values, {"units": units}) for name, (rate, units) in added.items()})
