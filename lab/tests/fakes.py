"""Runners that measure nothing: their values depend on what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vshmem_lab import analysis
from vshmem_lab.model import Case, Contender, Failed, Missing, Reading, Turn, Wanted
from vshmem_lab.store import Store

OURS = Contender("Vshmem", "ours", ("o",), vshmem=True)
THEIRS = Contender("kernel", "theirs", ("t",))
FLOOR = Contender("bare", "floor", ("f",), floor=True)
BASE = {"Vshmem": 100.0, "kernel": 1000.0, "bare": 50.0}


def case(*contenders: Contender, name: str = "ping", **rest) -> Case:
    """A case of these contenders."""
    return Case("toys", name, "native", contenders or (OURS, THEIRS), **rest)


class Fake:
    """Gives a contender's base value and a little more at each call, the same in each run."""

    def __init__(self, most: int = 1, alter: Callable[[Turn, int], float] | None = None) -> None:
        self.most = most
        self.calls: list[list[Turn]] = []
        self._alter = alter or (lambda turn, _: BASE.get(turn.contender.name, 7.0) + turn.size)

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The values."""
        self.calls.append(list(turns))
        return [Reading(self._alter(turn, len(self.calls)), placement="here") for turn in turns]


class Silent:
    """No progress."""

    def __init__(self) -> None:
        self.done = 0

    def begin(self, case: Case) -> None:
        """Nothing."""

    def step(self, case: Case, done: int) -> None:
        """Counts."""
        self.done += done


def about(cases: Sequence[Case], repetitions: int = 2) -> dict:
    """Metadata as a run has it."""
    machine = {"processor": "a toy", "versions": {"Vshmem": "0"}}
    machine |= {"commit": "0123456789", "load before": 0.1}
    return {
        "cases": analysis.describe(cases),
        "machine": machine,
        "repetitions": repetitions,
        "seconds": 0.1,
        "complete": True,
        "beside": {"share": 0.01, "seconds": 9.0, "names": ["sshd"]},
    }


def finder(**runners) -> Callable[[str], object]:
    """Finds these runners; an exception in the place of one is raised."""

    def find(name: str) -> object:
        if isinstance(runners[name], Exception):
            raise runners[name]
        return runners[name]

    return find


def all_fake(**rest) -> Callable[[str], object]:
    """All three."""
    return finder(**{"ours": Fake(), "theirs": Fake(), "floor": Fake(), **rest})


__all__ = ["FLOOR", "OURS", "THEIRS", "Fake", "Failed", "Missing", "Silent", "Store", "Wanted"]
