# SPDX-License-Identifier: MIT
"""What the tests of kformer-quantize share."""

import os

from driver_case import DriverTest, h5py, texts, words

if h5py is not None:
    import numpy as np
    from packed_weights import random_model, read_packed, write_model

FORMATS = ("q8_0", "q4_0", "q4_1", "tq2_0", "tq1_0", "nf4")
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


class QuantizeTest(DriverTest):
    NAME = "kformer-quantize"
    PROGRAM = os.environ["KFORMER_QUANTIZE"]

    def model(self, name="model", kind="F32", **changed):
        write_model(self.folder / name, random_model() | changed, kind)
        return self.folder / name

    def check_report(self, source, folder, report):
        """Holds every line of a report against what is stored before and after."""
        before, after = read_packed(source), read_packed(folder)
        with h5py.File(report) as file:
            table = file["tensors"]
            columns = {name: table[name][()] for name in ("shape", "bytes_before", "bytes_after", "max_abs_err",
                                                          "rel_rms_err", "cosine", "zeros")}
            names, quantized = texts(table["name"]), words(table["quantized"])
            kinds = list(zip(texts(table["format_before"]), texts(table["format_after"])))
            totals = dict(file["totals"].attrs)
            self.assertEqual(file.attrs["kind"], "quantize")
            self.assertEqual(file.attrs["complete"], 1)
            self.assertIn("kformer-quantize", file["provenance/command_line"][()].decode())
        self.assertEqual(sorted(after), names)
        for i, name in enumerate(names):
            with self.subTest(tensor=name):
                old, new = before[name], after[name]
                self.assertEqual(kinds[i], (old.kind, new.kind))
                self.assertEqual(quantized[i], "no" if old.kind == new.kind else "yes")
                self.assertEqual([extent for extent in columns["shape"][i] if extent], new.shape)
                self.assertEqual((columns["bytes_before"][i], columns["bytes_after"][i]), (len(old.data), len(new.data)))
                w, v = old.weights(), new.weights()
                self.assertEqual(columns["max_abs_err"][i], np.abs(v - w).max())
                np.testing.assert_allclose(columns["rel_rms_err"][i], np.sqrt(((v - w)**2).sum() / (w**2).sum()), rtol=1e-12)
                np.testing.assert_allclose(columns["cosine"][i], (v * w).sum() / np.sqrt((v**2).sum() * (w**2).sum()),
                                           rtol=1e-12)
                self.assertEqual(columns["zeros"][i], np.count_nonzero(v == 0) / v.size)
        self.assertEqual(totals["bytes_after"], sum(len(tensor.data) for tensor in after.values()))
        self.assertEqual(totals["max_abs_err"], columns["max_abs_err"].max())
        return before, after

    def convert(self, source, output, *arguments):
        done = self.run_driver(source, output, "-r", f"{output}.h5", *arguments)
        self.assertRegex(done.stdout, rf"(?m)^(packed )?checkpoint: {output}$")
        return self.check_report(source, self.folder / output, self.folder / f"{output}.h5")
