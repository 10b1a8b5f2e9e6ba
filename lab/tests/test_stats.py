"""The statistics against known distributions, and noise as this kind of machine has it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from vshmem_lab import stats

RUNS = 100


def mood(rng: np.random.Generator, turns: int) -> np.ndarray:
    """What the machine does to turns in a row: 3 % of jitter, a drift that walks, and bursts.

    A burst takes a few turns in a row and makes them 1.2 to 4 times as long; one in ten turns has
    one.
    """
    jitter = rng.normal(0, 0.03, turns)
    drift = np.cumsum(rng.normal(0, 0.01, turns)) + 0.1 * np.sin(
        rng.uniform(0, 6.3) + np.linspace(0, rng.uniform(0, 9), turns)
    )
    bursts = np.zeros(turns)
    at = 0
    while at < turns:
        at += int(rng.exponential(30)) + 1
        length = int(rng.integers(1, 6))
        bursts[at : at + length] = math.log(rng.uniform(1.2, 4))
    return np.exp(jitter + drift + bursts)


def turns(seed: int, slower: float, repetitions: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Two contenders in turns A B B A, of which the second takes `slower` times as long."""
    rng = np.random.default_rng(seed)
    times = 100 * mood(rng, 2 * repetitions).reshape(repetitions, 2)
    swapped = np.arange(repetitions) % 2 == 1
    times[swapped] = times[swapped][:, ::-1]
    return times[:, 0], times[:, 1] * slower


@pytest.mark.parametrize("repetitions", [12, 25])
def test_a_planted_slow_down_is_found(repetitions: int) -> None:
    found = [stats.compare_turns(*turns(seed, 1.2, repetitions)) for seed in range(RUNS)]
    assert sum(one.real and one.ratio > 1 for one in found) >= 95


@pytest.mark.parametrize("repetitions", [8, 12, 25])
def test_no_change_is_rarely_called_one(repetitions: int) -> None:
    found = [stats.compare_turns(*turns(1000 + seed, 1, repetitions)) for seed in range(RUNS)]
    assert sum(one.real for one in found) <= 5


def test_no_change_between_runs_is_rarely_called_one() -> None:
    rng = np.random.default_rng(3)
    found = [
        stats.compare_runs(rng.lognormal(0, 0.1, 25), rng.lognormal(0, 0.1, 25))
        for _ in range(RUNS)
    ]
    assert sum(one.real for one in found) <= 5


def test_a_slow_down_between_runs_is_found() -> None:
    rng = np.random.default_rng(4)
    found = [
        stats.compare_runs(rng.lognormal(0, 0.1, 25), 1.2 * rng.lognormal(0, 0.1, 25))
        for _ in range(RUNS)
    ]
    assert sum(one.real for one in found) >= 95


def test_few_samples_have_no_verdict() -> None:
    few = stats.compare_turns([1, 1, 1], [2, 2, 2])
    assert few.ratio == 2
    assert not few.known and not few.real


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        low, high = stats.bootstrap_interval(rng.exponential(1, 25))
        held += low <= math.log(2) <= high
    assert 0.9 <= held / 200 <= 0.99


def test_equal_samples_give_equal_intervals() -> None:
    values = np.random.default_rng(2).normal(10, 1, 9)
    assert stats.summarize(values) == stats.summarize(values)
    assert stats.summarize([7]) == stats.Summary(1, 7, 7, 7, 7, 7, 7)
    assert stats.summarize([1, 2, 6]).mean == 3


def test_welch_is_the_papers_test() -> None:
    rng = np.random.default_rng(5)
    assert stats.welch(rng.normal(10, 1, 25), rng.normal(14, 2, 25)) < 0.001
    assert stats.welch([5, 5], [5, 5]) == 1
    assert stats.welch([5, 5], [6, 6]) == 0
    assert math.isnan(stats.welch([5], [6, 7]))


def test_noise_ignores_bursts() -> None:
    assert stats.noise([100, 101, 99, 102, 98, 100, 5000]) == pytest.approx(0.01)
