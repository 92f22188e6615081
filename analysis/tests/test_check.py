# SPDX-License-Identifier: MIT
"""Schemas, and files that are held against them."""

import unittest
from pathlib import Path

import h5py
import numpy as np

from kformer_results import open_results, schema
from kformer_results.check import check_file
from tests import stored
from tests.test_results import WithFile, WithMain

ROOT = Path(__file__).resolve().parents[2]
NEWEST = stored.NEWEST


class Schemas(unittest.TestCase):
    def test_the_page_has_the_tables_of_the_newest_schemas(self):
        page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
        part = page.split("<!-- begin schemas -->\n")[1].split("<!-- end schemas -->")[0]
        self.assertEqual(part.strip(), schema.markdown(NEWEST), "scripts/write_schemas was not run")

    def test_everything_is_described(self):
        for kind in schema.kinds(NEWEST):
            for path, group in schema.schema_of(kind, NEWEST)["groups"].items():
                for name, entry in [*group["attributes"].items(), *group["datasets"].items()]:
                    self.assertTrue(entry["description"], f"{kind} {path} {name}")

    def test_versions_only_gain_kinds(self):
        kinds = {"attention_compare", "generate", "layer_sweep", "memory_plan", "quantize", "scaling", "train"}
        self.assertEqual(set(schema.kinds(NEWEST)), kinds)
        for version in schema.versions():
            self.assertLessEqual(kinds - {"scaling"}, set(schema.kinds(version)))

    def test_an_unknown_schema(self):
        for kind, version in (("nothing", NEWEST), ("train", "0.9"), ("../1.0/train", NEWEST)):
            with self.assertRaises(KeyError):
                schema.schema_of(kind, version)


class Samples(WithFile, WithMain):
    def test_files_of_every_version_open_and_fit_their_schemas(self):
        for version in schema.versions():
            for kind in schema.kinds(version):
                with self.subTest(version=version, kind=kind):
                    path = stored.unpack(self.folder, kind, version)
                    groups = open_results(path)
                    self.assertEqual(groups[""].attrs["kind"], kind)
                    self.assertEqual(check_file(path), [])

    def test_each_has_a_table_and_pictures(self):
        for version in schema.versions():
            for kind in schema.kinds(version):
                path = stored.unpack(self.folder, kind, version)
                with self.subTest(version=version, kind=kind):
                    code, out, error = self.run_main("summary", path)
                    self.assertEqual((code, error), (0, ""))
                    self.assertGreater(len(out.splitlines()), 2)
                    code, out, error = self.run_main("plot", path)
                    self.assertEqual((code, error), (0, ""))
                    self.assertTrue(Path(out.strip()).read_bytes().startswith(b"\x89PNG"))


class Faults(WithFile, WithMain):
    """Each fault alone in a file that is otherwise right."""

    def damaged(self, change, kind="layer_sweep"):
        """The faults of a sample in which `change` changed the open file."""
        path = self.folder / "damaged.h5"
        stored.unpack(self.folder, kind).rename(path)
        with h5py.File(path, "r+") as file:
            change(file)
        return check_file(path)

    def replace(self, file, name, values, **attributes):
        """A dataset with other values and the same scales and attributes."""
        old = file[name]
        kept = {key: old.attrs[key] for key in ("units", "long_name", "_FillValue") if key in old.attrs}
        scales = [dim[0] for dim in old.dims]
        del file[name]
        new = file.create_dataset(name, data=values)
        new.attrs.update({**kept, **attributes})
        for axis, scale in enumerate(scales):
            new.dims[axis].attach_scale(scale)

    def test_a_dataset_is_missing(self):
        self.assertEqual(self.damaged(lambda file: file.__delitem__("cases/flops")), ["/cases/flops: is missing"])

    def test_a_group_is_missing(self):
        self.assertEqual(self.damaged(lambda file: file.__delitem__("machine")), [])
        self.assertEqual(self.damaged(lambda file: file.__delitem__("memory/classes")), ["/memory/classes: is missing"])

    def test_a_dataset_has_another_type(self):
        change = lambda file: self.replace(file, "cases/batch", np.ones(len(file["cases/case"]), np.float32))  # noqa: E731
        self.assertEqual(self.damaged(change), ["/cases/batch: is of type float32, must be i64"])

    def test_a_dataset_has_other_dimensions(self):
        def change(file):
            file["cases"].create_dataset("other", data=np.arange(len(file["cases/case"]))).make_scale("other")
            file["cases/flops"].dims[0].detach_scale(file["cases/case"])
            file["cases/flops"].dims[0].attach_scale(file["cases/other"])

        self.assertEqual(sorted(self.damaged(change)), [
            "/cases/flops: has the dimensions (other), must have (case)",
            "/cases/other: is no dataset of this kind of file",
        ])  # fmt: skip

    def test_a_dataset_has_other_units_or_words(self):
        def change(file):
            file["cases/time_median"].attrs["units"] = "ms"
            file["cases/flops"].attrs["long_name"] = "work"
            file["cases/flops"].attrs["valid_min"] = 0.0

        found = self.damaged(change)
        self.assertIn("/cases/time_median@units: is 'ms', must be 's'", found)
        self.assertIn("/cases/flops@valid_min: is no attribute of this dataset", found)
        self.assertTrue(any(fault.startswith("/cases/flops@long_name: is 'work', must be ") for fault in found))
        self.assertEqual(len(found), 3)

    def test_a_flag_has_a_value_without_a_meaning(self):
        def change(file):
            file["cases/status"][0] = 77

        self.assertEqual(self.damaged(change), ["/cases/status: has values that no meaning belongs to"])

    def test_a_flag_has_other_meanings(self):
        def change(file):
            file["cases/causal"].attrs["flag_meanings"] = "yes no"

        self.assertEqual(self.damaged(change), ["/cases/causal@flag_meanings: is 'yes no', must be 'no yes'"])

    def test_a_fill_value_is_another(self):
        def change(file):
            file["comparison/crossover_seq_len"].attrs["_FillValue"] = np.int64(0)

        self.assertEqual(self.damaged(change, "attention_compare"), ["/comparison/crossover_seq_len@_FillValue: is 0, must be -1"])

    def test_a_fill_value_is_missing(self):
        def change(file):
            for name in ("comparison/crossover_seq_len", "cases/flops", "comparison/speedup"):
                del file[name].attrs["_FillValue"]

        self.assertEqual(sorted(self.damaged(change, "attention_compare")), [
            "/cases/flops@_FillValue: is missing, must be nan", "/comparison/crossover_seq_len@_FillValue: is missing, must be -1",
            "/comparison/speedup@_FillValue: is missing, must be nan",
        ])  # fmt: skip

    def test_attributes_that_change_what_readers_return(self):
        def change(file):
            file["cases/batch"].attrs["_FillValue"] = np.int64(1)
            file["cases/flops"].attrs["_FillValue"] = 1.0
            file["cases/seq_len"].attrs.update(flag_values=np.array([8, 16]), flag_meanings="short long")

        self.assertEqual(sorted(self.damaged(change)), [
            "/cases/batch@_FillValue: is no attribute of this dataset",
            "/cases/flops@_FillValue: is 1.0, must be nan",
            "/cases/seq_len@flag_meanings: is no attribute of this dataset",
            "/cases/seq_len@flag_values: is no attribute of this dataset",
        ])  # fmt: skip

    def test_a_number_is_nan(self):
        def change(file):
            file["cases/time_median"][1] = np.nan
            file["regions/inclusive"][2] = np.nan
            file["cases/max_abs_err"][0] = np.nan  # unchecked: allowed

        self.assertEqual(sorted(self.damaged(change)), [
            "/cases/time_median: is NaN in row 1, whose status is ok",
            "/regions/inclusive: is NaN in row 2",
        ])  # fmt: skip

    def test_a_case_that_failed_has_no_time(self):
        def change(file):
            file["cases/time_median"][1] = np.nan
            file["cases/status"][1] = list(file["cases/status"].attrs["flag_meanings"].split()).index("out_of_memory")

        self.assertEqual(self.damaged(change), [])

    def test_an_attribute_is_missing_unknown_or_of_another_type(self):
        def change(file):
            del file["provenance"].attrs["compiler"]
            file.attrs["colour"] = "green"
            file.attrs["git_dirty"] = "no"

        self.assertEqual(sorted(self.damaged(change)), [
            "/@colour: is no attribute of this group", "/@git_dirty: is of type text, must be i8",
            "/provenance@compiler: is missing",
        ])  # fmt: skip

    def test_a_group_that_nobody_knows(self):
        self.assertEqual(self.damaged(lambda file: file.create_group("extra/deep")),
                         ["/extra: is no group of this kind of file", "/extra/deep: is no group of this kind of file"])  # fmt: skip

    def test_a_group_that_holds_groups_alone(self):
        def change(file):
            file["memory/anything"] = 1.0
            file["memory"].attrs["colour"] = "green"

        self.assertEqual(self.damaged(change), [
            "/memory@colour: is no attribute of this group", "/memory/anything: is no dataset of this kind of file",
        ])  # fmt: skip

    def test_a_study_of_which_nothing_ran_has_no_memory_of_ranks(self):
        self.assertEqual(self.damaged(lambda file: file.__delitem__("memory/ranks"), "scaling"), [])

    def test_columns_by_pattern(self):
        def change(file):
            steps = file["steps"]
            for name in ("reward_1_exact", "rewards"):
                column = steps.create_dataset(name, data=np.ones(len(steps["step"])))
                column.attrs.update(units="1", long_name="mean of this reward, without its weight", _FillValue=np.nan)
                column.dims[0].attach_scale(steps["step"])

        self.assertEqual(self.damaged(change, "train"), ["/steps/rewards: is no dataset of this kind of file"])

    def test_a_run_that_did_not_end_lacks_groups(self):
        def change(file):
            file.attrs["complete"] = np.int8(0)
            del file["memory/classes"]

        self.assertEqual(self.damaged(change), ["/: the run did not end (complete is 0)"])

    def test_a_version_or_kind_without_a_schema(self):
        def version(file):
            file.attrs["schema_version"] = "1.x"

        self.assertRegex(self.damaged(version)[0], "^/: has schema version 1.x; there are schemas of ")
        self.assertRegex(self.damaged(lambda file: file.attrs.__setitem__("kind", "x"))[0], "^/: is of kind 'x'; ")

    def test_a_later_minor_version_may_have_more(self):
        def later(file):
            file.attrs["schema_version"] = "1.99"
            file.attrs["new"] = "word"
            file.create_group("new")
            file["cases/new"] = 1.0
            file["memory"].attrs["new"] = "word"
            file["cases/flops"].attrs.update(long_name="work", valid_min=0.0)
            status = file["cases/status"]
            words = status.attrs["flag_meanings"].split()
            status.attrs.update(flag_values=np.arange(len(words) + 1, dtype=np.int8), flag_meanings=" ".join([*words, "new"]))
            status[0] = len(words)

        def damaged(file):
            later(file)
            del file["cases/time_median"]
            file["cases/status"][0] += 1
            file["cases/causal"].attrs["flag_meanings"] = "new no yes"

        self.assertEqual(self.damaged(later), [])
        self.assertEqual(self.damaged(damaged), [
            "/cases/time_median: is missing",
            "/cases/causal@flag_meanings: is 'new no yes', must be 'no yes'",
            "/cases/status: has values that no meaning belongs to",
        ])  # fmt: skip

    def test_a_negative_time_or_count(self):
        for kind, path, row in (
            ("layer_sweep", "cases/time_median", 1), ("layer_sweep", "cases/flops", 1), ("layer_sweep", "cases/bandwidth_limit", 1),
            ("layer_sweep", "cases/bytes_min", 1), ("train", "cases/token_rate", 0), ("scaling", "simulation/links/seconds_per_byte", 0),
        ):  # fmt: skip
            def negative(file, path=path, row=row):
                file[path][row] = -1

            self.assertEqual(self.damaged(negative, kind), [f"/{path}: is negative in row {row}"])

    def test_the_command_has_a_line_for_each_fault(self):
        good, bad = stored.unpack(self.folder, "train"), self.folder / "damaged.h5"
        self.assertEqual(self.run_main("check", good), (0, "", ""))
        self.damaged(lambda file: file.__delitem__("cases/flops"))
        self.assertEqual(self.run_main("check", good, bad), (1, f"{bad}: /cases/flops: is missing\n", ""))
        code, out, error = self.run_main("check", self.folder / "none.h5", bad)
        self.assertEqual((code, out), (4, f"{bad}: /cases/flops: is missing\n"))
        self.assertIn("none.h5: no such file", error)


if __name__ == "__main__":
    unittest.main()
