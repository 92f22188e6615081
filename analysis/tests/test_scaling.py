# SPDX-License-Identifier: MIT
"""Plots of scaling studies."""

import unittest

import numpy as np
import pandas as pd

from kformer_results import scaling_plots
from tests.test_results import WithPlots

RAN = pd.DataFrame({"grid": ["1x1x1", "2x1x1", "4x1x1"], "scaling": "strong", "efficiency": [1.0, 0.75, 0.5]})
SIMULATED = pd.DataFrame({"case": [0, 1, 2], "efficiency": [1.0, 0.9, 0.8]})


class Scaling(WithPlots):
    def test_efficiencies_that_noise_decides_have_a_ring(self):
        axes = self.axes()
        scaling_plots.draw_efficiency(axes, RAN.assign(noisy=["no", "yes", "no"]), SIMULATED)
        np.testing.assert_allclose([bar.get_height() for bar in axes.patches], [100, 75, 50])
        np.testing.assert_allclose(self.lines(axes)["noise decides"], [[1, 75]])
        np.testing.assert_allclose(self.lines(axes)["simulated"], [[0, 100], [1, 90], [2, 80]])

    def test_quiet_studies_have_no_ring(self):
        for ran in (RAN, RAN.assign(noisy="no")):
            axes = self.axes()
            scaling_plots.draw_efficiency(axes, ran, SIMULATED)
            self.assertEqual(set(self.lines(axes)), {"simulated"})


if __name__ == "__main__":
    unittest.main()
