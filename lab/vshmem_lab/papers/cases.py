"""The cases that measure the papers' rows again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from vshmem_lab.model import Case
from vshmem_lab.papers.model import Paper, Rerun, Row
from vshmem_lab.papers.table import ALL
from vshmem_lab.suites.table import SUITES

# In the place of suites, for all rows of all papers.
PAPERS = "papers"


def rows(papers: Iterable[Paper] = ALL) -> list[tuple[Paper, Row]]:
    """The rows that are measurements."""
    return [(paper, row) for paper in papers for row in paper.rows if not row.explains]


def of(rerun: Rerun) -> list[Case]:
    """What the command of a row measures, as often as the paper did."""
    fits = (
        case
        for case in SUITES[rerun.suite]
        if rerun.case.lower() in case.name.lower()
        and rerun.environment.lower() in case.environment.lower()
    )
    return [_as_often(case, rerun.repetitions) for case in fits]


def _as_often(case: Case, repetitions: int) -> Case:
    # A repetition of each comes first, whatever a suite by itself does: there may be an hour.
    return dataclasses.replace(case, runs=max(case.runs, repetitions), least=1)


def together(reruns: Sequence[Rerun]) -> list[Case]:
    """The cases of several rows, each once, in the order of their suites."""
    found: dict[tuple[str, str, str], Case] = {}
    for case in (case for rerun in reruns for case in of(rerun)):
        key = (case.suite, case.name, case.environment)
        found[key] = _as_often(case, found[key].runs) if key in found else case
    ordered = (
        (case.suite, case.name, case.environment) for suite in SUITES.values() for case in suite
    )
    return [found[key] for key in ordered if key in found]


def cases(papers: Iterable[Paper] = ALL) -> list[Case]:
    """All that measure any row."""
    return together([row.rerun for _, row in rows(papers) if row.rerun])
