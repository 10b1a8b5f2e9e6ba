"""The words of the lab: a suite has cases, a case has contenders, which take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

THERE_AND_BACK = "there and back"
ONE_WAY = "one way"
# Units of which more is better.
RATES = ("MB/s", "Mflop/s", "Mupdates/s")


class Failed(Exception):
    """A step failed; the message says what happened and what to do."""


class Missing(Failed):
    """A contender can't be had here; the message says why."""


@dataclass(frozen=True)
class Wanted:
    """A limit: Vshmem takes at most `factor` times what the contender `of` takes, or `absolute`.

    Of a rate, it reaches at least `factor` times what the other does.
    """

    of: str = ""
    factor: float = 0.0
    absolute: float = 0.0
    size: int = 0  # of messages; 0: each that is measured
    ours: str = ""  # only Vshmem's contenders whose names end so


@dataclass(frozen=True)
class Contender:
    """What is measured, and by which runner with which words."""

    name: str
    runner: str
    words: tuple[str, ...]
    vshmem: bool = False  # of Vshmem, which the others are compared with
    floor: bool = False  # what the hardware gives
    base: bool = False  # what the others are compared with where nothing is of Vshmem
    bar: bool = False  # other software, which stands beside and is not compared
    line: int = 0  # of the program's output
    lacks: str = ""  # what it can't do that the others can
    least: int = 0  # the smallest of the case's sizes that it has


@dataclass(frozen=True)
class Case:
    """Contenders that do the same work in one environment."""

    suite: str
    name: str
    environment: str
    contenders: tuple[Contender, ...]
    sizes: tuple[int, ...] = (0,)
    _: KW_ONLY
    counts: str = ""  # what sizes count, if not bytes
    unit: str = "ns"
    way: str = ""
    wanted: tuple[Wanted, ...] = ()
    across: bool = False  # between two processors: the floor tells how far apart they are
    once: bool = False  # long and steady: one repetition is enough
    runs: int = 0  # repetitions, where a paper says how many; 0: as many as the others
    least: int = 1  # the fewest repetitions, however little time there is
    extremes: bool = (
        False  # the mean, the lowest and the highest are shown as well, as papers have it
    )
    spread: bool = False  # so are the mean, the standard deviation and the variance
    choices: bool = False  # values are choices: how often each was made is shown
    warm: bool = True  # a short turn of each comes first; else its programs see to that
    # The papers' figure, by contender, or by contender and size.
    papers: dict[str | tuple[str, int], str] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        """The case and where it is played."""
        return f"{self.name} ({self.environment})"

    def sizes_of(self, contender: Contender) -> tuple[int, ...]:
        """The sizes that a contender has; the floor has no payload, and so one only."""
        if contender.floor:
            return self.sizes[:1]
        return tuple(size for size in self.sizes if size >= contender.least)


@dataclass(frozen=True)
class Turn:
    """One contender's turn with one size."""

    case: Case
    contender: Contender
    size: int


@dataclass(frozen=True)
class Reading:
    """What a turn gave: a value, perhaps percentiles of single operations, or why there is none."""

    value: float | None
    p50: float | None = None
    p99: float | None = None
    p999: float | None = None
    placement: str = ""
    accelerator: str = ""  # of virtual machines: kvm, or tcg, which emulates
    error: str = ""
    profile: str = ""  # where processors were meanwhile: NAME=VALUE ...


class Runner(Protocol):
    """What can carry turns out."""

    most: int  # turns that it takes at once

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """Carries the turns out in this order. Raises Failed, or Missing if it never can."""
