# SPDX-License-Identifier: MIT
"""Plots of a scaling study, and its table."""

import numpy as np
import pandas as pd
import xarray as xr

from kformer_results import scaling_plots, tables
from kformer_results.style import BLOCK_COLOURS, OWN_COLOUR
from tests.test_results import WithPlots

RAN = pd.DataFrame({"grid": ["1x1x1x1", "2x1x1x1"], "ranks": [1, 2], "efficiency": [1.0, 0.75], "scaling": "weak"})
THREE = pd.DataFrame({"grid": ["1x1x1", "2x1x1", "4x1x1"], "scaling": "strong", "efficiency": [1.0, 0.75, 0.5]})
SIMULATED = pd.DataFrame({"case": [0, 1, 2], "efficiency": [1.0, 0.9, 0.8]})


class Scaling(WithPlots):
    def bars(self, axes):
        """Heights of the bars by their labels, one for each grid."""
        return {of.get_label(): [bar.get_height() for bar in of] for of in axes.containers}

    def test_shares_of_communication_are_means_over_ranks(self):
        sent = pd.DataFrame({"case": [1, 1, 1, 1], "operation": ["all_reduce"] * 2 + ["all_gather"] * 2,
                             "region": ["backward"] * 3 + ["forward"], "share": [0.2, 0.4, 0.05, 0.15]})  # fmt: skip
        axes = self.axes()
        scaling_plots.draw_communication(axes, RAN, sent)
        expected = {"all_reduce, backward": 30, "all_gather, forward": 7.5, "all_gather, backward": 2.5}
        found = self.bars(axes)
        self.assertEqual(list(found), list(expected))  # the largest first, at the bottom
        for what, height in expected.items():
            np.testing.assert_allclose(found[what], [0, height])
        np.testing.assert_allclose([bar.get_y() for bar in axes.containers[2]], [0, 37.5])

    def test_what_has_no_colour_of_its_own_is_put_together(self):
        count = len(BLOCK_COLOURS) + 3
        sent = pd.DataFrame({"case": 0, "operation": [f"op{k:02}" for k in range(count)], "region": "step",
                             "share": np.linspace(0.05, 0.01, count)})  # fmt: skip
        axes = self.axes()
        scaling_plots.draw_communication(axes, RAN, sent)
        found = self.bars(axes)
        self.assertEqual(len(found), len(BLOCK_COLOURS) + 1)
        np.testing.assert_allclose(found["others"], [100 * sent["share"].iloc[-3:].sum(), 0])
        np.testing.assert_allclose(sum(heights[0] for heights in found.values()), 100 * sent["share"].sum())
        self.assertEqual(axes.containers[-1][0].get_facecolor(), scaling_plots.plt.matplotlib.colors.to_rgba(OWN_COLOUR))

    def test_a_simulation_stands_on_its_grid(self):
        axes = self.axes()
        scaling_plots.draw_efficiency(axes, RAN, pd.DataFrame({"case": [1, 0], "efficiency": [0.7, 0.9]}))
        np.testing.assert_allclose(self.bars(axes)["measured"], [100, 75])
        np.testing.assert_allclose(axes.lines[0].get_ydata(), [90, 70])

    def test_simulated_grids_have_a_line_for_each_way_to_divide_a_model(self):
        alone = pd.DataFrame({"context": 1, "tensor": [2, 2, 1], "pipeline": [1, 1, 4], "ranks": [8, 2, 4], "efficiency": [0.5, 0.8, 0.4]})
        axes = self.axes()
        scaling_plots.draw_simulated(axes, alone)
        found = {label: points.tolist() for label, points in self.lines(axes).items()}
        self.assertEqual(found, {"context 1, tensor 1, pipeline 4": [[4, 40]], "context 1, tensor 2": [[2, 80], [8, 50]]})

    def test_tokens_are_those_of_grids_that_ran(self):
        cases = pd.DataFrame({"op": "step", "tokens": [128, 0]})
        self.assertEqual(scaling_plots._facts(cases, cases[:1]), ["step", "128 tokens"])
        self.assertEqual(scaling_plots._facts(cases, cases[:0]), ["step"])

    def test_grids_that_did_not_run_follow_in_the_table(self):
        columns = {"grid": ["a", "b"], "ranks": [1, 2], "tokens": [8, 8], "time_median": [1.0, 2.0], "efficiency": [1.0, 0.5],
                   "communication_share": [0.0, 0.1], "peak_bytes": [2**20, 2**21]}
        simulated = {"case": [1, 0, -1], "grid": ["b", "a", "c"], "ranks": [2, 1, 64], "efficiency": [0.6, 1.0, 0.3],
                     "simulated_time": [1.9, 1.1, 3.0], "relative_error": [-0.05, 0.1, np.nan],
                     "predicted_bytes": [2**21, 2**20, 3 * 2**20]}
        table = tables.scaling_table({
            "cases": xr.Dataset({name: ("case", values) for name, values in columns.items()}),
            "simulation/grids": xr.Dataset({name: ("row", values) for name, values in simulated.items()}),
        })  # fmt: skip
        self.assertEqual(table["grid"].tolist(), ["a", "b", "c"])
        self.assertEqual(table["simulated_time"].tolist(), [1.1, 1.9, 3.0])
        self.assertEqual(table["simulation_error"].tolist()[:2], [0.1, -0.05])
        self.assertEqual(table["peak_MiB"].tolist(), [1, 2, 3])
        self.assertEqual(table["status"].tolist()[2], "simulated")

    def test_efficiencies_that_noise_decides_have_a_ring(self):
        axes = self.axes()
        scaling_plots.draw_efficiency(axes, THREE.assign(noisy=["no", "yes", "no"]), SIMULATED)
        np.testing.assert_allclose([bar.get_height() for bar in axes.patches], [100, 75, 50])
        np.testing.assert_allclose(self.lines(axes)["noise decides"], [[1, 75]])
        np.testing.assert_allclose(self.lines(axes)["simulated"], [[0, 100], [1, 90], [2, 80]])

    def test_quiet_studies_have_no_ring(self):
        for ran in (THREE, THREE.assign(noisy="no")):
            axes = self.axes()
            scaling_plots.draw_efficiency(axes, ran, SIMULATED)
            self.assertEqual(set(self.lines(axes)), {"simulated"})
