# SPDX-License-Identifier: MIT
"""Writes a small result file of known numbers, by the rules of docs/results.md."""

import itertools

import h5py
import numpy as np

SEQ_LENS = (512, 1024, 2048, 4096)
IMPLS = ("standard", "flash")
DTYPES = ("f32", "bf16")
DIRECTIONS = ("forward", "backward")
CLASSES = ("weights", "gradients", "optimizer", "activations", "kv_cache", "workspace", "communication", "io")
REPEATS = 7
BLOCKS = {"rms_norm": 0.05, "qkv": 0.2, "rope": 0.03, "attention": 0.3, "out_proj": 0.12, "mlp": 0.27}
ATTRIBUTED = sum(BLOCKS.values())
DIRECTION_CODES = ("forward", "backward", "forward_backward")
STATUS_CODES = ("ok", "failed_check", "unchecked", "out_of_memory", "skipped_memory", "unsupported", "error")


# How datasets are stored, as options of h5py.
STORAGE = {}


def flops(seq_len, direction):
    return (1e5 * seq_len**2 + 2.4e8 * seq_len) * (2 if direction == "backward" else 1)


def seconds(impl, dtype, direction, seq_len):
    return (
        flops(seq_len, direction)
        / 5e11
        * (1.0 if impl == "standard" else 0.8)
        * (1.3 if dtype == "bf16" else 1)
    )


def activation_bytes(impl, dtype, seq_len):
    size = {"f32": 4, "bf16": 2}[dtype]
    return size * (32 * seq_len**2 + 20000 * seq_len if impl == "standard" else 24000 * seq_len)


def workspace_bytes(impl, seq_len):
    return 4096 * seq_len if impl == "flash" else 0


def write(
    path, *, schema="kformer-results", version="1.0", complete=1, cases=None, out_of_memory=(), regions=True
):
    """Writes the file; `cases` keeps only the first so many, numbers in `out_of_memory` did not run."""
    points = list(itertools.product(("OpenMP",), DTYPES, DIRECTIONS, IMPLS, SEQ_LENS))[:cases]
    with h5py.File(path, "w", track_order=True) as file:
        file.attrs.update(
            schema=schema, schema_version=version, complete=np.int8(complete), title="Llama-3.2-1B decoder layer",
            run_name="synthetic", kind="layer_sweep", git_sha="0123456789abcdef0123", git_dirty=np.int8(0),
            date="2026-01-02T03:04:05Z", software="kformer", softwareVersion="0.1.0",
        )  # fmt: skip
        provenance = file.create_group("provenance")
        provenance.attrs.update(cpu_model="Example CPU", cpu_threads=np.int32(2), device_name="")
        provenance["deck_text"] = "schema = 1\n"
        if points:
            _write_cases(file, points, out_of_memory)
            _write_memory(file, points)
        if points and regions:
            _write_regions(file, points)


def _write_cases(file, points, out_of_memory):
    spaces, dtypes, directions, impls, lengths = zip(*points)
    group = file.create_group("cases", track_order=True)
    count = len(points)
    time = np.array([seconds(i, t, d, n) for _, t, d, i, n in points])
    status = np.zeros(count, dtype=np.int8)
    for case in out_of_memory:
        time[case] = np.nan
        status[case] = STATUS_CODES.index("out_of_memory")
    spread = np.linspace(0.92, 1.1, REPEATS)
    scale(group, "case", np.arange(count, dtype=np.int32))
    scale(group, "repeat", np.arange(REPEATS, dtype=np.int32))
    column(group, "time", time[:, None] * spread, ("case", "repeat"), units="s")
    for name, factor in (("time_median", 1.0), ("time_p10", 0.92), ("time_p90", 1.1)):
        column(group, name, time * factor, units="s")
    column(group, "flops", np.array([flops(n, d) for _, _, d, _, n in points]), units="1")
    column(group, "bytes_min", np.array([1e6 + 1e4 * n for *_, n in points]), units="byte")
    column(group, "max_rel_err", np.full(count, 1e-6), units="1")
    for name, words in (
        ("impl", impls),
        ("dtype", dtypes),
        ("execution_space", spaces),
        ("op", ["layer"] * count),
    ):
        column(group, name, np.array(words, dtype=object))
    for name, values in (("seq_len", lengths), ("batch", [1] * count), ("hidden_size", [2048] * count),
                         ("num_attention_heads", [32] * count), ("num_key_value_heads", [8] * count),
                         ("head_dim", [64] * count)):  # fmt: skip
        column(group, name, np.array(values, dtype=np.int64), units="1")
    codes = np.array([DIRECTION_CODES.index(d) for d in directions], dtype=np.int8)
    flags(group, "direction", codes, DIRECTION_CODES)
    flags(group, "status", status, STATUS_CODES)


def _write_memory(file, points):
    group = file.create_group("memory/classes", track_order=True)
    peaks = np.full((len(points), len(CLASSES)), 10**7, dtype=np.uint64)
    for case, (_, dtype, _, impl, length) in enumerate(points):
        peaks[case, CLASSES.index("activations")] = activation_bytes(impl, dtype, length)
        peaks[case, CLASSES.index("workspace")] = workspace_bytes(impl, length)
    scale(group, "case", np.arange(len(points), dtype=np.int32))
    scale(group, "memory_class", np.array(CLASSES, dtype=object))
    column(group, "peak_bytes", peaks, ("case", "memory_class"), units="byte")


def _write_regions(file, points):
    """Each case ran twice; "forward/attention" has a part of its own below it."""
    rows = []
    for case, (_, dtype, direction, impl, length) in enumerate(points):
        whole = 2 * seconds(impl, dtype, direction, length)
        root = len(rows)
        rows.append((direction, -1, 0, 2, whole, whole * (1 - ATTRIBUTED), case))
        for block, share in BLOCKS.items():
            rows.append((f"{direction}/{block}", root, 1, 2, whole * share, whole * share, case))
            if block == "attention":
                rows.append(
                    (f"{direction}/{block}/scores", len(rows) - 1, 2, 2, whole * 0.1, whole * 0.1, case)
                )
    path, parent, depth, count, inclusive, exclusive, case = zip(*rows)
    group = file.create_group("regions", track_order=True)
    scale(group, "region", np.arange(len(rows), dtype=np.int32))
    column(group, "path", np.array(path, dtype=object), ("region",))
    for name, values in (("parent", parent), ("depth", depth), ("case", case)):
        column(group, name, np.array(values, dtype=np.int32), ("region",))
    column(group, "count", np.array(count, dtype=np.int64), ("region",))
    column(group, "inclusive", np.array(inclusive), ("region",), units="s")
    column(group, "exclusive", np.array(exclusive), ("region",), units="s")


def _dataset(group, name, values):
    kind = h5py.string_dtype() if values.dtype == object else values.dtype
    return group.create_dataset(name, data=values, dtype=kind, track_order=True, **STORAGE)


def scale(group, name, values):
    _dataset(group, name, values).make_scale(name)


def column(group, name, values, dims=("case",), **attributes):
    dataset = _dataset(group, name, values)
    dataset.attrs.update(attributes)
    for axis, dim in enumerate(dims):
        dataset.dims[axis].attach_scale(group[dim])


def flags(group, name, codes, words):
    values = np.arange(len(words), dtype=np.int8)
    column(group, name, codes, flag_values=values, flag_meanings=" ".join(words))
