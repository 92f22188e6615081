# SPDX-License-Identifier: MIT
"""Plots of generations, of quantised checkpoints, and rooflines."""

import unittest

import numpy as np
import pandas as pd

from kformer_results import ResultFileError, generate_plots, open_results, quantize_plots, roofline
from tests.test_results import WithFile, WithMain, WithPlots
from tests.test_tables import GENERATED, QUANTIZED, write

# Two rows of the first case: three new tokens and one.
TIMED = {
    **GENERATED,
    "generations": ("generation", {"case": [0, 0], "prompt": ["$x_{$"] * 2, "adapter": ["tuned"] * 2, "row": [0, 1], "mean_nll": [1.0, 2.0]}),
    "tokens": ("token", {
        "generation": [0, 0, 0, 0, 1, 1], "position": [0, 1, 2, 3, 0, 1], "new": ["no", "yes", "yes", "yes", "no", "yes"],
        "time": [np.nan, 0.5, 0.75, 1.0, np.nan, 0.5], "log_probability": [np.nan, -1.0, -3.0, -2.0, np.nan, -4.0],
    }),
}  # fmt: skip


class Generations(WithFile, WithPlots, WithMain):
    def groups(self, groups=TIMED):
        write(self.folder / "run.h5", "generate", groups)
        return open_results(self.folder / "run.h5")

    def test_rates_are_those_of_the_cases(self):
        frame = self.groups()["cases"].to_dataframe()
        for column, rates in (("prefill_rate", [1000, 1200]), ("decode_rate", [90.5, np.nan])):
            axes = self.axes()
            generate_plots.draw_rates(axes, frame, column)
            np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[rates[0], 0], [rates[1], 1]])
            self.assertEqual([text.get_text() for text in axes.texts], ["out_of_memory"])

    def test_repeats_of_a_prompt_are_in_one_row(self):
        frame = pd.DataFrame({"prompt": ["a", "b"] * 3, "status": ["ok", "error"] * 3, "decode_rate": range(6)})
        axes = self.axes()
        generate_plots.draw_rates(axes, frame, "decode_rate")
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[k, k % 2] for k in range(6)])
        self.assertEqual([(text.get_text(), text.get_position()[1]) for text in axes.texts], [("error", 1)])

    def test_rates_that_noise_decides_have_a_ring(self):
        frame = pd.DataFrame({"prompt": ["a", "b", "b"], "status": ["ok"] * 3, "decode_rate": [1.0, 2.0, 3.0], "noisy": ["no", "yes", "no"]})
        axes = self.axes()
        generate_plots.draw_rates(axes, frame, "decode_rate")
        np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[2, 1]])
        self.assertEqual(axes.get_title(), "Rate of new tokens, a ring: noise decides")

    def test_marks_are_whole_at_both_ends(self):
        for rates, end in (([600.0, 690.0], 690), ([0.0, 0.0], 0), ([np.nan, np.nan], 0)):
            axes = self.axes()
            generate_plots.draw_rates(axes, pd.DataFrame({"prompt": ["a", "b"], "status": ["ok"] * 2, "decode_rate": rates}), "decode_rate")
            self.assertEqual(axes.get_xlim()[0], 0)
            self.assertGreater(axes.get_xlim()[1], 1.05 * end)
            self.assertFalse(axes.lines[0].get_clip_on())

    def test_prompts_beyond_the_limit_are_said(self):
        count = 50
        frame = pd.DataFrame({"prompt": [f"p{k}" for k in range(count)], "status": ["ok"] * count, "decode_rate": [1.0] * count})
        axes = self.axes()
        generate_plots.draw_rates(axes, frame, "decode_rate")
        self.assertEqual(axes.get_title(), "Rate of new tokens, the first 40 of 50 prompts")
        self.assertEqual(len(axes.get_yticklabels()), 40)
        axes = self.axes()
        generate_plots._draw_lines(axes, [(f"p{k}", np.ones(2)) for k in range(count)] * 2, "Lines", "twice")
        self.assertEqual(axes.get_legend().get_title().get_text(), "twice\nthe first 12 of 50 prompts")
        self.assertEqual(len({line.get_color() for line in axes.lines}), 12)
        self.assertEqual(len(axes.get_legend().get_texts()), 12)

    def test_latency_is_that_of_the_first_token_and_then_of_steps(self):
        axes = self.axes()
        generate_plots.draw_latency(axes, self.groups())
        np.testing.assert_array_equal(self.lines(axes)["$x_{$  (tuned)"], [[1, 500], [2, 250], [3, 250]])
        self.assertEqual(len(axes.lines), 1)

    def test_surprise_is_a_running_mean_of_each_row(self):
        axes = self.axes()
        generate_plots.draw_log_probability(axes, self.groups())
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1, 2, 2])
        np.testing.assert_array_equal(axes.lines[1].get_ydata(), [4])
        self.assertEqual(len({line.get_color() for line in axes.lines}), 1)
        self.assertEqual([text.get_text() for text in axes.get_legend().get_texts()], ["$x_{$  (tuned)"])

    def test_tokens_stand_in_their_order_and_count_if_they_have_a_probability(self):
        tokens = {"generation": [0] * 5, "position": [4, 1, 0, 3, 2], "new": ["yes", "yes", "no", "yes", "yes"],
                  "time": [2.0, 0.5, np.nan, 1.25, 0.75], "log_probability": [-8.0, -1.0, np.nan, -3.0, np.nan]}  # fmt: skip
        groups = self.groups({**TIMED, "tokens": ("token", tokens)})
        axes = self.axes()
        generate_plots.draw_log_probability(axes, groups)
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1, 1, 2, 4])
        axes = self.axes()
        generate_plots.draw_latency(axes, groups)
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), [500, 250, 500, 750])
        self.assertEqual(axes.get_legend().get_title().get_text(), "")  # one line has nothing to be told from

    def test_the_command_line_draws_with_and_without_tokens(self):
        for groups in (TIMED, {"cases": GENERATED["cases"]}):
            self.groups(groups)
            code, out, _ = self.run_main("plot", self.folder / "run.h5")
            self.assertEqual((code, out.strip()), (0, str(self.folder / "run.png")))
            self.assertTrue((self.folder / "run.png").read_bytes().startswith(b"\x89PNG"))
            (self.folder / "run.png").unlink()

    def test_a_run_without_cases_is_refused(self):
        with self.assertRaisesRegex(ResultFileError, "no cases"):
            generate_plots.save_generate_plot(self.groups({}), self.folder / "out.png")


class Quantised(WithFile, WithPlots, WithMain):
    def test_roles_have_no_layer_number(self):
        names = {"model.layers.3.mlp.up_proj.weight": "mlp.up_proj", "lm_head.weight": "lm_head", "a.3": "a.3"}
        self.assertEqual({name: quantize_plots.role(name) for name in names}, names)

    def test_a_dot_for_each_tensor_in_the_row_of_its_role(self):
        frame = pd.DataFrame({
            "role": ["up", "down", "up"], "format_after": ["Q8_0", "Q8_0", "Q4_0"], "rel_rms_err": [0.1, 0.2, 0.3],
            "max_abs_err": [1.0, 2.0, 3.0],
        })  # fmt: skip
        axes = self.axes()
        quantize_plots.draw_errors(axes, frame)
        np.testing.assert_array_equal(self.lines(axes)["Q8_0"], [[0.1, 0], [0.2, 1]])
        np.testing.assert_array_equal(self.lines(axes)["Q4_0"], [[0.3, 0]])
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()], ["up", "down"])
        axes = self.axes()
        quantize_plots.draw_errors(axes, frame.assign(rel_rms_err=[0.0, 0.2, np.nan]))
        np.testing.assert_array_equal(self.lines(axes)["Q8_0"], [[0.2, 1]])
        axes = self.axes()
        quantize_plots.draw_range(axes, frame)
        np.testing.assert_array_equal(self.lines(axes)["Q4_0"], [[3, 0]])
        self.assertGreater(axes.get_xlim()[1], 3)

    def test_bytes_are_sums_over_layers(self):
        frame = pd.DataFrame({"role": ["up", "up"], "bytes_before": [2**20, 2**20], "bytes_after": [2**19, 2**19]})
        axes = self.axes()
        quantize_plots.draw_bytes(axes, frame)
        self.assertEqual([bar.get_width() for bar in axes.patches], [2, 1])

    def test_the_command_line_draws(self):
        write(self.folder / "packed.h5", "quantize", QUANTIZED)
        code, out, _ = self.run_main("plot", self.folder / "packed.h5")
        self.assertEqual((code, out.strip()), (0, str(self.folder / "packed.png")))
        self.assertTrue((self.folder / "packed.png").read_bytes().startswith(b"\x89PNG"))

    def test_a_file_without_quantised_tensors_is_refused(self):
        kept = {"tensors": ("tensor", {**QUANTIZED["tensors"][1], "quantized": ["no"] * 3})}
        for groups, words in (({}, "no tensors"), (kept, "no tensor was quantised")):
            write(self.folder / "packed.h5", "quantize", groups)
            with self.assertRaisesRegex(ResultFileError, words):
                quantize_plots.save_quantize_plot(open_results(self.folder / "packed.h5"), self.folder / "out.png")


class Rooflines(WithPlots):
    def frame(self):
        return pd.DataFrame({
            "execution_space": ["a", "a", "b"], "dtype": ["f32"] * 3, "impl": ["flash"] * 3,
            "intensity": [1.0, 64.0, 2.0], "flop_rate": [5e9, 4e10, np.nan], "flop_rate_limit": [1e11] * 3,
            "bandwidth_limit": [1e10] * 3,
        })  # fmt: skip

    def test_points_lie_under_a_roof(self):
        axes = self.axes()
        roofline.draw_roofline(axes, self.frame(), "a")
        lines = self.lines(axes)
        np.testing.assert_allclose(lines["flash f32"], [[1, 5], [64, 40]])
        np.testing.assert_allclose(lines["limit f32"], [[0.5, 5], [10, 100], [128, 100]])

    def test_a_roof_is_as_wide_as_its_points(self):
        axes = self.axes()
        roofline.draw_roofline(axes, self.frame().assign(flop_rate_limit=1e13), "a")
        np.testing.assert_allclose(self.lines(axes)["limit f32"], [[0.5, 5], [128, 1280]])

    def test_points_that_noise_decides_have_a_ring(self):
        axes = self.axes()
        roofline.draw_roofline(axes, self.frame().assign(noisy=["no", "yes", "yes"]), "a")
        np.testing.assert_allclose(self.lines(axes)["noise decides"], [[64, 40]])

    def test_a_space_without_times_and_a_frame_without_limits_have_none(self):
        self.assertEqual(len(roofline.roofline_rows(self.frame())), 1)
        self.assertEqual(roofline.roofline_rows(self.frame().drop(columns="flop_rate_limit")), [])


if __name__ == "__main__":
    unittest.main()
