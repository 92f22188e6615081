# SPDX-License-Identifier: MIT
"""Reads one group of an HDF5 file as xarray would, without the engines of xarray: those look at every dataset of the file
for every size of a dimension, so that a file takes seconds."""

import posixpath
from typing import Any

import h5py
import numpy as np
import xarray as xr

# HDF5 and the netCDF library write these for themselves.
OWN_ATTRIBUTES = {
    "CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates",
    "_NCProperties", "_nc3_strict",
}  # fmt: skip
# The name of a dimension scale that is no variable, by the netCDF library.
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


def read_group(group: h5py.Group) -> xr.Dataset:
    """The datasets of the group in memory, with their dimensions, coordinates and attributes.

    Integers that equal their _FillValue become NaN, and flags become words. Raises ValueError if an axis has no dimension
    scale, and what h5py raises.
    """
    variables = {}
    for name in group:
        item = group[name]  # of a link to nothing an error, which items() leaves out
        if isinstance(item, h5py.Dataset) and not _is_mere_dimension(item):
            variables[name] = _variable(item)
    coordinates = {name: variables.pop(name) for name in list(variables) if variables[name].dims == (name,)}
    return xr.Dataset(variables, coordinates, attributes_of(group))


def attributes_of(item: h5py.Dataset | h5py.Group) -> dict[str, Any]:
    """Those that are not HDF5's own; lists of one number are that number."""
    return {name: _plain(item.attrs[name]) for name in item.attrs if name not in OWN_ATTRIBUTES}


def dims_of(dataset: h5py.Dataset) -> tuple[str, ...]:
    """The names of the dimension scales of its axes; "" of an axis without one. A scale has its own name."""
    if dataset.ndim and h5py.h5ds.is_scale(dataset.id):
        return (posixpath.basename(str(dataset.name)),)
    return tuple(_scale_name(dataset, axis) for axis in range(dataset.ndim))


def _scale_name(dataset: h5py.Dataset, axis: int) -> str:
    if h5py.h5ds.get_num_scales(dataset.id, axis) == 0:
        return ""
    found: list[bytes] = []
    h5py.h5ds.iterate(dataset.id, axis, lambda scale: found.append(_name_of(scale)), 0)
    return posixpath.basename(found[0].decode())


def _name_of(scale: h5py.h5d.DatasetID) -> bytes:
    """HDF5 searches the file for the path of a scale, so the name that it was given comes first."""
    name: bytes = h5py.h5ds.get_scale_name(scale)
    return name if name and not name.startswith(_NO_VARIABLE) else h5py.h5i.get_name(scale)


def _is_mere_dimension(dataset: h5py.Dataset) -> bool:
    return h5py.h5ds.is_scale(dataset.id) and h5py.h5ds.get_scale_name(dataset.id).startswith(_NO_VARIABLE)


def _variable(dataset: h5py.Dataset) -> xr.Variable:
    dims = dims_of(dataset)
    if "" in dims:
        raise ValueError(f"'{dataset.name}' has no dimension scale on axis {dims.index('')}")
    if h5py.check_string_dtype(dataset.dtype) is not None:
        values = np.asarray(dataset.asstr()[()], dtype=object)
    else:
        values = np.asarray(dataset[()])
    return decoded(dims, values, attributes_of(dataset))


def decoded(dims: tuple[str, ...], values: np.ndarray, attributes: dict[str, Any]) -> xr.Variable:
    """Values as a file has them, with their attributes: integers that are the fill value are NaN, flags are words."""
    attributes = {name: value for name, value in attributes.items() if name not in OWN_ATTRIBUTES}
    fill = attributes.pop("_FillValue", None)
    if fill is not None and values.dtype.kind in "iu":
        values = np.where(values == fill, np.nan, values.astype(np.float64))
    if {"flag_values", "flag_meanings"} <= attributes.keys():
        values = _words(values, attributes.pop("flag_values"), str(attributes.pop("flag_meanings")).split())
    return xr.Variable(dims, values, attributes)


def _words(values: np.ndarray, codes: Any, meanings: list[str]) -> np.ndarray:
    words = dict(zip(np.atleast_1d(codes).tolist(), meanings))
    found = [words.get(code, f"code {code}") for code in values.ravel().tolist()]
    return np.array(found, dtype=object).reshape(values.shape)


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, np.ndarray) and value.shape == (1,) else value
