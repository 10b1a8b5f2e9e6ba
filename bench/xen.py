#!/usr/bin/env python3
"""The papers' micro-benchmarks between Xen domains, in a table beside the papers' own figures.

Boots Xen, a dom0 and two guests inside QEMU (tests/xen/run.sh). All of it is emulated, so the times
say how the ways of communication compare, and nothing about the speed of Xen.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys

import sides
import system

PLACES = ("native", "host-guest", "guest-guest")
# What pingpong and netpong call it, and the papers.
ROWS = (("bare", "Raw"), ("semaphore", "Sync"), ("segment", "Sync 1k"), ("tcp", "TCP"))
# The paper's table 6: microseconds on a Pentium D of 2.8 GHz under Xen 3.
PAPER = {
    "bare": ("0.49", "0.35-0.36", "0.36-0.39"),
    "semaphore": ("1.4", "0.78-0.8", "0.8"),
    "segment": ("3.4", "3.1-3.3", "2.9-3.3"),
    "tcp": ("52.6", "56.7-70.3", "80.9-104.0"),
}
LINE = re.compile(
    r"^measured (native|host-guest|guest-guest) (bare|semaphore|segment|tcp) \d+ (\d+)$"
)
NOTES = """\
All of it is emulated: Xen 4.17 and its domains run inside QEMU without KVM. So compare the rows
with each other, not with the papers' times, which are those of a Pentium D of 2.8 GHz under Xen 3
(Youseff et al., Paravirtualization and autotuned linear algebra, table 6).
Microseconds there and back: the median of the runs, and the least in parentheses; the papers have
means. native: two processes of dom0. Raw: two words of memory. Sync: two semaphores of System V.
Sync 1k: the same and 1000 bytes each way. TCP: 8 bytes; between domains by netfront, netback and a
bridge."""

Samples = dict[tuple[str, str], list[float]]


def parse(said: str) -> Samples:
    """Microseconds there and back of each run, by place and method."""
    found: Samples = {}
    for line in said.splitlines():
        match = LINE.match(line.strip())
        if match:
            place, method, ns = match.groups()
            found.setdefault((place, method), []).append(int(ns) / 1000)
    return found


def cell(samples: list[float] | None) -> str:
    """The median of the runs, and the least."""
    if not samples:
        return "-"
    median, least = (
        f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        for value in (statistics.median(samples), min(samples))
    )
    return f"{median} ({least})" if len(samples) > 1 else median


def table(found: Samples) -> str:
    """All rows as text."""
    lines = [("us", *(f"{place}{what}" for place in PLACES for what in ("", ", paper")))]
    for method, name in ROWS:
        cells = [name]
        for place, paper in zip(PLACES, PAPER[method], strict=True):
            cells += [cell(found.get((place, method))), paper]
        lines.append(tuple(cells))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    texts = []
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        texts.append("  ".join(cells).rstrip())
    texts.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(texts)


def complete(found: Samples) -> bool:
    """Was everything measured?"""
    return all((place, method) in found for place in PLACES for method, _ in ROWS)


def measure(runs: int, seconds: float) -> Samples:
    """Boots the machine and has it measure."""
    done = subprocess.run(
        [str(sides.ROOT / "tests" / "xen" / "run.sh"), "papers"],
        env={**os.environ, "XEN_RUNS": str(runs), "XEN_SECONDS": str(seconds)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    found = parse(done.stdout)
    if done.returncode != 0 or not complete(found):
        raise sides.Failed(f"The machine with Xen did not measure everything:\n{done.stdout}")
    return found


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument("--seconds", type=float, default=1, help="of each run (default 1)")
    parser.add_argument("--save", metavar="NAME", help="save as bench/results/NAME.txt")
    options = parser.parse_args()
    try:
        found = measure(options.runs, options.seconds)
    except sides.Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    head = f"{system.heading()}\nruns:      {options.runs} of {options.seconds:g} s"
    text = f"{head}\n\n{table(found)}\n\n{NOTES}"
    print(text)
    if options.save:
        (sides.ROOT / "bench" / "results" / f"{options.save}.txt").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
