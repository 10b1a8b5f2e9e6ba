"""Results: samples, their medians and spread, verdicts, and how they are written."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import dataclass, field

from cases import Wanted

SIDES = ("floor", "kernel", "before", "vshmem")
HEADS = {"before": "before", "floor": "floor", "kernel": "kernel", "vshmem": "Vshmem"}


@dataclass
class Result:
    """One row: the samples of each side."""

    name: str
    unit: str
    wanted: Wanted | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""

    def add(self, side: str, value: float) -> None:
        """Keeps the sample of one round."""
        self.samples.setdefault(side, []).append(value)

    def median(self, side: str) -> float | None:
        """The median of a side's rounds; None if it was not measured."""
        values = self.samples.get(side)
        return statistics.median(values) if values else None

    def spread(self, side: str) -> float | None:
        """Half of the range, as a share of the median."""
        values = self.samples.get(side)
        if not values or not self.median(side):
            return None
        return (max(values) - min(values)) / 2 / statistics.median(values)

    def ratio(self, of: str) -> float | None:
        """Vshmem's time as a multiple of another side's: the median of the rounds' ratios."""
        ours, theirs = self.samples.get("vshmem"), self.samples.get(of)
        if not ours or not theirs or not all(theirs):
            return None
        if len(ours) != len(theirs):  # not measured round by round
            return statistics.median(ours) / statistics.median(theirs)
        return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))

    def change(self) -> str:
        """Vshmem's time as a share of the earlier build's."""
        ratio = self.ratio("before")
        return f"{ratio:.2f}" if ratio else ""

    def verdict(self) -> str:
        """pass, FAIL, or nothing where nothing is wanted or nothing could be compared."""
        if self.error:
            return "FAIL"
        ours = self.median("vshmem")
        if self.wanted is None or ours is None:
            return ""
        if not self.wanted.of:
            return "pass" if ours <= self.wanted.absolute else "FAIL"
        ratio = self.ratio(self.wanted.of)
        if ratio is None:
            return ""
        return "pass" if ratio <= self.wanted.factor else "FAIL"

    def comparison(self) -> str:
        """The ratio in words: how many times faster than the kernel, or how often the floor."""
        of = self.wanted.of if self.wanted else "kernel" if "kernel" in self.samples else "floor"
        ratio = self.ratio(of) if of else None
        if ratio is None:
            return ""
        faster = of == "kernel" and (self.wanted is None or self.wanted.factor < 1)
        if not faster:
            return f"{ratio:.2f} of {of}"
        floor = self.ratio("floor")
        at_floor = f", {floor:.2f} of floor" if floor else ""
        return f"{1 / ratio:.1f} x faster{at_floor}"

    def wish(self) -> str:
        """What is wanted, in words."""
        if self.wanted is None:
            return ""
        if not self.wanted.of:
            return f"<= {self.wanted.absolute:g} {self.unit}"
        if self.wanted.factor < 1:
            return f"{1 / self.wanted.factor:g} x faster"
        return f"<= {self.wanted.factor:g} of {self.wanted.of}"


def number(value: float | None) -> str:
    """Three or four significant digits, with thousands marked."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def cell(result: Result, side: str) -> str:
    """A median with its spread."""
    spread = result.spread(side)
    many = len(result.samples.get(side, ())) > 1
    if not many or spread is None:
        return number(result.median(side))
    return number(result.median(side)) + (f" ±{spread:.0%}" if spread < 10 else " ±>999%")


def sides_of(results: list[Result]) -> list[str]:
    """The sides that are shown: an earlier build is measured only on request."""
    compared = any("before" in r.samples for r in results)
    return [side for side in SIDES if side != "before" or compared]


def table(results: list[Result]) -> str:
    """The results as text."""
    shown = sides_of(results)
    compared = "before" in shown
    change = ["of before"] if compared else []
    heads = ("", "unit", *(HEADS[s] for s in shown), *change, "Vshmem is", "wanted", "")
    rows = [
        (
            r.name,
            r.unit,
            *(cell(r, s) for s in shown),
            *([r.change()] if compared else []),
            r.comparison(),
            r.wish(),
            r.verdict(),
        )
        for r in results
    ]
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    numbers = range(2, 2 + len(shown) + len(change))
    lines = []
    for row in (heads, *rows):
        cells = [
            text.rjust(width) if i in numbers else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths[:-1]))
    lines.extend(dict.fromkeys(f"failed: {r.error}" for r in results if r.error))
    return "\n".join(lines)


def as_csv(results: list[Result]) -> str:
    """The results for machines: medians, least and largest of each side."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    sides = sides_of(results)
    columns = [f"{side}_{what}" for side in sides for what in ("median", "min", "max")]
    writer.writerow(["name", "unit", *columns, "wanted", "verdict"])
    for r in results:
        values = []
        for side in sides:
            samples = r.samples.get(side)
            triple = (r.median(side), min(samples), max(samples)) if samples else ("", "", "")
            values.extend(f"{v:.5g}" if v != "" else "" for v in triple)
        writer.writerow([r.name, r.unit, *values, r.wish(), r.verdict()])
    return out.getvalue()
