"""`vshmem lab run papers --plan`: which rows this host can measure, how long each takes, and why
the others can't be.

A repetition takes what it took in the newest kept run that has the case by the same sizes; where
none has, so much for each turn of the suite. Both are mostly of emulated machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from vshmem_lab import store
from vshmem_lab.driver import wanted
from vshmem_lab.model import Case
from vshmem_lab.papers import cases as of_papers
from vshmem_lab.papers.host import Host
from vshmem_lab.papers.model import Need, Paper, Row
from vshmem_lab.papers.page import Kept
from vshmem_lab.papers.table import ALL
from vshmem_lab.report.model import Grid

# Seconds of a turn where no kept run has a case: an estimate, of emulated machines for the most.
A_TURN = {
    "sync": 2.0,
    "dwarfs": 0.5,
    "algebra": 3.0,
    "hypervisors": 20.0,
    "mpi": 10.0,
    "vsuite": 30.0,
    "bigdata": 3600.0,
}
USUAL_TURN = 1.0
# Suites whose programs measure several cases at once.
OF_JOBS = ("algebra", "mpi", "hypervisors")
NO_PROGRAM = "The lab has no program for it."


@dataclass(frozen=True)
class Item:
    """A row, and what this host can do of it."""

    paper: Paper
    row: Row
    why: str = ""  # why it can't be measured here
    without: tuple[Need, ...] = ()  # what it is measured without, unlike in the paper
    once: float = 0.0  # seconds of one repetition of all its cases
    whole: float = 0.0  # of all that they are to have

    @property
    def name(self) -> str:
        """The paper and its table or figure."""
        return f"{self.paper.number} {self.row.item}"


class Times:
    """What repetitions take."""

    def __init__(self, kept: Kept, repetitions: int) -> None:
        self._kept, self._repetitions = kept, repetitions
        self._known: dict[str, dict[tuple[str, str, str], list[float]]] = {}

    def once(self, cases: Sequence[Case]) -> float:
        """The seconds of a repetition of each."""
        seen: set[tuple[str, int]] = set()
        return sum(self.of_one(case, seen) for case in cases)

    def whole(self, cases: Sequence[Case]) -> float:
        """The seconds of as many repetitions as each is to have."""
        seen: set[tuple[str, int]] = set()
        return sum(self.of_one(case, seen) * wanted(case, self._repetitions) for case in cases)

    def of_one(self, case: Case, seen: set[tuple[str, int]] | None = None) -> float:
        """The seconds of a repetition, as kept runs have it or by the turns.

        Runners and sizes that were `seen` have measured what this case wants of their jobs.
        """
        key = (case.suite, case.name, case.environment)
        found = self._kept.newest(key)
        if found is not None and found[1]["sizes"] == list(case.sizes):
            folder, _ = found
            if folder.name not in self._known:
                self._known[folder.name] = store.durations(store.read_rows(folder))
            if took := self._known[folder.name].get(key):
                return median(took)
        jobs = [(one.runner, size) for one in case.contenders for size in case.sizes_of(one)]
        if case.suite in OF_JOBS and seen is not None:
            jobs = [job for job in jobs if job not in seen]
            seen.update(jobs)
        return len(jobs) * A_TURN.get(case.suite, USUAL_TURN)


def items(host: Host, times: Times, papers: Iterable[Paper] = ALL) -> list[Item]:
    """What this host can do of each row that is a measurement."""
    return [_item(paper, row, host, times) for paper, row in of_papers.rows(papers)]


def _item(paper: Paper, row: Row, host: Host, times: Times) -> Item:
    lacking = [why for need in row.needs if (why := host.lacks(need))]
    if lacking:
        return Item(paper, row, _sentence("; ".join(lacking)))
    if row.rerun is None:
        return Item(paper, row, NO_PROGRAM if row.needs else row.missing)
    found = of_papers.of(row.rerun)
    once, whole = times.once(found), times.whole(found)
    without = tuple(need for need in row.wants if host.lacks(need))
    return Item(paper, row, without=without, once=once, whole=whole)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def cases(found: Sequence[Item]) -> list[Case]:
    """What measures all the rows that can be measured."""
    return of_papers.together([x.row.rerun for x in found if x.row.rerun and not x.why])


def grids(found: Sequence[Item], host: Host, times: Times) -> list[Grid]:
    """The plan as tables: what can be measured, and what can't."""
    able, unable = ([x for x in found if bool(x.why) == no] for no in (False, True))
    rows = [[x.name, x.row.subject, _without(x), said(x.once), said(x.whole)] for x in able]
    head = ["row", "what", "as in the paper", "once", "in full"]
    can = Grid("Can be measured here", head, rows, wrap=50)
    can.notes = [*_reasons(able, host), *_sums(cases(found), times)]
    rows = [[x.name, x.row.subject, x.why] for x in unable]
    return [can, Grid("Can't be measured here", ["row", "what", "why not"], rows, wrap=60)]


def _without(item: Item) -> str:
    return f"without {', '.join(need.value for need in item.without)}" if item.without else "yes"


def _reasons(found: Sequence[Item], host: Host) -> list[str]:
    """Why the host has not what rows are measured without, each once."""
    needs = dict.fromkeys(need for one in found for need in one.without)
    return [f"Without {need.value}: {host.lacks(need)}." for need in needs]


def _sums(chosen: Sequence[Case], times: Times) -> list[str]:
    once, whole = times.once(chosen), times.whole(chosen)
    return [
        f"Together {said(once)} for each of {len(chosen)} cases once, and {said(whole)} in full, "
        "as often as the papers did. A case of several rows is measured once for all.",
        "Times are those of kept runs, mostly of emulated machines, or estimated by the turns.",
    ]


def said(seconds: float) -> str:
    """A time that is estimated."""
    for length, unit in ((3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.2g} {unit}"
    return f"{max(seconds, 1):.0f} s"
