"""What the dwarfs' programs have to answer, computed by NumPy instead of their C.

An answer depends on all of a result: values are summed with weights, so that those that are
missing, stale, or in each other's place show. Answers of BLAS, and counts, are whole numbers and
exact; the others may differ by rounding, since each model adds in its own order.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from vshmem_lab.model import Failed

ROUNDING = 1e-9
ITERATIONS = 1000
BOX, STEP, GOLDEN = 10.0, 1e-4, 0.6180339887498949


def checksum(values: np.ndarray) -> float:
    """The weighted sum that the programs use."""
    flat = values.ravel()
    return float(np.dot(1.0 + np.arange(flat.size) % 31, flat))


def _left(count: int) -> np.ndarray:
    return np.arange(count) % 7 - 3.0


def _right(count: int) -> np.ndarray:
    return np.arange(count) % 5 - 2.0


def _dot(n: int) -> float:
    return float(_left(n) @ _right(n))


def _vector(n: int) -> float:
    return checksum(_left(n * n).reshape(n, n) @ _right(n))


def _matrix(n: int) -> float:
    return checksum(_left(n * n).reshape(n, n) @ _right(n * n).reshape(n, n))


def _laplace(n: int) -> float:
    old = np.zeros((n, n))
    old[0] = 1
    change = 0.0
    for _ in range(ITERATIONS):
        new = old.copy()
        around = old[1:-1, :-2] + old[1:-1, 2:] + old[:-2, 1:-1] + old[2:, 1:-1]
        new[1:-1, 1:-1] = around / 4
        change = float(((new - old) ** 2).sum())
        old = new
    return checksum(old) + change


def _pi(n: int) -> float:
    x = np.arange(n) / n
    f = [4 / (1 + at * at) for at in (x, x + 0.5 / n, x + 1 / n)]
    return float((f[0] + 4 * f[1] + f[2]).sum() / (6 * n))


def _md(what: str, n: int) -> float:
    dimensions, steps = (int(word) for word in what.split("d-"))
    golden = np.arange(1, n * dimensions + 1) * GOLDEN
    position = (BOX * (golden - np.floor(golden))).reshape(n, dimensions)
    velocity, acceleration = np.zeros_like(position), np.zeros_like(position)
    potential = kinetic = 0.0
    for _ in range(steps):
        apart = position[:, None, :] - position[None, :, :]
        distance = np.sqrt((apart**2).sum(axis=2))
        near = np.minimum(distance, math.pi / 2)
        potential = float(0.5 * (np.sin(near) ** 2).sum())
        kinetic = float(0.5 * (velocity**2).sum())
        np.fill_diagonal(distance, 1)
        force = -(apart * (np.sin(2 * near) / distance)[:, :, None]).sum(axis=1)
        position = position + velocity * STEP + 0.5 * STEP * STEP * acceleration
        velocity = velocity + 0.5 * STEP * (force + acceleration)
        acceleration = force
    return checksum(position) + potential + kinetic


def _times(numbers: np.ndarray) -> np.ndarray:
    """What a product of 32 bits makes of numbers."""
    return numbers * np.uint32(2654435761)


def _scattered(count: int) -> np.ndarray:
    """That of numbers in a row."""
    return _times(np.arange(count, dtype=np.uint32))


# What is held of an input that is larger, and read again and again; numbers are looked at so many
# at a time.
HELD = {"histogram": 100_000_000, "wordcount": 20_000_000}
AT_A_TIME = 30_000
PERIOD = 1000  # of the points of a regression


def _parts(count: int) -> Iterator[np.ndarray]:
    for at in range(0, count, AT_A_TIME):
        yield _times(np.arange(at, min(at + AT_A_TIME, count), dtype=np.uint32))


def _passes(what: str, n: int) -> tuple[int, int]:
    """How much is held, and how often that is read."""
    held = min(n, HELD[what])
    return held, n // held


def _histogram(n: int) -> float:
    held, passes = _passes("histogram", n)
    bins = np.zeros((3, 256))
    for part in _parts(3 * held):
        values = (part >> 13 & 255).reshape(-1, 3)
        bins += [np.bincount(values[:, i], minlength=256) for i in range(3)]
    return checksum(passes * bins)


def _wordcount(n: int) -> float:
    held, passes = _passes("wordcount", n)
    return checksum(passes * sum(np.bincount(x >> 22, minlength=1024) for x in _parts(held)))


def _regression(n: int) -> float:
    i = np.arange(PERIOD if n % PERIOD == 0 else n)
    x = i % 1000
    y = 3 * x + 7 + i % 5 - 2
    slope, axis = np.linalg.lstsq(np.stack([x, np.ones(i.size)], 1), y, rcond=None)[0]
    return checksum(np.array([slope, axis]))


def _kmeans(n: int) -> float:
    golden = np.arange(1, 3 * n + 1) * GOLDEN
    points = np.fmod(golden, 1).reshape(n, 3)
    centres = points[:8].copy()
    for _ in range(10):
        sums, counts = np.zeros((8, 3)), np.zeros(8)
        for at in range(0, n, AT_A_TIME):
            part = points[at : at + AT_A_TIME]
            # By (p - c)² - p², which orders centres as distances do.
            far = np.tile((centres**2).sum(axis=1), (len(part), 1))
            for ours, theirs in zip(part.T, centres.T, strict=True):
                far -= np.multiply.outer(ours, 2 * theirs)
            nearest = far.argmin(axis=1)
            counts += np.bincount(nearest, minlength=8)
            sums += np.stack([np.bincount(nearest, one, 8) for one in part.T], 1)
        some = counts > 0
        centres[some] = sums[some] / counts[some, None]
    return checksum(centres)


def _dedup(n: int) -> float:
    """Distinct chunks, and their bytes; the rolling hash of a byte has the last 32 bytes in it."""
    i = np.arange(n * 1024, dtype=np.uint32)
    blocks = i >> 12
    kind = _times(blocks) % np.uint32((n * 1024 + 4095) // 4096 // 2 + 1)
    data = (_times(kind * np.uint32(4096) + i % np.uint32(4096)) >> 27).astype(np.uint8)
    value, rolling = _times(data.astype(np.uint32) + np.uint32(1)), np.zeros(i.size, np.uint32)
    for age in range(32):
        rolling[age:] += value[: i.size - age] << np.uint32(age)
    ends = [*(np.flatnonzero(rolling[:-1] >> 21 == 0) + 1), i.size]
    chunks = {data[a:b].tobytes() for a, b in itertools.pairwise([0, *ends])}
    return checksum(np.array([float(len(chunks)), float(sum(map(len, chunks)))]))


_ANSWERS: dict[str, Callable[[int], float]] = {
    "dot": _dot,
    "vector": _vector,
    "matrix": _matrix,
    "laplace": _laplace,
    "laplace-atomic": _laplace,
    "pi": _pi,
    "histogram": _histogram,
    "wordcount": _wordcount,
    "regression": _regression,
    "kmeans": _kmeans,
    "dedup": _dedup,
}


@functools.cache
def answer(what: str, size: int, processes: int) -> float:
    """What a dwarf has to answer."""
    if what in ("barrier", "reduction"):
        return processes * (processes + 1) / 2 if what == "reduction" else 0.0
    return _ANSWERS[what](size) if what in _ANSWERS else _md(what, size)


def check(what: str, size: int, processes: int, found: float) -> None:
    """Raises Failed if that is not the answer."""
    right = answer(what, size, processes)
    exact = what in ("dot", "vector", "matrix", "histogram", "wordcount", "dedup")
    # Comparisons with NaN are false, so it is no answer either.
    if not abs(found - right) <= (0 if exact else ROUNDING * abs(right)):
        raise Failed(f"{what} of {size} is wrong: {found:.17g} instead of {right:.17g}.")
