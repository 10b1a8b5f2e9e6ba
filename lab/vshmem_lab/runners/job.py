"""A program in a place. A run of it may measure what several turns, and later cases, ask for."""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from vshmem_lab.model import Failed, Missing, Reading, Turn

# By what is measured, and its size; nanoseconds, or the case's unit.
Figures = dict[tuple[str, int], float]


class Program(Protocol):
    """What a job runs."""

    limit: float  # seconds after which a job of it has hung
    absent: Mapping[str, str]  # what can't be measured everywhere, and why

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """Its command line for these turns."""

    def figures(self, said: str) -> Figures:
        """What it has measured."""


class Place(Protocol):
    """Where a program runs."""

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""

    def seated(self, reading: Reading) -> Reading:
        """The reading with where its processes sat."""


class Job:
    """A program in a place. A job may measure more than is asked for: later turns get that."""

    most = 64

    def __init__(self, place: Place, program: Program) -> None:
        self._place, self._program = place, program
        self._kept: dict[tuple[str, int], deque[float]] = defaultdict(deque)
        self._note = ""  # on the last job

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The turns of one contender, by a job unless an earlier one has measured them as well."""
        keys = [(turn.contender.words[0], turn.size) for turn in turns]
        if not all(self._kept[key] for key in keys):
            said = self._place.said(self._program, self._program.argv(turns, seconds))
            note = getattr(self._program, "note", None)
            self._note = note(said) if note else ""
            for key, value in self._program.figures(said).items():
                self._kept[key].append(value)
        missing = [key for key in keys if not self._kept[key]]
        if missing:
            what, size = missing[0]
            if what in self._program.absent:
                raise Missing(self._program.absent[what])
            raise Failed(f"The program did not measure {what} of size {size}.")
        return [self._noted(self._kept[key].popleft()) for key in keys]

    def _noted(self, value: float) -> Reading:
        """The reading with where its processes sat, and what the program said of itself."""
        found = self._place.seated(Reading(value))
        parts = [part for part in (found.placement, self._note) if part]
        return dataclasses.replace(found, placement=", ".join(parts))
