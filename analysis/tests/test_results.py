# SPDX-License-Identifier: MIT
"""python3 -m unittest discover -s analysis/tests -t analysis"""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import h5py
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr

from kformer_results import ResultFileError, open_results, plots, series, summary
from kformer_results.__main__ import main
from tests import synthetic


class WithFile(unittest.TestCase):
    """Has a folder, and in it what `synthetic.write` makes."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def written(self, name="layer.h5", **options):
        synthetic.write(self.folder / name, **options)
        return self.folder / name


class WithPlots(unittest.TestCase):
    """Draws, and reads what was drawn."""

    def axes(self):
        figure, axes = plt.subplots()
        self.addCleanup(plt.close, figure)
        return axes

    def lines(self, axes):
        return {line.get_label(): line.get_xydata() for line in axes.lines}


class WithMain(unittest.TestCase):
    """Runs the command line."""

    def run_main(self, *arguments):
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = main([str(argument) for argument in arguments])
        return code, out.getvalue(), error.getvalue()


class Reader(WithFile):
    def test_every_group_opens_with_its_dimensions(self):
        groups = open_results(self.written())
        self.assertEqual(set(groups), {"", "provenance", "cases", "memory", "memory/classes", "regions"})
        self.assertEqual(groups["cases"]["time"].dims, ("case", "repeat"))
        self.assertEqual(groups["memory/classes"]["peak_bytes"].dims, ("case", "memory_class"))
        self.assertEqual(str(groups["provenance"]["deck_text"].values), "schema = 1\n")

    def test_flags_become_words(self):
        cases = open_results(self.written(out_of_memory=(3,)))["cases"]
        self.assertEqual(list(cases["status"].values[2:5]), ["ok", "out_of_memory", "ok"])
        self.assertEqual(list(cases["direction"].values[[0, 8]]), ["forward", "backward"])

    def test_a_flag_of_a_later_version_shows_its_code(self):
        path = self.written()
        with h5py.File(path, "a") as file:
            file["cases/status"][0] = 99
        self.assertEqual(open_results(path)["cases"]["status"].values[0], "code 99")

    def test_rates_are_added(self):
        cases = open_results(self.written())["cases"]
        work = synthetic.flops(512, "forward")
        self.assertAlmostEqual(
            float(cases["tflops"][0]), work / synthetic.seconds("standard", "f32", "forward", 512) / 1e12
        )
        self.assertAlmostEqual(float(cases["intensity"][0]), work / (1e6 + 1e4 * 512))

    def test_later_minor_version_and_unknown_group_are_accepted(self):
        path = self.written(version="1.7")
        with h5py.File(path, "a") as file:
            file.create_group("somebody/elses").attrs["answer"] = 42
        self.assertEqual(open_results(path)["somebody/elses"].attrs["answer"], 42)

    def test_interrupted_run_opens(self):
        groups = open_results(self.written("layer.h5.part", complete=0, cases=3))
        self.assertEqual(groups["cases"].sizes["case"], 3)
        self.assertIn("the run did not end", series.run_label(groups))

    def assert_refused(self, path, words):
        with self.assertRaises(ResultFileError) as caught:
            open_results(path)
        self.assertIn(words, str(caught.exception))
        self.assertIn(str(path), str(caught.exception))

    def test_missing_file(self):
        self.assert_refused(self.folder / "none.h5", "no such file")
        self.assert_refused(self.folder, "is a folder")

    def test_empty_file(self):
        (self.folder / "empty.h5").touch()
        self.assert_refused(self.folder / "empty.h5", "is empty")

    def test_not_hdf5(self):
        path = self.folder / "deck.toml"
        path.write_text("schema = 1\n")
        self.assert_refused(path, "is not a readable HDF5 file")

    def test_cut_off_file(self):
        path = self.written()
        path.write_bytes(path.read_bytes()[:5000])
        self.assert_refused(path, "is not a readable HDF5 file")

    def test_foreign_hdf5(self):
        self.assert_refused(self.written(schema="openPMD"), "'schema' is 'openPMD', expected 'kformer-results'")

    def test_other_major_version(self):
        self.assert_refused(self.written(version="2.0"), "schema version 2.0, this package reads version 1.x")

    def test_version_that_is_none(self):
        self.assert_refused(self.written(version="new"), "'schema_version' is 'new'")

    def changed(self, change):
        path = self.written()
        with h5py.File(path, "a") as file:
            change(file)
        return path

    def test_schema_that_is_an_array(self):
        path = self.changed(lambda file: file.attrs.update(schema=["kformer-results", "more"]))
        self.assert_refused(path, "is HDF5 but not a Kformer result file: root attribute 'schema' is array(")

    def test_version_in_digits_of_another_script(self):
        self.assert_refused(self.written(version="²"), "'schema_version' is '²'")

    def test_kind_that_is_an_array(self):
        path = self.changed(lambda file: file.attrs.update(kind=["layer_sweep", "generate"]))
        self.assert_refused(path, "root attribute 'kind' is array(['layer_sweep', 'generate'], dtype=object), expected")

    def test_text_that_is_no_utf8(self):
        text = h5py.string_dtype("utf-8")
        path = self.changed(lambda file: file["cases"].create_dataset("word", data=b"\xff\xfe", dtype=text))
        self.assert_refused(path, "cannot open group '/cases'")

    def test_links_to_nothing(self):
        for name, link in {"cases/gone": h5py.SoftLink("/none"), "gone": h5py.ExternalLink("none.h5", "/")}.items():
            with self.subTest(name=name):
                path = self.changed(lambda file, name=name, link=link: file.__setitem__(name, link))
                self.assert_refused(path, f"cannot open group '/{name.removesuffix('gone').rstrip('/')}'")

    def test_sizes_that_no_run_has(self):
        path = self.changed(lambda file: file.create_dataset("cases/big", (2**31,), "f8", chunks=(2**20,)))
        self.assertLess(path.stat().st_size, 2**20)
        self.assert_refused(path, "at most 1073741824 are read; the largest dataset is '/cases/big'")

    def test_an_axis_without_a_scale(self):
        path = self.changed(lambda file: file.__setitem__("cases/odd", [1.0, 2.0]))
        self.assert_refused(path, "cannot open group '/cases': '/cases/odd' has no dimension scale on axis 0")

    def test_groups_are_those_of_xarray(self):
        path = self.changed(lambda file: file["cases/batch"].attrs.update(_FillValue=np.int64(1)))
        for name, group in open_results(path).items():
            expected = xr.open_dataset(path, group=name or None, engine="h5netcdf").load()
            for column, values in expected.variables.items():
                if "flag_meanings" not in values.attrs:
                    self.assertTrue(values.identical(group[column].variable), f"{name}/{column}")
            self.assertLessEqual(set(expected.variables), set(group.variables))

    def test_lists_of_one_number_are_that_number(self):
        def change(file):
            file["cases"].attrs.update(one=np.array([7]), two=np.array([7, 8]))
            synthetic.flags(file["cases"], "only", np.zeros(32, np.int8), ("yes",))

        cases = open_results(self.changed(change))["cases"]
        self.assertEqual((np.shape(cases.attrs["one"]), cases.attrs["one"]), ((), 7))
        self.assertEqual(list(cases.attrs["two"]), [7, 8])
        self.assertEqual(set(cases["only"].values), {"yes"})

    def test_only_some_groups(self):
        path = self.written()
        groups = open_results(path, only=["cases"])
        self.assertEqual(open_results(path, only="cases").keys(), groups.keys())
        self.assertEqual(set(groups), {"", "provenance", "cases"})
        self.assertIn("tflops", groups["cases"])


class Series(WithFile):
    def frame(self, **options):
        self.groups = open_results(self.written(**options))
        return series.select(series.case_frame(self.groups))

    def test_curve_is_sorted_and_complete(self):
        line = series.curve(self.frame(), "time_median", impl="flash", dtype="bf16", direction="backward")
        self.assertEqual(list(line["seq_len"]), list(synthetic.SEQ_LENS))
        expected = [synthetic.seconds("flash", "bf16", "backward", n) for n in synthetic.SEQ_LENS]
        np.testing.assert_allclose(line["time_median"], expected)

    def test_memory_reduction(self):
        table = series.memory_reduction(self.frame())
        row = table[(table["direction"] == "forward") & (table["dtype"] == "f32") & (table["seq_len"] == 4096)]
        flash = synthetic.activation_bytes("flash", "f32", 4096) + synthetic.workspace_bytes("flash", 4096)
        standard = synthetic.activation_bytes("standard", "f32", 4096)
        self.assertAlmostEqual(row["reduction"].item(), 1 - flash / standard)
        self.assertEqual(len(table), len(synthetic.SEQ_LENS) * 4)

    def test_case_that_did_not_run_has_no_reduction(self):
        table = series.memory_reduction(self.frame(out_of_memory=(3,)))
        forward_f32 = table[(table["direction"] == "forward") & (table["dtype"] == "f32")]
        self.assertEqual(list(forward_f32["seq_len"]), [512, 1024, 2048])

    def test_block_seconds_add_up_to_one_call(self):
        self.frame()
        times = series.block_seconds(self.groups["regions"], 0).set_index("block")["seconds"]
        call = synthetic.seconds("standard", "f32", "forward", 512)
        self.assertEqual(list(times.index), [*synthetic.BLOCKS, series.UNATTRIBUTED])
        self.assertAlmostEqual(times["attention"], 0.3 * call)
        self.assertAlmostEqual(times[series.UNATTRIBUTED], (1 - synthetic.ATTRIBUTED) * call)
        self.assertAlmostEqual(times.sum(), call)

    def test_blocks_whose_clocks_disagree_with_their_pass_leave_nothing(self):
        regions = xr.Dataset({"case": ("region", [0, 0]), "path": ("region", ["forward", "forward/a"]),
                              "inclusive": ("region", [2.0, 2.5]), "count": ("region", [1, 1])})  # fmt: skip
        expected = [["forward", "a", 2.5], ["forward", series.UNATTRIBUTED, 0]]
        self.assertEqual(series.block_seconds(regions, 0).values.tolist(), expected)

    def test_without_a_region_around_them_the_rarest_block_counts_the_calls(self):
        regions = xr.Dataset({"case": ("region", [0, 0]), "path": ("region", ["forward/a", "forward/b"]),
                              "inclusive": ("region", [2.0, 6.0]), "count": ("region", [2, 4])})  # fmt: skip
        self.assertEqual(series.block_seconds(regions, 0).values.tolist(), [["forward", "a", 1], ["forward", "b", 3]])

    def test_breakdown_takes_the_longest_sequence_that_both_finished(self):
        frame = self.frame()
        table = series.breakdown(self.groups, frame)
        self.assertEqual((table.attrs["seq_len"], table.attrs["execution_space"]), (4096, "OpenMP"))
        self.assertEqual(len(table), 8)
        self.assertEqual(table.columns[-1], series.UNATTRIBUTED)
        shorter = frame[(frame["seq_len"] < 4096) | (frame["impl"] == "flash")]
        self.assertEqual(series.breakdown(self.groups, shorter).attrs["seq_len"], 2048)

    def test_a_step_is_one_bar_of_all_its_passes(self):
        seconds = {"forward": 2.0, "forward/qkv": 2.0, "backward": 4.0, "backward/qkv": 3.5, "optimizer": 1.0,
                   "optimizer/adamw": 1.0}  # fmt: skip
        columns = {"case": [0] * 6, "path": list(seconds), "inclusive": list(seconds.values()), "count": [1] * 6}
        regions = xr.Dataset({name: ("region", values) for name, values in columns.items()})
        case = {"execution_space": "OpenMP", "impl": "flash", "dtype": "f32", "direction": "step", "seq_len": 8,
                "time_median": 7.0}  # fmt: skip
        table = series.breakdown({"regions": regions}, pd.DataFrame([case]))
        self.assertEqual(table.index.to_list(), [("step", "f32", "flash")])
        self.assertEqual(table.to_dict("records"), [{"qkv": 5.5, "adamw": 1.0, series.UNATTRIBUTED: 0.5}])

    def test_no_cases(self):
        with self.assertRaisesRegex(ResultFileError, "no cases: the run stopped before its first"):
            series.case_frame(open_results(self.written(cases=0)))

    def test_unknown_batch_lists_the_known(self):
        frame = self.frame()
        with self.assertRaisesRegex(ResultFileError, "no case has batch 3; the file has: 1"):
            series.select(frame, batch=3)

    def test_label_names_sha_and_device(self):
        self.frame()
        label = series.run_label(self.groups)
        self.assertIn("git 0123456789", label)
        self.assertIn("Example CPU, 2 threads", label)
        self.groups["provenance"].attrs["device_name"] = "Example GPU"
        label = series.run_label(self.groups)
        self.assertIn("Example GPU", label)
        self.assertNotIn("Example CPU", label)


class Plots(WithPlots, WithFile):
    def frame(self, **options):
        self.groups = open_results(self.written(**options))
        return series.case_frame(self.groups)

    def test_time_lines_band_and_guides(self):
        axes = self.axes()
        plots.draw_time(axes, self.frame(), "OpenMP", "forward")
        lines = self.lines(axes)
        expected = [1e3 * synthetic.seconds("standard", "f32", "forward", n) for n in synthetic.SEQ_LENS]
        np.testing.assert_allclose(lines["standard f32"], np.column_stack([synthetic.SEQ_LENS, expected]))
        self.assertEqual(len(axes.collections), 4)
        for name, growth in (("guide S", 8.0), ("guide S²", 64.0)):
            self.assertAlmostEqual(lines[name][-1, 1] / lines[name][0, 1], growth)
        self.assertEqual((axes.get_xscale(), axes.get_yscale()), ("log", "log"))

    def test_case_that_did_not_run_is_marked(self):
        axes = self.axes()
        plots.draw_time(axes, self.frame(out_of_memory=(3,)), "OpenMP", "forward")
        lines = self.lines(axes)
        self.assertEqual(list(lines["standard f32"][:, 0]), [512, 1024, 2048])
        self.assertEqual(list(lines["standard f32 did not run"][:, 0]), [4096])

    def test_memory_lines_and_printed_reductions(self):
        axes = self.axes()
        plots.draw_memory(axes, self.frame(), "backward")
        flash = [
            (synthetic.activation_bytes("flash", "f32", n) + synthetic.workspace_bytes("flash", n)) / 2**20
            for n in synthetic.SEQ_LENS
        ]
        np.testing.assert_allclose(self.lines(axes)["flash f32"][:, 1], flash)
        printed = [text.get_text() for text in axes.texts]
        self.assertEqual([text for text in printed if "%" in text][-4:], ["−31 %", "−53 %", "−71 %", "−83 %"])

    def test_a_direction_that_the_first_space_lacks(self):
        frame = self.frame()
        frame["execution_space"] = frame["direction"].map({"forward": "OpenMP", "backward": "Serial"})
        self.assertEqual([len(row["panels"]) for row in plots._time_rows(frame)], [1, 1])
        axes = self.axes()
        plots.draw_memory(axes, frame, "backward")
        self.assertEqual(len(self.lines(axes)["flash f32"]), 4)
        with h5py.File(self.folder / "layer.h5", "r+") as file:
            file["cases/execution_space"][...] = frame["execution_space"].to_numpy(object)
        plots.save_plots(open_results(self.folder / "layer.h5"), self.folder / "out.png")

    def test_printed_reductions_and_dtypes_stand_apart(self):
        for count in range(1, 9):
            frame = self.frame()
            frame["seq_len"] = frame["seq_len"].map({n: 64 << i * (count - 1) // 3 for i, n in enumerate(synthetic.SEQ_LENS)})
            frame = frame.drop_duplicates(["impl", "dtype", "direction", "seq_len"])
            figure, panels = plt.subplots(1, 3, figsize=(plots._WIDTH, plots._ROW_HEIGHT))
            self.addCleanup(plt.close, figure)
            figure.subplots_adjust(left=0.075, right=0.985, wspace=0.2)
            plots.draw_memory(panels[0], frame, "backward")
            boxes = {text: text.get_window_extent() for text in panels[0].texts}
            for name in (text for text in boxes if text.get_text() in synthetic.DTYPES):
                met = [t.get_text() for t, box in boxes.items() if t is not name and box.overlaps(boxes[name])]
                self.assertEqual(met, [], f"beside {name.get_text()}, {count} lengths")

    def test_numbers_of_lengths_stand_apart(self):
        for lengths in ((128, 256, 512, 1024, 2048, 4096, 8192, 16384), (1000, 1024, 1100, 4096), (512,)):
            frame = self.frame()
            frame = pd.concat([frame.head(1).assign(seq_len=length) for length in lengths])
            figure, panels = plt.subplots(1, 3, figsize=(plots._WIDTH, plots._ROW_HEIGHT))
            self.addCleanup(plt.close, figure)
            figure.subplots_adjust(left=0.075, right=0.985, wspace=0.2)
            plots.draw_time(panels[0], frame, "OpenMP", "forward")
            figure.draw_without_rendering()
            labels = [label for label in panels[0].get_xticklabels() if label.get_text()]
            self.assertEqual(labels[0].get_text(), str(lengths[0]))
            for one, other in zip(labels, labels[1:]):
                self.assertFalse(one.get_window_extent().overlaps(other.get_window_extent()), (one, other))
            self.assertEqual(len(panels[0].get_xticks()), len(lengths))

    def test_the_legend_fits(self):
        groups = open_results(self.written(out_of_memory=(3,)))
        frame = series.case_frame(groups)
        for name in ("f16", "f64"):
            frame = pd.concat([frame, frame.head(16).assign(dtype=name)], ignore_index=True)
        frame["noisy"] = "yes"
        with plt.rc_context(plots.RC):
            figure = plots._compose(groups, frame, plots._time_rows(frame), "")
        self.addCleanup(plt.close, figure)
        legend, = figure.subfigs[0].legends
        self.assertEqual(len(legend.get_texts()), 10)
        self.assertLessEqual(legend.get_window_extent().x1, figure.bbox.x1)

    def test_a_reduction_without_difference_has_no_sign(self):
        self.assertEqual([plots._percent(x) for x in (0.0, 0.004, -0.004, 0.5, -0.2)], ["0 %", "0 %", "0 %", "−50 %", "+20 %"])

    def test_breakdown_bars(self):
        axes = self.axes()
        frame = self.frame()
        plots.draw_breakdown(axes, series.breakdown(self.groups, frame))
        self.assertEqual(len(axes.patches), 8 * (len(synthetic.BLOCKS) + 1))
        first_bar = [bars.patches[0].get_width() for bars in axes.containers]
        self.assertAlmostEqual(sum(first_bar), 1e3 * synthetic.seconds("standard", "f32", "forward", 4096))
        self.assertEqual([text.get_text() for text in axes.texts], ["3.0 % un-attributed"] * 8)
        self.assertEqual([list(line.get_xdata()) for line in axes.lines], [[]])

    def test_bars_that_noise_decides_have_a_ring(self):
        frame = self.frame()
        frame["noisy"] = "no"
        frame.loc[(frame["impl"] == "flash") & (frame["dtype"] == "f32") & (frame["direction"] == "backward"), "noisy"] = "yes"
        for regions in (self.groups["regions"], self.groups["regions"].where(self.groups["regions"]["depth"] > 0, drop=True)):
            table = series.breakdown({"regions": regions}, frame)
            place = table.index.get_loc(("backward", "f32", "flash"))
            axes = self.axes()
            plots.draw_breakdown(axes, table)
            marked = [number for number, text in enumerate(axes.texts) if "noise decides" in text.get_text()]
            self.assertEqual(marked, [place])
            (x, y), = axes.lines[0].get_xydata()
            self.assertAlmostEqual(x, sum(bars.patches[place].get_width() for bars in axes.containers))
            self.assertAlmostEqual(y, axes.get_yticks()[place])


class CommandLine(WithMain, WithFile):
    def assert_png(self, path):
        self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_plot_beside_the_file(self):
        code, out, _ = self.run_main("plot", self.written())
        self.assertEqual((code, out), (0, f"{self.folder / 'layer.png'}\n"))
        self.assert_png(self.folder / "layer.png")

    def test_plots_of_which_nothing_or_one_direction_ran(self):
        for failed in (range(32), range(8), range(8, 16)):
            path = self.written(cases=16, out_of_memory=[case for case in failed if case < 16], regions=False)
            self.assertEqual(self.run_main("plot", path)[0], 0)

    def test_plot_of_an_interrupted_run_without_regions(self):
        path = self.written("layer.h5.part", complete=0, cases=3, regions=False)
        code, out, _ = self.run_main("plot", path, "--separate")
        self.assertEqual(code, 0)
        self.assertEqual(out.split(), [str(self.folder / f"layer-{kind}.png") for kind in ("time", "memory")])

    def test_separate_plots(self):
        code, out, _ = self.run_main("plot", self.written(), "--separate", "-o", self.folder / "a.png")
        self.assertEqual(code, 0)
        for kind in ("time", "memory", "breakdown"):
            self.assertIn(f"a-{kind}.png", out)
            self.assert_png(self.folder / f"a-{kind}.png")

    def test_a_plot_without_an_ending_is_a_png(self):
        path = self.written(regions=False, cases=8)
        for name, written in (("picture", "picture.png"), ("a.v1", "a.v1.png"), ("a.svg", "a.svg"), ("b.PNG", "b.PNG")):
            out = self.run_main("plot", path, "-o", self.folder / name)[1]
            self.assertEqual(out, f"{self.folder / written}\n")
            self.assertTrue((self.folder / written).exists())

    def test_the_summary_says_of_which_cases_memory_is(self):
        self.assertIn("flash against standard:\n", self.run_main("summary", self.written())[1])
        with h5py.File(self.folder / "layer.h5", "r+") as file:
            file["cases/batch"][16:] = 4
        self.assertIn("flash against standard, batch 1:\n", self.run_main("summary", self.folder / "layer.h5")[1])

    def test_savings_that_round_to_nothing_have_no_minus(self):
        reductions = pd.DataFrame({"direction": "forward", "dtype": "f32", "seq_len": [512, 1024], "reduction": [0.0004, 0.5]})
        with contextlib.redirect_stdout(io.StringIO()) as out:
            summary._print_reductions(reductions, "")
        self.assertRegex(out.getvalue(), r"(?m)^forward +f32 +\+0\.0 % +-50\.0 %$")

    def test_summary_has_a_row_for_each_case(self):
        code, out, _ = self.run_main("summary", self.written())
        self.assertEqual(code, 0)
        self.assertEqual(sum(line.split()[:1] in (["standard"], ["flash"]) for line in out.splitlines()), 32)
        self.assertIn("op layer, ", out)
        self.assertIn("-83.4 %", out)

    def test_errors_are_one_line_and_exit_code_4(self):
        code, out, error = self.run_main("summary", self.folder / "none.h5")
        self.assertEqual((code, out), (4, ""))
        self.assertEqual(error, f"kformer_results: error: {self.folder / 'none.h5'}: no such file\n")

    def test_groups_of_another_kind_are_one_line_and_exit_code_4(self):
        changes = {
            "generate": lambda file: file.attrs.update(kind="generate"),
            "memory_plan": lambda file: file.attrs.update(kind="memory_plan"),
            "layer_sweep": lambda file: file.pop("cases/time_median"),
        }
        for kind, change in changes.items():
            with self.subTest(kind=kind):
                path = self.written()
                with h5py.File(path, "a") as file:
                    change(file)
                code, _, error = self.run_main("summary", path)
                self.assertEqual(code, 4)
                said = f"kformer_results: error: {path}: its groups are not those of a result file of kind '{kind}' (KeyE"
                self.assertTrue(error.startswith(said), error)

    def test_attributes_of_another_type_are_exit_code_4(self):
        for name, value in {"git_dirty": "yes", "complete": [1, 2]}.items():
            with self.subTest(name=name):
                path = self.written()
                with h5py.File(path, "a") as file:
                    file.attrs[name] = value
                code, _, error = self.run_main("summary", path)
                self.assertEqual(code, 4)
                self.assertIn("its groups are not those of a result file", error)

    def test_a_title_with_dollar_signs_is_text(self):
        path = self.written()
        with h5py.File(path, "a") as file:
            file.attrs["title"] = "$x_{$ and \\frac"
        self.assertEqual(self.run_main("plot", path)[0], 0)


if __name__ == "__main__":
    unittest.main()
