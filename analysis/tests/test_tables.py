# SPDX-License-Identifier: MIT
"""Tables of generations, of memory plans and of quantised checkpoints."""

import h5py
import numpy as np
import pandas as pd
import xarray as xr

from kformer_results import ResultFileError, layout, memory_plots, open_results, tables
from tests import stored
from tests.test_results import WithFile, WithMain

ROOT = {"schema": "kformer-results", "schema_version": "1.0", "softwareVersion": "0.1.0"}


def write(path, kind, groups):
    """A result file of one kind; every group is a row dimension and its columns."""
    xr.Dataset(attrs={**ROOT, "kind": kind}).to_netcdf(path, engine="h5netcdf")
    for name, (dimension, columns) in groups.items():
        data = xr.Dataset({key: (dimension, np.array(values)) for key, values in columns.items()})
        data = data.assign_coords({dimension: np.arange(data.sizes[dimension])})
        data.to_netcdf(path, group=name, engine="h5netcdf", mode="a")


GENERATED = {
    "cases": ("case", {
        "op": ["generate"] * 2, "prompt": ["story", "chat"], "repeat": [0, 0], "batch": [2, 2], "dtype": ["f32"] * 2,
        "kv_cache": ["paged"] * 2, "prompt_tokens": [5, 7], "new_tokens": [20, 9], "prefill_rate": [1000.0, 1200.0],
        "decode_rate": [90.5, np.nan], "share_of_limit": [0.82, np.nan],
        "peak_bytes": np.array([2**20, 3 * 2**20], np.uint64), "status": ["ok", "out_of_memory"],
    }),
    "generations": ("generation", {"case": [0, 0], "mean_nll": [0.5, 1.0], "text": ["a", "b"]}),
    "tokens": ("token", {"generation": [0, 1], "piece": ["a", "b"]}),
}  # fmt: skip
GIB = np.uint64(2**30)
PLANNED = {
    "cases": ("case", {
        "op": ["generate"], "execution_space": ["openmp"], "dtype": ["bf16"], "weights": ["q4_0"],
        "kv_cache": ["int8"], "recompute": ["none"], "prefill_chunk": [512], "batch": [8], "context": [8192],
        "weights_bytes": [4 * GIB], "gradients_bytes": [0 * GIB], "optimizer_bytes": [0 * GIB],
        "kv_cache_bytes": [2 * GIB], "activations_bytes": [GIB], "workspace_bytes": [0 * GIB],
        "communication_bytes": [3 * GIB], "io_bytes": [0 * GIB],
        "predicted_bytes": [8 * GIB], "available_bytes": [6.5 * 2**30], "fits": ["no"], "largest_context": [9000],
        "largest_batch": [9], "recompute_share": [0.0], "status": ["skipped_memory"],
    }),
}  # fmt: skip
QUANTIZED = {
    "tensors": ("tensor", {
        "name": ["a", "norm", "zeros"], "format_before": ["F32"] * 3, "format_after": ["Q8_0", "F32", "Q8_0"],
        "quantized": ["yes", "no", "yes"], "max_abs_err": [0.00123, 0.0, 0.0], "rel_rms_err": [0.00543, 0.0, np.nan],
        "cosine": [0.999987, 1.0, np.nan], "zeros": [0.007, 0.0, 1.0],
    }),
}  # fmt: skip


class Tables(WithFile, WithMain):
    def generated(self):
        write(self.folder / "run.h5", "generate", GENERATED)
        return self.folder / "run.h5"

    def planned(self):
        write(self.folder / "plan.h5", "memory_plan", PLANNED)
        return self.folder / "plan.h5"

    def test_a_generation_has_rates_and_the_mean_of_its_rows(self):
        table = tables.generation_table(open_results(self.generated()))
        self.assertEqual(table["prompt"].tolist(), ["story", "chat"])
        self.assertEqual(table["decode_tokens/s"][0], 90.5)
        self.assertEqual(table["peak_MiB"].tolist(), [1.0, 3.0])
        self.assertEqual(table["mean_nll"][0], 0.75)
        self.assertTrue(np.isnan(table["mean_nll"][1]))
        self.assertNotIn("noisy", table)

    def test_a_generation_that_noise_decides_is_marked(self):
        dimension, columns = GENERATED["cases"]
        write(self.folder / "run.h5", "generate", {**GENERATED, "cases": (dimension, {**columns, "noisy": ["yes", "no"]})})
        self.assertEqual(tables.generation_table(open_results(self.folder / "run.h5"))["noisy"].tolist(), ["yes", "no"])

    def test_a_plan_is_in_gib(self):
        table = tables.memory_table(open_results(self.planned()))
        self.assertEqual(table["purpose"].tolist(), ["generate"])
        self.assertNotIn("in_space_GiB", table)
        self.assertEqual(table["weights"].tolist(), ["q4_0"])
        self.assertEqual(table["weights_GiB"].tolist(), [4.0])
        self.assertEqual(table["commun_GiB"].tolist(), [3.0])
        self.assertEqual(table["total_GiB"].tolist(), [8.0])
        self.assertEqual(table["budget_GiB"].tolist(), [6.5])
        self.assertEqual(table["left_GiB"].tolist(), [-1.5])
        self.assertEqual(table["fits"].tolist(), ["no"])
        self.assertEqual(table["max_context"].tolist(), [9000])

    def planned_on(self, space, **columns):
        dimension, found = PLANNED["cases"]
        write(self.folder / "plan.h5", "memory_plan", {"cases": (dimension, {**found, "execution_space": [space], **columns})})
        return tables.memory_table(open_results(self.folder / "plan.h5"))

    def test_the_budget_of_a_device_is_for_its_memory(self):
        table = self.planned_on("cuda", space_bytes=[6 * GIB], fits=["yes"])
        self.assertEqual(table["total_GiB"].tolist(), [8.0])
        self.assertEqual(table["in_space_GiB"].tolist(), [6.0])
        self.assertEqual(table["left_GiB"].tolist(), [0.5])
        self.assertNotIn("in_space_GiB", self.planned_on("cuda", space_bytes=[8 * GIB]))

    def test_what_an_old_file_leaves_on_a_device_is_unknown(self):
        on_device = self.planned_on("cuda")
        self.assertTrue(on_device["left_GiB"].isna().all())
        self.assertNotIn("in_space_GiB", on_device)
        for space in ("serial", "openmp", "threads"):
            self.assertEqual(self.planned_on(space)["left_GiB"].tolist(), [-1.5])

    def test_a_case_of_a_plan_that_cannot_run_says_so(self):
        path = self.planned()
        with h5py.File(path, "r+") as file:
            file["cases/status"][...] = b"unsupported"
        table = tables.memory_table(open_results(path))
        self.assertEqual(table["fits"].tolist(), ["unsupported"])
        self.assertTrue(table[["weights_GiB", "total_GiB", "left_GiB"]].isna().all(axis=None))
        self.assertEqual(table["budget_GiB"].tolist(), [6.5])

    def test_plans_have_every_class_of_memory(self):
        table = tables.memory_table(open_results(stored.unpack(self.folder, "memory_plan")))
        units = [name for name in table if name.endswith("_GiB") and name not in ("total_GiB", "budget_GiB", "left_GiB")]
        self.assertEqual(len(units), len(memory_plots.CLASSES))

    def test_a_quantised_checkpoint_has_the_tensors_that_changed(self):
        write(self.folder / "packed.h5", "quantize", QUANTIZED)
        code, out, _ = self.run_main("summary", self.folder / "packed.h5")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"(?m)^ *a +0.00123 +0.00543 +0.999987 +0.007$")
        self.assertRegex(out, r"(?m)^ *zeros +0 +- +- +1.000$")
        self.assertIn("format_before F32, format_after Q8_0\n", out)
        self.assertNotIn("norm", out)

    def test_a_file_without_cases_is_refused(self):
        write(self.folder / "empty.h5", "generate", {})
        with self.assertRaisesRegex(ResultFileError, "no cases"):
            tables.generation_table(open_results(self.folder / "empty.h5"))
        with self.assertRaisesRegex(ResultFileError, "no tensors"):
            tables.quantization_table(open_results(self.folder / "empty.h5"))

    def test_summary_knows_the_kind(self):
        code, out, _ = self.run_main("summary", self.generated())
        self.assertEqual(code, 0)
        self.assertRegex(out, r"(?s)decode .*tokens/s")
        self.assertIn("out_of_memory", out)
        code, out, _ = self.run_main("summary", self.planned())
        self.assertEqual(code, 0)
        self.assertRegex(out, r"(?s) total .* GiB")

    def test_short_times_of_a_scaling_study_are_no_zeros(self):
        path = stored.unpack(self.folder, "scaling")
        with h5py.File(path, "r+") as file:
            for name in ("cases/time_median", "simulation/grids/simulated_time"):
                file[name][...] = 4.125e-4 * np.arange(1, len(file[name]) + 1)
        out = self.run_main("summary", path)[1]
        self.assertEqual(out.count("0.0004125"), 2, out)

    def test_headings_of_wide_tables_break(self):
        names = [f"a_rather_long_heading_{i}" for i in range(12)]
        table = pd.DataFrame({name: [i, 1000 + i] for i, name in enumerate(names)}, columns=names)
        lines = layout.in_columns(table).splitlines()
        self.assertLessEqual(max(map(len, lines)), layout.WIDTH)
        self.assertEqual([line.split() for line in lines[-2:]], [[str(i + k) for i in range(12)] for k in (0, 1000)])
        self.assertEqual([line.split()[0] for line in lines[:4]], ["a", "rather", "long", "heading"])
        self.assertEqual(layout.in_columns(table[names[:3]]).splitlines()[0].split(), names[:3])

    def test_labels_that_change_least_often_move_out_of_wide_tables(self):
        results = {f"a_result_{i}": [0.125] * 4 for i in range(13)}
        table = pd.DataFrame({"impl": ["standard", "flash"] * 2, "dtype": ["f32"] * 2 + ["bf16"] * 2, **results})
        lines = layout.in_columns(table, ["impl", "dtype"]).splitlines()
        self.assertLessEqual(max(map(len, lines)), layout.WIDTH)
        self.assertEqual([line for line in lines if line.endswith(":")], ["dtype f32:", "dtype bf16:"])
        self.assertEqual([line.split()[0] for line in lines[-2:]], ["standard", "flash"])

    def test_summaries_fit_a_terminal(self):
        for kind in stored.kinds():
            path = stored.unpack(self.folder, kind)
            with self.subTest(kind=kind):
                lines = self.run_main("summary", path)[1].splitlines()
                self.assertLessEqual(max(map(len, lines)), layout.WIDTH)
