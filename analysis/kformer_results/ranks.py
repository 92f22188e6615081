# SPDX-License-Identifier: MIT
"""An interval for the ratio of two measured times that assumes no distribution."""

from statistics import NormalDist

import numpy as np

_MOST_SAMPLES = 1000  # of each run: all pairs are formed
_MOST_EXACT = 2500  # pairs; beyond, the normal approximation of the rank sum is close


def ratio_interval(a: np.ndarray, b: np.ndarray, confidence: float) -> tuple[float, float]:
    """Limits of the factor between the times of two runs: b is distributed as a times the factor.

    Inverts the rank-sum test of Wilcoxon, Mann and Whitney on the logarithms: the limits are two of the ordered ratios
    of all pairs (Moses; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, section 4.3).
    With so few samples that no interval has the confidence, such as three of each at 0.95, it is (0, inf). Of more than
    1000 samples, evenly spaced ones count.
    """
    a, b = (_thinned(np.asarray(values, dtype=float)) for values in (a, b))
    outside = _rank(len(a), len(b), (1 - confidence) / 2)
    if outside == 0:
        return 0.0, float("inf")
    ratios = np.sort(np.divide.outer(b, a).ravel())
    return float(ratios[outside - 1]), float(ratios[-outside])


def _thinned(values: np.ndarray) -> np.ndarray:
    if len(values) <= _MOST_SAMPLES:
        return values
    return values[np.linspace(0, len(values) - 1, _MOST_SAMPLES).round().astype(int)]


def _rank(n: int, m: int, tail: float) -> int:
    """The largest c for which the statistic of Mann and Whitney is less than c with at most the probability `tail`."""
    pairs = n * m
    if pairs == 0:
        return 0
    if pairs > _MOST_EXACT:
        spread = (pairs * (n + m + 1) / 12) ** 0.5
        return max(0, int(pairs / 2 + NormalDist().inv_cdf(tail) * spread))
    # The number of orders with each value of the statistic: the coefficients of a Gaussian binomial.
    counts = np.zeros(pairs + 1)
    counts[0] = 1
    for k in range(1, n + 1):
        counts[m + k :] -= counts[: max(0, pairs + 1 - m - k)].copy()
        for value in range(k, pairs + 1):
            counts[value] += counts[value - k]
    return int(np.searchsorted(np.cumsum(counts / counts.sum()), tail, side="right"))
