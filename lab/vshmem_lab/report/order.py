"""Whether the papers' order of models holds: a heading that is counted from the lines below it.

Paper 004 has System V and Vshmem alike and first, then OpenMP, then MPI; in Laplace OpenMP is
first; molecular dynamics has no MPI. The gaps close as problems grow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.suites.dwarfs import APART, SUITE
from vshmem_lab.text import times

MODELS = ("Vshmem", "System V", "OpenMP", "MPI")
# By dwarf, from the fastest; System V goes with Vshmem.
USUAL = ("Vshmem", "OpenMP", "MPI")
ORDERS = {"Laplace": ("OpenMP", "Vshmem", "MPI"), "molecular dynamics": ("Vshmem", "OpenMP")}


@dataclass
class Found:
    """What a dwarf's sizes have of the papers' order; a claim's sizes as they are shown."""

    title: str
    sizes: int = 0
    held: int = 0  # sizes in which each claim was found
    against: dict[str, list[str]] = field(default_factory=dict)  # what was found instead
    untold: dict[str, int] = field(default_factory=dict)  # claims that noise hides
    gaps: str = ""
    close: bool = True  # the gap is narrower in the largest problem

    @property
    def sentence(self) -> str:
        """For a report."""
        said = [f"as the papers found it in {self.held} of {self.sizes} sizes"]
        said += [f"{claim} with {'; '.join(where)}" for claim, where in self.against.items()]
        said += [f"within noise in {n}: {claim}" for claim, n in self.untold.items()]
        return f"{self.title}: {', '.join([*said, self.gaps])}"


def found(run: Run) -> list[Found]:
    """Each dwarf of which all models have enough repetitions."""
    # What set-up takes by itself is no order of models.
    tables = (one for one in run.tables if one.suite == SUITE and not one.case.endswith(APART))
    judged = [_of(table) for table in tables]
    return [one for one in judged if one is not None]


def order(run: Run) -> list[str]:
    """A sentence for each of them."""
    return [one.sentence for one in found(run)]


def heading(run: Run) -> str:
    """How far the papers' order holds, and what contradicts it."""
    dwarfs = found(run)
    sizes, held = (sum(getattr(one, name) for one in dwarfs) for name in ("sizes", "held"))
    against: dict[str, int] = {}
    for one in dwarfs:
        for claim, where in one.against.items():
            against[claim] = against.get(claim, 0) + len(where)
    wider = sum(not one.close for one in dwarfs)
    said = [f"{claim} in {count}" for claim, count in against.items()]
    said += [f"gaps that do not close in {wider} of {len(dwarfs)} dwarfs"] if wider else []
    verdict = "holds in all" if held == sizes else f"holds in {held} of"
    contradicted = f"; against it: {', '.join(said)}" if said else ""
    return f"The papers' order of models {verdict} {sizes} problems{contradicted}"


def _of(table: Table) -> Found | None:
    sizes: dict[int, dict[str, Line]] = {}
    for line in table.lines:
        if line.contender in MODELS and line.summary:
            sizes.setdefault(line.size, {})[line.contender] = line
    whole = [lines for lines in sizes.values() if len(lines) == len(MODELS) and _known(lines)]
    if not whole:
        return None
    out = Found(table.title, len(whole))
    for lines in whole:
        held = True
        for ahead, behind in _claims(table.case):
            said = _compare(lines, ahead, behind)
            if said is None:
                claim = f"{ahead} before {behind}"
                out.untold[claim] = out.untold.get(claim, 0) + 1
            elif said:
                out.against.setdefault(said, []).append(lines["Vshmem"].sized)
            held &= said == ""
        out.held += held
    first, last = _gap(whole[0]), _gap(whole[-1])
    out.gaps = f"the slowest takes {times(first)} times the fastest with {whole[0]['MPI'].sized}"
    if len(whole) > 1:
        out.gaps += f", {times(last)} times with {whole[-1]['MPI'].sized}"
        out.close = last < first
    return out


def _claims(case: str) -> list[tuple[str, str]]:
    """Who is before whom; System V beside Vshmem."""
    ranks = next((order for name, order in ORDERS.items() if case.startswith(name)), USUAL)
    return [("System V", "Vshmem"), *zip(ranks, ranks[1:], strict=False)]


def _compare(lines: dict[str, Line], ahead: str, behind: str) -> str | None:
    """Nothing where it is as claimed, else what contradicts it; None where noise hides it."""
    one, other = lines[ahead], lines[behind]
    if (ahead, behind) == ("System V", "Vshmem"):  # alike
        return f"{ahead} and {behind} differ" if one.against.real else ""
    if "Vshmem" in (ahead, behind):
        against = (other if ahead == "Vshmem" else one).against
        if not against.real:
            return None
        before = (against.ratio > 1) == (ahead == "Vshmem")
    else:
        apart = one.summary.high < other.summary.low, other.summary.high < one.summary.low
        if not any(apart):
            return None
        before = apart[0]
    return "" if before else f"{behind} is faster than {ahead}"


def _known(lines: dict[str, Line]) -> bool:
    others = [line.against for line in lines.values() if not line.vshmem]
    return all(found is not None and found.known for found in others)


def _gap(lines: dict[str, Line]) -> float:
    medians = [line.summary.median for line in lines.values()]
    return max(medians) / min(medians)
