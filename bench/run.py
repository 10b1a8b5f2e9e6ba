#!/usr/bin/env python3
"""Runs the benchmarks against the kernel and prints a table; see bench/README.md.

Every round measures all sides of a case one after the other, so that a change of the machine's
mood meets all of them. They are compared round by round; the median of that counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path

import between
import results
import sides
import system
from cases import CASES, Case
from results import Result


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="cases whose name or command contains this word")
    parser.add_argument("--quick", action="store_true", help="one short round; saves nothing")
    parser.add_argument("--rounds", type=int, help="rounds of each case (default 5)")
    parser.add_argument("--machines", action="store_true", help="between two machines only")
    parser.add_argument("--no-machines", action="store_true", help="without the two machines")
    parser.add_argument("--kernel-only", action="store_true", help="without Vshmem")
    parser.add_argument(
        "--before",
        metavar="FOLDER",
        type=Path,
        help="also measure the build in FOLDER, in the same turns; on one kernel",
    )
    parser.add_argument("--strict", action="store_true", help="fail if a limit is missed")
    parser.add_argument("--save", metavar="NAME", help="save as bench/results/NAME")
    return parser.parse_args()


def selected(words: list[str]) -> list[Case]:
    """The cases that any of the words fits; all without words."""
    mine = [case for case in CASES if os.geteuid() == 0 or not case.as_root]
    cases = [
        case
        for case in mine
        if not words or any(word in f"{case.command} {case.rival} {case.rows}" for word in words)
    ]
    if not cases:
        raise sides.Failed(
            f"No benchmark fits {' '.join(words)}; they are listed in bench/cases.py."
        )
    return cases


# The environments of the builds that are measured, by side: "before", if an earlier one is, and
# "vshmem".
Builds = dict[str, dict[str, str]]


def plan(case: Case, builds: Builds) -> list[tuple[str, str, dict | None]]:
    """(side, command, environment) of each side that can be measured."""
    steps = []
    interposed = builds.get("vshmem")
    if case.floor and not (case.floor_interposed and interposed is None):
        steps.append(("floor", case.floor, interposed if case.floor_interposed else None))
    if case.kernel:
        steps.append(("kernel", case.rival or case.command, None))
    steps.extend((side, case.command, environment) for side, environment in builds.items())
    return steps


# Between two measurements of the floor, before and after the others: more, and the processors of a
# virtual machine were moved meanwhile.
STEADY = 1.25
TRIES = 4


def run_round(case: Case, seconds: float, builds: Builds) -> tuple[list[dict], bool]:
    """The sides' numbers for each row, and whether the processors stayed where they were."""
    found: list[dict[str, float]] = [{} for _ in case.rows]
    steps = plan(case, builds)
    for side, command, environment in steps:
        values = sides.measure(command, seconds, environment, case.as_root)
        for row, value in zip(found, values, strict=True):
            row[side] = value
    if not case.across:
        return found, True
    (after,) = sides.measure(case.floor, seconds, as_root=case.as_root)
    before = found[0]["floor"]
    found[0]["floor"] = (before + after) / 2
    return found, max(before, after) <= STEADY * min(before, after)


def run_case(case: Case, rounds: int, seconds: float, builds: Builds) -> list[Result]:
    """All rounds of a case. Unsteady rounds are repeated; if all are unsteady, they count."""
    rows = [Result(row.name, case.unit, row.wanted) for row in case.rows]
    rounds = 1 if case.once else rounds
    kept, moved = [], []
    try:
        while len(kept) < rounds and len(kept) + len(moved) < TRIES * rounds:
            found, steady = run_round(case, seconds, builds)
            (kept if steady else moved).append(found)
    except sides.Failed as failure:
        for row in rows:
            row.error = str(failure)
    for found in (kept + moved)[:rounds]:
        for row, values in zip(rows, found, strict=True):
            for side, value in values.items():
                row.add(side, value)
    return rows


def versions(options: argparse.Namespace) -> dict[str, sides.Build]:
    """The builds that are measured, by side."""
    if options.kernel_only:
        return {}
    earlier = {"before": sides.earlier(options.before)} if options.before else {}
    return {**earlier, "vshmem": sides.current()}


def on_one_kernel(options: argparse.Namespace, rounds: int, seconds: float) -> list[Result]:
    """The cases of cases.py."""
    rows: list[Result] = []
    with contextlib.ExitStack() as stack:
        builds = {}
        for side, build in versions(options).items():
            pool = stack.enter_context(sides.Pool(f"bench-{os.getpid()}-{side}", build))
            pool.check_interposed()
            builds[side] = pool.environment()
        cases = selected(options.only)
        for done, case in enumerate(cases, 1):
            print(f"[{done}/{len(cases)}] {case.command}", file=sys.stderr, flush=True)
            rows.extend(run_case(case, rounds, seconds, builds))
    return rows


def run_all(options: argparse.Namespace) -> list[Result]:
    """Everything that was asked for."""
    rounds = options.rounds or (1 if options.quick else 5)
    seconds = 0.05 if options.quick else 0.2
    rows = [] if options.machines else on_one_kernel(options, rounds, seconds)
    few = options.quick or options.only or options.kernel_only
    without = options.no_machines or options.before or few
    if options.machines or not without:
        print("[machines] booting two", file=sys.stderr, flush=True)
        rows.extend(between.measure(rounds, seconds))
    return rows


def save(name: str, text: str, rows: list[Result]) -> None:
    """Keeps a result as text and CSV under bench/results."""
    folder = sides.ROOT / "bench" / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.txt").write_text(text + "\n")
    (folder / f"{name}.csv").write_text(results.as_csv(rows))
    print(f"\nsaved as bench/results/{name}.txt and .csv")


def main() -> int:
    """Runs, prints and saves."""
    options = arguments()
    began = time.monotonic()
    try:
        sides.build_programs()
        rows = run_all(options)
    except sides.Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    verdicts = [row.verdict() for row in rows]
    summary = f"{verdicts.count('pass')} within their limits, {verdicts.count('FAIL')} not"
    text = f"{system.heading()}\n\n{results.table(rows)}\n\n{summary}"
    print(text)
    print(f"({time.monotonic() - began:.0f} s)")
    if options.save or not (options.quick or options.only or options.kernel_only):
        save(options.save or system.stamp(), text, rows)
    broken = any(row.error for row in rows)
    return 1 if broken or (options.strict and "FAIL" in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
