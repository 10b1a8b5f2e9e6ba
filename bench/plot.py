"""Draws the demo's latencies as bars on a logarithmic axis (SVG, by matplotlib).

Run as a program with a CSV of the demo and a file to write, so that any Python that has matplotlib
can do it: plot.py latency.csv latency.svg
"""

from __future__ import annotations

import csv
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot  # noqa: E402 (the back end is chosen before it is loaded)
from latency import (  # noqa: E402
    KERNEL,
    LABELS,
    MACHINES,
    SIZES,
    VSHMEM,
    Latencies,
    label,
    size_text,
    time_text,
)
from pong import Measurement  # noqa: E402

# Distinguishable without colours too: the order of the bars is that of the legend.
COLOURS = {
    (MACHINES, "segment"): "#0b5fa5",
    (MACHINES, "queue"): "#4ba3e3",
    (MACHINES, "tcp"): "#b8500d",
    (MACHINES, "udp"): "#eb9a5b",
    (VSHMEM, "segment"): "#0b5fa5",
    (VSHMEM, "queue"): "#4ba3e3",
    (KERNEL, "segment"): "#5b5b5b",
    (KERNEL, "queue"): "#a5a5a5",
}


def read(path: str) -> Latencies:
    """The measurements of a CSV."""
    found = Latencies()
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            size, ns, pieces = int(row["bytes"]), float(row["nanoseconds"]), int(row["pieces"])
            found.add(row["place"], [Measurement(row["method"], size, ns, pieces)])
    return found


def panel(axes, latencies: Latencies, places: tuple[str, ...], title: str) -> None:
    """Groups of bars, one group a size."""
    series = [(p, m) for p in places for m in latencies.methods(p)]
    width = 0.84 / max(len(series), 1)
    for i, (place, method) in enumerate(series):
        where = [n + (i - (len(series) - 1) / 2) * width for n in range(len(SIZES))]
        times = [latencies.ns(place, method, size) or 0 for size in SIZES]
        name = label(place, method)
        if len(places) > 1:
            name = f"{'kernel' if place == KERNEL else 'Vshmem'}: {name}"
        bars = axes.bar(where, times, width * 0.94, color=COLOURS[place, method], label=name)
        texts = [time_text(t) if t else "" for t in times]
        axes.bar_label(bars, texts, rotation=90, fontsize=8, padding=3)
    axes.set_yscale("log")
    axes.set_xticks(range(len(SIZES)), [size_text(s) for s in SIZES])
    axes.set_title(title, fontsize=11)
    axes.grid(axis="y", which="major", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2)


def draw(latencies: Latencies, path: str) -> None:
    """Two panels that share the axis of time."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5.6), sharey=True)
    panel(left, latencies, (MACHINES,), "Between two virtual machines")
    panel(right, latencies, (VSHMEM, KERNEL), "Inside one kernel")
    left.set_ylabel("there and back (median, logarithmic)")
    drawn = [m.ns for m in latencies.of.values() if m.method in LABELS]
    left.set_ylim(min(drawn) / 3, max(drawn) * 8)  # room for the numbers above the bars
    left.yaxis.set_major_formatter(lambda ns, _: time_text(ns))
    figure.suptitle(
        "One message there and back: unmodified System V programs on Vshmem", fontsize=12
    )
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(read(sys.argv[1]), sys.argv[2])
