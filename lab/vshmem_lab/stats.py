"""The statistics: pure functions of numbers, tested against known distributions.

Contenders take turns (A B B A), so each repetition gives a pair that saw the same mood of the
machine. What differs is judged by the pairs' ratios: a drift meets both sides of a pair, and the
sign test counts a burst that hit one side as one pair, however long it was. (Against the noise of
`tests/test_stats.py`, a slow-down of 20 % is found in 96 of 100 runs of 12 pairs; by the
signed-rank test in 78, since bursts have high ranks. Winsorized t-tests find it, too, but call no
change one in 8 of 100.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

# A difference is called one if chance would show it in one of a hundred comparisons at most.
LEVEL = 0.01
# With fewer pairs no outcome of the sign test is that rare.
FEWEST = 8
CONFIDENCE = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Summary:
    """Samples in short: their median, and the interval that holds the true one with 95 %."""

    count: int
    median: float
    low: float
    high: float
    lowest: float = math.nan
    mean: float = math.nan
    highest: float = math.nan
    deviation: float = math.nan  # the standard one, of samples; NaN of a single one


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median. Equal samples give equal intervals."""
    data = np.asarray(values, dtype=float)
    if len(data) < 2 or np.ptp(data) == 0:
        return float(data[0]), float(data[-1])
    found = stats.bootstrap(
        (data,),
        np.median,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def summarize(values: Sequence[float]) -> Summary:
    """The summary of at least one sample."""
    interval = bootstrap_interval(values)
    extremes = (float(found(values)) for found in (np.min, np.mean, np.max))
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return Summary(len(values), float(np.median(values)), *interval, *extremes, deviation)


def welch(one: Sequence[float], other: Sequence[float]) -> float:
    """The papers' test: p of Welch's t-test, that both have one mean. NaN for single samples."""
    if len(one) < 2 or len(other) < 2:
        return math.nan
    if np.ptp(one) == 0 and np.ptp(other) == 0:
        return 1.0 if one[0] == other[0] else 0.0
    return float(stats.ttest_ind(one, other, equal_var=False).pvalue)


class Verdict:
    """A comparison that rests on a test."""

    p: float  # that chance alone makes what was found; NaN if there are too few samples

    @property
    def known(self) -> bool:
        """Whether there are enough samples for a verdict."""
        return not math.isnan(self.p)

    @property
    def real(self) -> bool:
        """Whether it is more than noise."""
        return self.known and self.p <= LEVEL


@dataclass(frozen=True)
class Difference(Verdict):
    """How another contender's samples compare with one's."""

    ratio: float  # the other's by the one's
    low: float  # of the 95 % interval of the ratio
    high: float
    p: float  # of the test that the verdict rests on; NaN if there are too few samples
    welch_p: float


def sign_test(differences: np.ndarray) -> float:
    """p that chance alone makes the signs this uneven; ties say nothing."""
    more, less = int(np.sum(differences > 0)), int(np.sum(differences < 0))
    return float(stats.binomtest(more, more + less).pvalue) if more + less else 1.0


def compare_turns(one: Sequence[float], other: Sequence[float]) -> Difference:
    """Compares samples that were taken in turns, pair by pair."""
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if len(a) != len(b):
        raise ValueError("samples that were taken in turns are equally many")
    logs = np.log(b / a)
    low, high = (math.exp(edge) for edge in bootstrap_interval(logs))
    p = math.nan
    if len(logs) >= FEWEST:
        p = sign_test(logs)
    return Difference(math.exp(float(np.median(logs))), low, high, p, welch(a, b))


@dataclass(frozen=True)
class Spread(Verdict):
    """How another contender's variance compares with one's."""

    ratio: float  # the other's by the one's
    p: float  # that both vary alike; NaN if there are too few samples


def compare_spread(one: Sequence[float], other: Sequence[float]) -> Spread:
    """Compares variances by Brown and Forsythe's test, which takes how far samples are from their
    median: a time has outliers, of which the F-test makes a difference where there is none.
    """
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if min(len(a), len(b)) < 2:
        return Spread(math.nan, math.nan)
    variances = float(np.var(a, ddof=1)), float(np.var(b, ddof=1))
    ratio = variances[1] / variances[0] if variances[0] else math.inf if variances[1] else 1.0
    p = math.nan
    if min(len(a), len(b)) >= FEWEST:
        p = float(stats.levene(a, b, center="median").pvalue) if max(variances) else 1.0
    return Spread(ratio, p)


def compare_runs(one: Sequence[float], other: Sequence[float]) -> Difference:
    """Compares samples of two runs by Mann and Whitney's test: they are no pairs."""
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    ratio = float(np.median(b) / np.median(a))
    (alow, ahigh), (blow, bhigh) = bootstrap_interval(a), bootstrap_interval(b)
    enough = min(len(a), len(b)) >= FEWEST
    p = float(stats.mannwhitneyu(a, b).pvalue) if enough else math.nan
    return Difference(ratio, blow / ahigh, bhigh / alow, p, welch(a, b))


def noise(values: Sequence[float]) -> float:
    """How far samples are from the median, mostly: their median deviation, as a share of it."""
    data = np.asarray(values, dtype=float)
    middle = float(np.median(data))
    return float(np.median(np.abs(data - middle))) / middle if middle else 0.0
