"""Numbers as people read them."""

from __future__ import annotations

import math


def significant(value: float) -> str:
    """Three digits, or whole numbers with thousands marked."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration(ns: float) -> str:
    """Nanoseconds in a unit that reads well."""
    for limit, unit in ((1e3, "ns"), (1e6, "µs"), (1e9, "ms")):
        if ns < limit:
            return f"{ns / limit * 1e3:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def quantity(value: float | None, unit: str) -> str:
    """A value in its unit; a dash for none."""
    if value is None or math.isnan(value):
        return "-"
    if unit == "B":
        return memory(value)
    return duration(value) if unit == "ns" else f"{significant(value)} {unit}".rstrip()


def squared(value: float, unit: str) -> str:
    """A variance in the square of its unit; of times in square microseconds, as papers have it."""
    if math.isnan(value):
        return "-"
    return f"{value / 1e6:.3g} µs²" if unit == "ns" else f"{significant(value)} ({unit})²"


def memory(value: float) -> str:
    """Bytes that were measured, in a unit that reads well."""
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if value >= 1 << shift:
            return f"{significant(value / (1 << shift))} {unit}"
    return f"{significant(value)} B"


def bytes_text(size: int) -> str:
    """8 B, 1 KiB, 64 KiB."""
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def size_text(size: int, counts: str) -> str:
    """A size in bytes, or in what it counts."""
    return f"{size:,} {counts}" if counts else bytes_text(size)


def times(ratio: float) -> str:
    """A ratio."""
    return significant(ratio)


def size(text: str) -> int:
    """A number of bytes; K and M may follow."""
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    return int(text.rstrip("KkMm")) * factor
