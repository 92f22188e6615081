#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens result files the way a notebook does, every group, with default arguments, and fails loudly where
a reader refuses, drops or misreads something.

Usage: result_file_notebook.py FILE.h5...      Exit status: 0 all is well, 1 not, 77 a reader is not installed.
"""

import shutil
import subprocess
import sys

SKIPPED = 77
WRITTEN_BY_HDF5 = {"CLASS", "NAME"}  # of the dimension scales, fixed-length by HDF5's own convention

try:
    import h5netcdf  # noqa: F401  (an engine of xarray)
    import h5py
    import netCDF4  # noqa: F401  (an engine of xarray)
    import numpy as np
    import pandas as pd
    import xarray as xr
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)
if shutil.which("ncdump") is None:
    print("skipped: ncdump is not installed")
    sys.exit(SKIPPED)


def groups_of(file):
    """All groups of an open file, the root first."""
    groups = [file]
    file.visititems(lambda _, node: groups.append(node) if isinstance(node, h5py.Group) else None)
    return groups


def datasets_of(group):
    return {name: node for name, node in group.items() if isinstance(node, h5py.Dataset)}


def is_text(dataset):
    return h5py.check_string_dtype(dataset.dtype) is not None


def check_conventions(group):
    """The rules that make a group open everywhere, held against the bare file."""
    for node in [group, *datasets_of(group).values()]:
        for name, value in node.attrs.items():
            own = name not in WRITTEN_BY_HDF5
            assert not (own and isinstance(value, bytes)), f"{node.name}@{name} is not variable-length UTF-8"
    for name, dataset in datasets_of(group).items():
        where = dataset.name
        assert dataset.dtype.fields is None, f"{where} is compound"
        assert h5py.check_enum_dtype(dataset.dtype) is None, f"{where} is an enum"
        assert "long_name" in dataset.attrs, f"{where} has no long_name"
        assert is_text(dataset) or "units" in dataset.attrs, f"{where} has no units"
        for axis, dimension in enumerate(dataset.dims):
            assert h5py.h5ds.is_scale(dataset.id) or len(dimension) == 1, f"{where} has no scale on axis {axis}"
        if "flag_meanings" in dataset.attrs:
            meanings = dataset.attrs["flag_meanings"].split()
            assert len(meanings) == len(dataset.attrs["flag_values"]), f"{where} has unequal flag attributes"
            assert set(dataset[...].ravel()) <= set(dataset.attrs["flag_values"]), f"{where} has an unnamed flag"


def expected_values(dataset):
    """The values as xarray shows them: texts as str, fill values as NaN."""
    if is_text(dataset):
        return np.asarray(dataset.asstr()[...], dtype=object)
    values = dataset[...]
    if "_FillValue" not in dataset.attrs:
        return values
    fill = dataset.attrs["_FillValue"]
    return np.where(values == fill, np.nan, values.astype("f8"))


def check_xarray(path, group, engine):
    with xr.open_dataset(path, group=group.name, engine=engine) as data:
        datasets = datasets_of(group)
        assert set(data.variables) == set(datasets), (
            f"{engine} shows {sorted(data.variables)} in {group.name}, the file holds {sorted(datasets)}"
        )
        for name, dataset in datasets.items():
            shown = data[name]
            scales = tuple(dimension[0].name.split("/")[-1] for dimension in dataset.dims if len(dimension))
            assert shown.dims == (scales or shown.dims), f"{engine} names the axes of {dataset.name} {shown.dims}"
            expected = expected_values(dataset)
            assert shown.shape == expected.shape, f"{engine} shows {dataset.name} as {shown.shape}"
            if is_text(dataset):
                assert (np.asarray(shown.values, dtype=object) == expected).all(), f"{engine} misreads {dataset.name}"
            else:
                np.testing.assert_array_equal(shown.values, expected, err_msg=f"{engine} misreads {dataset.name}")


def check_pandas(group):
    columns = {name: node for name, node in datasets_of(group).items() if node.ndim == 1}
    rows = {node.dims[0][0].name for node in columns.values() if len(node.dims) and len(node.dims[0])}
    for scale in rows:
        along = {
            name: node.asstr()[...] if is_text(node) else node[...]
            for name, node in columns.items()
            if len(node.dims[0]) and node.dims[0][0].name == scale
        }
        frame = pd.DataFrame(along)
        assert len(frame) == group[scale].shape[0] and set(frame.columns) == set(along)


def check_ncdump(path, groups):
    result = subprocess.run(["ncdump", "-h", path], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"ncdump fails: {result.stderr}"
    for group in groups:
        leaf = group.name.split("/")[-1]
        assert not leaf or f"group: {leaf} {{" in result.stdout, f"ncdump does not show {group.name}"
        for name in datasets_of(group):
            assert f" {name}" in result.stdout, f"ncdump does not show {group.name}/{name}"


def check(path):
    with h5py.File(path, "r") as file:
        groups = groups_of(file)
        assert any(datasets_of(group) for group in groups), "the file holds no dataset"
        check_ncdump(path, groups)
        for group in groups:
            check_conventions(group)
            check_pandas(group)
            for engine in ("h5netcdf", "netcdf4"):
                check_xarray(path, group, engine)
        return len(groups), sum(len(datasets_of(group)) for group in groups)


def main(paths):
    if not paths:
        sys.exit(__doc__)
    for path in paths:
        n_groups, n_datasets = check(path)
        print(f"{path}: {n_groups} groups with {n_datasets} datasets open in h5netcdf, netCDF4, pandas and ncdump")


if __name__ == "__main__":
    main(sys.argv[1:])
