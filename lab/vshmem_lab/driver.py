"""Has contenders take turns, A B B A, and keeps what each gave.

Where two processors are at work, the floor is measured at both ends of a repetition. If it changed
by more than a quarter, the processors of this (virtual) machine were moved meanwhile, and the
repetition is repeated; it counts only if there are too few others.

Where time is limited, each case has its fewest repetitions, mostly one, and is then repeated in
rounds until time is up.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from vshmem_lab import rounds, stats
from vshmem_lab.model import Case, Failed, Missing, Reading, Runner, Turn
from vshmem_lab.store import Row, Store

STEADY = 1.25
TRIES = 3  # repetitions that may be unsteady for each that is wanted
WARM = 4  # a warm-up takes this part of a turn
PATIENCE = 2  # failures of a contender in one case, after which it is not tried again

Find = Callable[[str], Runner]


class Progress(Protocol):
    """What is told how far the driver has come."""

    def begin(self, case: Case) -> None:
        """A case begins."""

    def step(self, case: Case, done: int) -> None:
        """So many repetitions of it are done."""


class Driver:
    """Measures cases until each has its repetitions; what a store has already is not done again.

    `until`, by time.monotonic(), ends it earlier, but not before each case has its fewest.
    """

    def __init__(
        self,
        find: Find,
        store: Store,
        repetitions: int,
        seconds: float,
        progress: Progress,
        until: float | None = None,
    ) -> None:
        self._find, self._store, self._progress = find, store, progress
        self._repetitions, self._seconds, self._until = repetitions, seconds, until
        self._missing: dict[str, str] = {}  # by runner
        self._failures: dict[tuple[Case, str], list[str]] = {}
        self._warm: set[Case] = set()
        self._took: dict[Case, float] = {}  # seconds of a case's last repetition

    def run(self, cases: Sequence[Case]) -> None:
        """All cases: one after the other, or in rounds."""
        for case in cases:
            self._progress.step(case, self._store.repetitions(case)[0])
        if self._until is None:
            for case in cases:
                self._repeat(case)
        else:
            self._run_in_rounds(cases, self._until)
        for case in cases:
            self._progress.step(case, max(self.wanted(case) - self._store.repetitions(case)[0], 0))

    def wanted(self, case: Case) -> int:
        """How many steady repetitions a case is to have."""
        return wanted(case, self._repetitions)

    def _run_in_rounds(self, cases: Sequence[Case], until: float) -> None:
        for case in cases:
            fewest = min(case.least, self.wanted(case)) - self._store.repetitions(case)[1]
            if fewest > 0:
                self._repeat(case, fewest)
        while True:
            left = [case for case in cases if not self._is_done(case)]
            few = {case for case in left if self._store.repetitions(case)[1] < stats.FEWEST}
            took = {case: self._took.get(case, self._store.took(case)) for case in left}
            chosen = rounds.that_fit(left, took, few, until - time.monotonic())
            if not chosen:
                return
            for case in chosen:
                self._repeat(case, 1)

    def _is_done(self, case: Case) -> bool:
        steady, tried = self._store.repetitions(case)
        return steady >= self.wanted(case) or tried >= TRIES * self.wanted(case)

    def _repeat(self, case: Case, most: int | None = None) -> None:
        """So many repetitions of a case, or all that it lacks."""
        if self._is_done(case):
            return
        self._progress.begin(case)
        if case.warm and case not in self._warm:
            self._warm_up(case)
            self._warm.add(case)
        while not self._is_done(case) and most != 0:
            rows = self._repetition(case, self._store.repetitions(case)[1])
            self._store.append(rows)
            self._progress.step(case, int(rows[0].steady))
            most = most and most - 1

    def _warm_up(self, case: Case) -> None:
        """A short turn of each contender, which is not kept; a failure will show again."""
        turns = [
            Turn(case, one, sizes[0]) for one in case.contenders if (sizes := case.sizes_of(one))
        ]
        for group in self._groups(turns):
            self._measure(group, self._seconds / WARM)

    def _repetition(self, case: Case, number: int) -> list[Row]:
        turns = order(case, number)
        readings: list[Reading] = []
        groups = self._groups(turns)  # Machines are booted, if they were not yet.
        began = time.monotonic()
        for group in groups:
            readings += self._measure(group, self._seconds)
        self._took[case] = time.monotonic() - began
        steady = is_steady(case, turns, readings)
        now = time.time()
        pairs = enumerate(zip(turns, readings, strict=True))
        return [Row.of(*both, number, position, steady, now) for position, both in pairs]

    def _groups(self, turns: Sequence[Turn]) -> list[list[Turn]]:
        """Turns in a row that one runner can do at once."""
        groups = []
        for name, found in itertools.groupby(turns, lambda turn: turn.contender.runner):
            same = list(found)
            most = 1 if name in self._missing else self._most(name)
            groups += [same[at : at + most] for at in range(0, len(same), most)]
        return groups

    def _most(self, name: str) -> int:
        try:
            return self._find(name).most
        except Failed as failure:
            self._missing[name] = str(failure)
            return 1

    def _measure(self, group: Sequence[Turn], seconds: float) -> list[Reading]:
        """The readings of a group; if it fails, of each turn by itself."""
        try:
            readings = self._attempt(group, seconds)
        except Failed as failure:
            if len(group) > 1:
                return [self._measure([turn], seconds)[0] for turn in group]
            self._note(group[0], failure)
            return [Reading(None, error=str(failure))]
        return readings

    def _attempt(self, group: Sequence[Turn], seconds: float) -> list[Reading]:
        for turn in group:
            past = self._failures.get((turn.case, turn.contender.name), [])
            if len(past) >= PATIENCE:
                raise Failed(past[-1])
        name = group[0].contender.runner
        if name in self._missing:
            raise Missing(self._missing[name])
        return self._find(name).measure(group, seconds)

    def _note(self, turn: Turn, failure: Failed) -> None:
        past = self._failures.setdefault((turn.case, turn.contender.name), [])
        past += [str(failure)] * (PATIENCE if isinstance(failure, Missing) else 1)


def wanted(case: Case, repetitions: int) -> int:
    """How many repetitions a case is to have in a run of so many."""
    return 1 if case.once else case.runs or repetitions


def order(case: Case, repetition: int) -> list[Turn]:
    """The turns of a repetition: A B, then B A; at both ends the floor of two processors."""
    floor = next((c for c in case.contenders if c.floor and case.across), None)
    others = [
        Turn(case, contender, size)
        for contender in case.contenders
        if contender is not floor
        for size in case.sizes_of(contender)
    ]
    if repetition % 2:
        others.reverse()
    ends = [Turn(case, floor, case.sizes[0])] if floor else []
    return [*ends, *others, *ends]


def is_steady(case: Case, turns: Sequence[Turn], readings: Sequence[Reading]) -> bool:
    """Whether the floor stayed what it was, where it was measured twice."""
    if not (case.across and turns[0].contender.floor):
        return True
    before, after = readings[0].value, readings[-1].value
    if not before or not after:
        return True  # a floor that failed tells nothing
    return max(before, after) <= STEADY * min(before, after)
