# SPDX-License-Identifier: MIT
"""Plots and table of a training."""

import unittest
import unittest.mock

import numpy as np
import xarray as xr

from kformer_results import ResultFileError, open_results, tables, train_plots
from tests.test_results import WithFile, WithMain, WithPlots
from tests.test_tables import write

STEPS = 10
TRAINED = {
    "steps": ("step", {
        "loss": np.linspace(5.0, 0.5, STEPS), "learning_rate": np.full(STEPS, 1e-3),
        "gradient_norm": [*np.full(STEPS - 1, 2.0), np.inf], "tokens": np.full(STEPS, 64),
        "time": np.full(STEPS, 0.5), "loss_scale": np.ones(STEPS), "skipped": ["no"] * (STEPS - 1) + ["yes"],
    }),
    "evaluations": ("evaluation", {"step": [4, 10], "loss": [3.25, 1.0], "time": [0.1, 0.1]}),
}  # fmt: skip


class Train(WithFile, WithPlots, WithMain):
    def groups(self, groups=TRAINED):
        write(self.folder / "train.h5", "train", groups)
        return open_results(self.folder / "train.h5")

    def test_the_loss_has_steps_and_evaluations(self):
        axes = self.axes()
        train_plots.draw_loss(axes, self.groups())
        lines = self.lines(axes)
        np.testing.assert_array_equal(lines["step"][:, 1], TRAINED["steps"][1]["loss"])
        np.testing.assert_array_equal(lines["evaluation"], [[4, 3.25], [10, 1.0]])

    def test_pairs_have_rewards_and_accuracies(self):
        figures = {"margin": np.linspace(0, 3, STEPS), "chosen_reward": np.linspace(0, 2, STEPS),
                   "rejected_reward": np.linspace(0, -1, STEPS), "accuracy": np.linspace(0, 1, STEPS)}  # fmt: skip
        groups = dict(TRAINED)
        groups["steps"] = ("step", {**TRAINED["steps"][1], **figures})
        groups["evaluations"] = ("evaluation", {**TRAINED["evaluations"][1], "margin": [1.0, 2.5], "accuracy": [0.5, 1.0]})
        groups = self.groups(groups)
        axes = self.axes()
        train_plots.draw_rewards(axes, groups)
        lines = self.lines(axes)
        np.testing.assert_array_equal(lines["chosen"][:, 1], figures["chosen_reward"])
        np.testing.assert_array_equal(lines["rejected"][:, 1], figures["rejected_reward"])
        np.testing.assert_array_equal(lines["margin, evaluation"], [[4, 1.0], [10, 2.5]])
        axes = self.axes()
        train_plots.draw_accuracy(axes, groups)
        np.testing.assert_array_equal(self.lines(axes)["step"][:, 1], figures["accuracy"])
        np.testing.assert_array_equal(self.lines(axes)["evaluation"], [[4, 0.5], [10, 1.0]])
        axes = self.axes()
        train_plots.draw_loss(axes, groups)
        self.assertEqual(axes.get_ylabel(), "")
        train_plots.save_train_plots(groups, self.folder / "out.png")
        self.assertTrue((self.folder / "out.png").exists())

    def test_policies_have_rewards_and_shares(self):
        names = ("reward", "reward_1_exact", "completion_tokens", "truncated", "equal_groups", "clip_low", "clip_high", "kl")
        figures = {name: np.linspace(0, 1, STEPS) * (k + 1) / len(names) for k, name in enumerate(names)}
        groups = dict(TRAINED)
        groups["steps"] = ("step", {**TRAINED["steps"][1], **figures})
        groups["evaluations"] = ("evaluation", {**TRAINED["evaluations"][1], "reward": [0.25, 0.75]})
        groups = self.groups(groups)
        axes = self.axes()
        train_plots.draw_reward(axes, groups)
        lines = self.lines(axes)
        np.testing.assert_array_equal(lines["step"][:, 1], figures["reward"])
        np.testing.assert_array_equal(lines["evaluation"], [[4, 0.25], [10, 0.75]])
        self.assertIn("reward_1_exact", lines)
        for draw, name in ((train_plots.draw_completions, "completion_tokens"), (train_plots.draw_divergence, "kl")):
            axes = self.axes()
            draw(axes, groups)
            np.testing.assert_array_equal(axes.lines[0].get_ydata(), figures[name])
        axes = self.axes()
        train_plots.draw_shares(axes, groups)
        for label, name in (("truncated completions", "truncated"), ("groups with equal rewards", "equal_groups"),
                            ("tokens clipped below", "clip_low"), ("tokens clipped above", "clip_high")):  # fmt: skip
            np.testing.assert_array_equal(self.lines(axes)[label][:, 1], train_plots.smoothed(figures[name]))
        train_plots.save_train_plots(groups, self.folder / "out.png")
        self.assertTrue((self.folder / "out.png").exists())

    def test_skipped_steps_are_marked(self):
        axes = self.axes()
        train_plots.draw_norm(axes, self.groups())
        self.assertEqual(self.lines(axes)["skipped"][:, 0].tolist(), [9])

    def test_gradients_of_nothing_leave_a_gap(self):
        axes = self.axes()
        train_plots.draw_norm(axes, self.groups({"steps": ("step", {**TRAINED["steps"][1], "gradient_norm": [1.0, 0.0] * (STEPS // 2)})}))
        self.assertFalse(np.isfinite(axes.transData.transform([(1, 0.0)])[0, 1]))
        self.assertEqual(axes.lines[0].get_marker(), ".")  # of a step between gaps

    def test_speed_is_tokens_over_time(self):
        axes = self.axes()
        train_plots.draw_speed(axes, self.groups())
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), np.full(STEPS, 128.0))

    def test_the_loss_scale_is_that_of_the_steps(self):
        groups = dict(TRAINED)
        scale = [*np.full(5, 65536.0), *np.full(5, 32768.0)]
        groups["steps"] = ("step", {**TRAINED["steps"][1], "loss_scale": scale})
        axes = self.axes()
        train_plots.draw_loss_scale(axes, self.groups(groups))
        np.testing.assert_array_equal(axes.lines[0].get_ydata(orig=True), scale)

    def test_checkpoints_have_their_waits(self):
        groups = self.groups({**TRAINED, "checkpoints": ("checkpoint", {"step": [4, 8], "waited": [0.25, 0.5]})})
        axes = self.axes()
        train_plots.draw_waits(axes, groups)
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[4, 0.25], [8, 0.5]])
        self.assertLess(axes.get_xlim()[0], 0)  # the steps, as in the other panels
        self.assertGreater(axes.get_xlim()[1], STEPS - 1)

    def test_steps_are_whole_numbers(self):
        axes = self.axes()
        train_plots.draw_learning_rate(axes, self.groups({"steps": ("step", {"learning_rate": [0.5, 0.25, 0.125]})}))
        self.assertTrue(all(tick == round(tick) for tick in axes.get_xticks()), axes.get_xticks())

    def test_the_profile_has_the_longest_regions_first(self):
        paths = ["forward", "forward/down", "backward", *[f"backward/{k}" for k in range(20)]]
        regions = {"path": paths, "exclusive": [0.0, 0.5, 0.25, *np.linspace(0.01, 0.1, 20)]}
        axes = self.axes()
        train_plots.draw_profile(axes, self.groups({**TRAINED, "regions": ("region", regions)}))
        names = [label.get_text() for label in axes.get_yticklabels()]
        self.assertEqual(names[:3], ["forward/down", "backward", "backward/19"])
        self.assertEqual(len(names), 16)
        self.assertEqual([bar.get_width() for bar in axes.patches][:2], [500, 250])

    def test_panels_are_those_that_the_file_has(self):
        drawn = []
        for panel in ("loss_scale", "divergence", "waits", "profile"):
            patch = unittest.mock.patch.object(train_plots, f"draw_{panel}", lambda *_, panel=panel: drawn.append(panel))
            patch.start()
            self.addCleanup(patch.stop)
        train_plots.save_train_plots(self.groups(), self.folder / "out.png")
        self.assertEqual(drawn, [])
        groups = {**TRAINED, "checkpoints": ("checkpoint", {"step": [4], "waited": [0.25]}),
                  "regions": ("region", {"path": ["forward"], "exclusive": [0.5]})}  # fmt: skip
        figures = ("reward", "completion_tokens", "truncated", "equal_groups", "clip_low", "clip_high")
        for scale, divergence, expected in ((8.0, 0.0, ["loss_scale", "waits", "profile"]),
                                            (0.5, 0.1, ["divergence", "loss_scale", "waits", "profile"])):  # fmt: skip
            drawn.clear()
            columns = {name: np.zeros(STEPS) for name in figures}
            groups["steps"] = ("step", {**TRAINED["steps"][1], **columns, "loss_scale": np.full(STEPS, scale),
                                        "kl": np.full(STEPS, divergence)})  # fmt: skip
            groups["evaluations"] = ("evaluation", {**TRAINED["evaluations"][1], "reward": [0.0, 0.0]})
            (self.folder / "train.h5").unlink()
            train_plots.save_train_plots(self.groups(groups), self.folder / "out.png")
            self.assertEqual(drawn, expected)

    def test_the_running_mean_of_a_constant_is_it(self):
        for values in ([2.0, np.nan, 2.0], [2.0, np.nan, *[2.0] * 200]):
            np.testing.assert_allclose(train_plots.smoothed(values), 2.0)
        self.assertTrue(np.isnan(train_plots.smoothed([np.nan])).all())

    def test_the_running_mean_follows_a_part_of_the_steps(self):
        values = np.arange(50.0) ** 2
        np.testing.assert_array_equal(train_plots.smoothed(values), values)
        values = [3.0, 9.0, np.nan, 0.0, *[1.0] * 96]
        # Of 100 steps the newest counts half.
        np.testing.assert_allclose(train_plots.smoothed(values)[:4], [3, 21 / 3, 21 / 3, 21 / 7])
        axes = self.axes()
        train_plots.draw_loss(axes, self.groups({"steps": ("step", {"loss": values})}))
        np.testing.assert_allclose(self.lines(axes)["running mean"][:, 1], train_plots.smoothed(values))

    def test_the_memory_of_a_training_is_stacked_by_class(self):
        mib = 2**20
        timeline = xr.Dataset({"step": ("entry", [0, 4]), "bytes": (("entry", "memory_class"), [[mib, 0, 3 * mib]] * 2),
                               "resident_bytes": ("entry", [5 * mib, 7 * mib])},
                              coords={"memory_class": ["weights", "io", "activations"]})  # fmt: skip
        axes = self.axes()
        train_plots.draw_memory(axes, {"memory/timeline": timeline})
        areas = {area.get_label(): area.get_paths()[0].vertices[:, 1] for area in axes.collections}
        self.assertEqual({label: (heights.min(), heights.max()) for label, heights in areas.items()},
                         {"weights": (0, 1), "activations": (1, 4)})  # fmt: skip
        np.testing.assert_array_equal(self.lines(axes)["process"], [[0, 5], [4, 7]])

    def test_the_learning_rate_is_that_of_the_steps(self):
        rates = np.linspace(1, 0.1, STEPS)
        axes = self.axes()
        train_plots.draw_learning_rate(axes, self.groups({"steps": ("step", {**TRAINED["steps"][1], "learning_rate": rates})}))
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), rates)

    def test_the_table_has_a_row_per_evaluation(self):
        table = tables.training_table(self.groups())
        self.assertEqual(table["steps"].tolist(), [4, 10])
        self.assertEqual(table["evaluation"].tolist(), [3.25, 1.0])
        self.assertEqual(table["tokens/s"].tolist(), [128.0, 128.0])
        self.assertEqual(table["skipped"].tolist(), [0, 1])
        self.assertAlmostEqual(table["loss"][0], np.mean(TRAINED["steps"][1]["loss"][:4]))

    def test_a_step_with_a_profile_has_no_speed(self):
        steps = {**TRAINED["steps"][1], "time": [0.5, np.nan, *[0.5] * 2, *[np.nan] * 6]}
        table = tables.training_table(self.groups({**TRAINED, "steps": ("step", steps)}))
        self.assertEqual(table["tokens/s"].tolist()[0], 128.0)
        self.assertTrue(np.isnan(table["tokens/s"][1]))

    def test_the_command_line_draws_and_prints(self):
        self.groups()
        code, out, _ = self.run_main("plot", self.folder / "train.h5")
        self.assertEqual((code, out.strip()), (0, str(self.folder / "train.png")))
        self.assertTrue((self.folder / "train.png").read_bytes().startswith(b"\x89PNG"))
        code, out, _ = self.run_main("summary", self.folder / "train.h5")
        self.assertEqual(code, 0)
        self.assertIn("tokens/s", out)

    def test_a_run_without_steps(self):
        with self.assertRaisesRegex(ResultFileError, "no steps"):
            train_plots.save_train_plots(self.groups({}), self.folder / "out.png")


if __name__ == "__main__":
    unittest.main()
