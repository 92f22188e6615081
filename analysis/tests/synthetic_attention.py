# SPDX-License-Identifier: MIT
"""Writes a small result file of a comparison of attention: the cases of `synthetic`, causal where they are f32."""

import h5py
import numpy as np

from tests import synthetic


def write(path, **options):
    """Writes the file; options as for `synthetic.write`."""
    synthetic.write(path, regions=False, **options)
    with h5py.File(path, "a") as file:
        cases = file["cases"]
        causal = np.array([name == b"f32" for name in cases["dtype"][()]], dtype=np.int8)
        synthetic.flags(cases, "causal", causal, ("no", "yes"))
        for name, values in (("window", 0 * causal), ("v_head_dim", 64 + 0 * causal), ("q_len", cases["seq_len"][()])):
            synthetic.column(cases, name, np.asarray(values, dtype=np.int64), units="1")
        share = cases["flops"][()] / cases["time_median"][()] / 1e12
        synthetic.column(cases, "share_of_fma_peak", share, units="1")
        _write_comparison(file)


def _write_comparison(file):
    group = file.create_group("comparison", track_order=True)
    points = [(dtype, direction) for dtype in synthetic.DTYPES for direction in synthetic.DIRECTIONS]
    synthetic.scale(group, "configuration", np.arange(len(points), dtype=np.int32))
    synthetic.scale(group, "seq_len", np.array(synthetic.SEQ_LENS, dtype=np.int64))
    for name, values in (("dtype", [dtype for dtype, _ in points]), ("execution_space", ["OpenMP"] * len(points))):
        synthetic.column(group, name, np.array(values, dtype=object), ("configuration",))
    for name, words, values in (
        ("direction", synthetic.DIRECTIONS, [synthetic.DIRECTIONS.index(direction) for _, direction in points]),
        ("causal", ("no", "yes"), [dtype == "f32" for dtype, _ in points]),
    ):
        codes = np.arange(len(words), dtype=np.int8)
        synthetic.column(group, name, np.array(values, dtype=np.int8), ("configuration",), flag_values=codes,
                          flag_meanings=" ".join(words))  # fmt: skip
    speedup = np.array([[synthetic.seconds("standard", *point, n) / synthetic.seconds("flash", *point, n)
                         for n in synthetic.SEQ_LENS] for point in points])  # fmt: skip
    synthetic.column(group, "speedup", speedup, ("configuration", "seq_len"), units="1")
    crossover = np.array([512, 512, 512, -1], dtype=np.int64)
    synthetic.column(group, "crossover_seq_len", crossover, ("configuration",), units="1", _FillValue=np.int64(-1))
