# SPDX-License-Identifier: MIT
"""Opens and plots Kformer result files.

from kformer_results import open_results
groups = open_results("layer.h5")
groups["cases"].to_dataframe()
"""

from .compare import Comparison, compare
from .grid import GridError, to_grid
from .reader import ResultFileError, open_results
from .samples import CompareError
from .sweep import open_sweep

__all__ = [
    "CompareError", "Comparison", "GridError", "ResultFileError", "compare", "open_results", "open_sweep", "to_grid",
]  # fmt: skip
