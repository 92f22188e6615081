# SPDX-License-Identifier: MIT
"""python3 -m unittest discover -s analysis/tests -t analysis"""

from unittest import mock

import numpy as np

from kformer_results import ResultFileError, attention_plots, open_results, plots, series
from tests import synthetic, synthetic_attention
from tests.test_results import WithFile, WithMain, WithPlots


class WithComparison(WithFile):
    """Its files hold comparisons of attention."""

    def written(self, name="attention.h5", **options):
        synthetic_attention.write(self.folder / name, **options)
        return self.folder / name

    def frame(self, **options):
        self.groups = open_results(self.written(**options))
        return series.case_frame(self.groups)


class Series(WithComparison):
    def test_configurations_are_told_apart(self):
        frame = self.frame()
        self.assertEqual(set(series.select_configuration(frame)["dtype"]), {"f32"})
        self.assertEqual(set(series.select_configuration(frame, 1)["dtype"]), {"bf16"})
        self.assertEqual(sorted(series.select_configuration(frame)["seq_len"].unique()), list(synthetic.SEQ_LENS))

    def test_a_configuration_that_is_not_there(self):
        with self.assertRaisesRegex(ResultFileError, "no configuration 2; the file has 0 to 1"):
            series.select_configuration(self.frame(), 2)

    def test_what_can_be_selected(self):
        frame = self.frame()
        self.assertEqual(series.selections(frame), [({"op": "layer", "batch": 1, "configuration": number}, words)
                                                    for number, words in ((0, "causal yes"), (1, "causal no"))])  # fmt: skip
        frame.loc[frame["dtype"] == "bf16", "batch"] = 4
        frame.loc[(frame["dtype"] == "bf16") & (frame["direction"] == "backward"), "q_len"] = 1
        found = series.selections(frame)
        self.assertEqual(found, [({"op": "layer", "batch": 1, "configuration": 0}, "batch 1, causal yes"),
                                 ({"op": "layer", "batch": 4, "configuration": 0}, "batch 4, causal no"),
                                 ({"op": "layer", "batch": 4, "configuration": 1}, "batch 4, causal no, q_len 1")])  # fmt: skip
        shown = []
        for chosen, _ in found:
            number = chosen.pop("configuration")
            shown += list(series.select_configuration(series.select(frame, **chosen), number).index)
        self.assertEqual(sorted(shown), list(frame.index))

    def test_a_fixed_length_of_queries_is_one_configuration(self):
        frame = self.frame()
        frame["q_len"] = 512
        self.assertEqual(set(series.configuration_numbers(frame[frame["dtype"] == "f32"])), {0})
        # Of one batch alone, the same length of queries and keys is no fixed one.
        frame.loc[frame["dtype"] == "bf16", "batch"] = 4
        frame.loc[frame["dtype"] == "bf16", "q_len"] = frame["seq_len"]
        self.assertEqual([chosen for chosen, _ in series.selections(frame)],
                         [{"op": "layer", "batch": batch, "configuration": 0} for batch in (1, 4)])  # fmt: skip

    def test_speedups_where_both_were_timed(self):
        table = series.speedups(series.select_configuration(self.frame(out_of_memory=(3,))))
        forward = table[table["direction"] == "forward"]
        self.assertEqual(list(forward["seq_len"]), [512, 1024, 2048])
        np.testing.assert_allclose(forward["speedup"], 1.25)

    def test_crossovers(self):
        self.frame()
        table = series.crossover_table(self.groups)
        self.assertEqual(list(table["faster_from"]), ["512", "512", "512", "-"])
        np.testing.assert_allclose(table["x@2048"], 1.25)
        self.assertIn("causal", table)
        self.assertNotIn("window", table)

    def test_no_crossovers_without_a_comparison(self):
        self.frame()
        del self.groups["comparison"]
        self.assertTrue(series.crossover_table(self.groups).empty)


class Plots(WithComparison, WithPlots):
    def test_speedup_line(self):
        axes = self.axes()
        attention_plots.draw_speedup(axes, series.select_configuration(self.frame()), "OpenMP", "backward")
        lines = self.lines(axes)
        self.assertEqual(set(lines), {"f32", "equally fast"})
        np.testing.assert_allclose(lines["f32"], [(n, 1.25) for n in synthetic.SEQ_LENS])
        self.assertGreater(axes.get_ylim()[1], 1.3)

    def test_noise_gives_no_speedup_and_is_marked(self):
        frame = series.select_configuration(self.frame())
        row = (frame["impl"] == "flash") & (frame["direction"] == "backward") & (frame["seq_len"] == 1024)
        frame["noisy"] = row.map({True: "yes", False: "no"})
        axes = self.axes()
        attention_plots.draw_speedup(axes, frame, "OpenMP", "backward")
        self.assertEqual([n for n, _ in self.lines(axes)["f32"]], [512, 2048, 4096])
        self.assertLess(axes.get_xlim()[0], 500)
        axes = self.axes()
        plots.draw_time(axes, frame, "OpenMP", "backward")
        self.assertEqual([n for n, _ in self.lines(axes)["flash f32 noisy"]], [1024])
        self.assertNotIn("standard f32 noisy", self.lines(axes))

    def test_share_lines(self):
        axes = self.axes()
        attention_plots.draw_share(axes, series.select_configuration(self.frame()), "OpenMP", "forward")
        lines = self.lines(axes)
        np.testing.assert_allclose(lines["standard f32"][:, 1], 50)
        np.testing.assert_allclose(lines["flash f32"][:, 1], 62.5)
        self.assertEqual((axes.get_yscale(), axes.get_ylim()), ("linear", (0, 100)))

    def test_a_direction_that_a_space_lacks_has_no_panel(self):
        frame = self.frame()
        frame.loc[frame["direction"] == "backward", "execution_space"] = "Serial"
        self.assertEqual([len(row["panels"]) for row in attention_plots.attention_rows(frame)], [1] * 4)

    def test_kinds_of_plots(self):
        self.frame()
        paths = plots.save_plots(self.groups, self.folder / "a.png", separate=True, configuration=1)
        kinds = ["time", "speedup", "share", "memory"]
        self.assertEqual([path.name for path in paths], [f"a-{kind}.png" for kind in kinds])


    def words(self, **options):
        """What the picture says."""
        self.frame()
        with mock.patch.object(plots.plt, "close"), mock.patch.object(plots.plt.Figure, "savefig"):
            plots.save_plots(self.groups, self.folder / "a.png", **options)
        figure = plots.plt.gcf()
        self.addCleanup(plots.plt.close, figure)
        return [text.get_text() for band in figure.subfigs for text in band.texts]

    def test_the_picture_says_which_configuration_it_shows(self):
        for number in (0, 1):
            self.assertTrue(any(f"configuration {number} (the last is 1)" in text for text in self.words(configuration=number)))
        with mock.patch.object(plots, "configuration_numbers", lambda frame: frame["batch"] * 0):
            self.assertFalse(any("configuration" in text for text in self.words()))


class CommandLine(WithComparison, WithMain):
    def test_summary_ends_with_speedups(self):
        code, out, _ = self.run_main("summary", self.written())
        self.assertEqual(code, 0)
        self.assertIn("share_of_fma_peak", out)
        self.assertRegex(out, r"OpenMP +f32 +forward +yes +512 +1\.25")

    def test_the_configuration_is_chosen(self):
        code, out, _ = self.run_main("plot", self.written(), "--configuration", 1)
        self.assertEqual((code, out), (0, f"{self.folder / 'attention.png'}\n"))
        code, _, error = self.run_main("plot", self.written(), "--configuration", 7)
        self.assertEqual(code, 4)
        self.assertEqual(error, "kformer_results: error: no configuration 7; the file has 0 to 1\n")
