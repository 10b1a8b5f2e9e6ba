#!/usr/bin/env python3
"""Shows what changed between two saved results: bench/compare.py OLD.csv NEW.csv

Absolute times of two runs differ with the machine's mood, so the change of Vshmem's time is shown
both as it is and relative to the kernel's (or the floor's) of the same run.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path


def load(path: Path) -> dict[str, dict[str, str]]:
    """Rows by name."""
    with path.open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def value(row: dict[str, str], side: str) -> float | None:
    """A side's median, if there is one."""
    text = row.get(f"{side}_median") or ""
    return float(text) if text else None


def relative(row: dict[str, str]) -> float | None:
    """Vshmem's time by the kernel's, or by the floor's where the kernel was not measured."""
    ours, theirs = value(row, "vshmem"), value(row, "kernel") or value(row, "floor")
    return ours / theirs if ours and theirs else None


def change(old: float | None, new: float | None) -> str:
    """A change in per cent; negative is faster."""
    return f"{new / old - 1:+.0%}" if old and new else "-"


def lines(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]) -> list[str]:
    """One line a benchmark that both have, then those that only one has."""
    head = f"{'':44}{'old':>12}{'new':>12}{'change':>9}{'relative':>10}  verdict"
    out = [head]
    for name in new:
        if name not in old:
            out.append(f"{name:44}  only in the new one")
            continue
        before, after = value(old[name], "vshmem"), value(new[name], "vshmem")
        verdicts = old[name]["verdict"], new[name]["verdict"]
        verdict = verdicts[1] if verdicts[0] == verdicts[1] else " -> ".join(verdicts)
        out.append(
            f"{name:44}{before or 0:>12,.0f}{after or 0:>12,.0f}{change(before, after):>9}"
            f"{change(relative(old[name]), relative(new[name])):>10}  {verdict}"
        )
    out.extend(f"{name:44}  only in the old one" for name in old if name not in new)
    return out


def main() -> int:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="an earlier .csv of bench/results")
    parser.add_argument("new", type=Path, help="a later one")
    options = parser.parse_args()
    for path in (options.old, options.new):
        if not path.exists():
            print(f"compare: {path} does not exist; see bench/results", file=sys.stderr)
            return 1
    print("\n".join(lines(load(options.old), load(options.new))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
