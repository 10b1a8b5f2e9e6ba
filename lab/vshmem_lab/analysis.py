"""From a run's samples to lines of a table: medians, intervals, and whether a difference is one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from vshmem_lab import stats, store
from vshmem_lab.model import RATES, Case
from vshmem_lab.text import size_text, times

KEY = ["suite", "case", "environment"]
PERCENTILES = ("p50", "p99", "p999")


@dataclass
class Line:
    """A contender with one size: what was measured, and how Vshmem compares with it."""

    contender: str
    size: int
    vshmem: bool
    floor: bool
    lacks: str
    paper: str
    counts: str = ""  # what size counts, if not bytes
    base: bool = False
    bar: bool = False
    summary: stats.Summary | None = None
    tail: dict[str, float | None] = field(default_factory=dict)  # of single operations
    choices: dict[float, int] = field(default_factory=dict)  # how often each value was chosen
    profile: dict[str, float] = field(default_factory=dict)  # medians of what was counted
    placement: str = ""
    accelerator: str = ""
    error: str = ""
    against: stats.Difference | None = None  # this one's values by those of `reference`
    spread: stats.Spread | None = None  # its variance by that of `reference`
    reference: str = ""  # of Vshmem
    limits: list[tuple[str, bool]] = field(
        default_factory=list
    )  # what is wanted, and whether it is so

    @property
    def sized(self) -> str:
        """Its size in words; nothing where there is none."""
        none = self.floor or not (self.size or self.counts)
        return "" if none else size_text(self.size, self.counts)


@dataclass
class Table:
    """A case of a run."""

    suite: str
    case: str
    environment: str
    unit: str
    way: str
    lines: list[Line]
    repetitions: int
    unsteady: int  # repetitions that are left out, since the processors were moved in them
    moved: int  # repetitions that count though they were, since there are too few others
    noise: float | None  # the usual share by which a sample is off its median
    extremes: bool = False  # the mean, the lowest and the highest are shown
    spread: bool = False  # the mean, the standard deviation and the variance are

    @property
    def title(self) -> str:
        """The case, where it was played, and what a value means."""
        way = f", {self.way}" if self.way else ""
        return f"{self.case} ({self.environment}{way})"

    @property
    def emulated(self) -> bool:
        """Whether machines in it were emulated, so that times say little of real ones."""
        return any(line.accelerator == "tcg" for line in self.lines)

    @property
    def partly_emulated(self) -> bool:
        """Whether some lines were emulated, and others not."""
        return self.emulated and any(x.summary and x.accelerator != "tcg" for x in self.lines)

    @property
    def more_is_better(self) -> bool:
        """Of this unit."""
        return self.unit in RATES

    def verdict(self, line: Line, *, named: bool = True) -> str:
        """What a line's comparison with Vshmem says, in words; in parentheses if too few samples
        were compared to tell it from noise. Not `named`: without what it was compared with.
        """
        found = line.against
        if line.vshmem or found is None:
            return ""
        if found.known and not found.real:
            return "no difference"
        words = f"{times(found.ratio)} x" + (f" {line.reference}" if named else "")
        return words if found.known else f"({words})"

    def beats(self, line: Line) -> bool:
        """Whether it is better than Vshmem, by more than noise; the floor is meant to be.

        Of what is counted, or has a size, less is no merit.
        """
        if self.unit in ("", "B") or not any(one.vshmem for one in self.lines):
            return False
        if line.vshmem or line.floor or line.against is None or not line.against.real:
            return False
        return (line.against.ratio > 1) == self.more_is_better


@dataclass
class Run:
    """A run of the lab."""

    name: str
    about: dict
    tables: list[Table]

    @property
    def emulated(self) -> bool:
        """Whether any machine was."""
        return any(table.emulated for table in self.tables)

    def noise(self) -> float | None:
        """The usual share by which a sample is off its median."""
        found = [table.noise for table in self.tables if table.noise is not None]
        return round(float(np.median(found)), 4) if found else None

    def limits(self) -> tuple[int, int]:
        """How many limits are kept, and how many not."""
        kept = [ok for table in self.tables for line in table.lines for _, ok in line.limits]
        return sum(kept), len(kept) - sum(kept)


def describe(cases: Sequence[Case]) -> list[dict]:
    """What a run's metadata keeps of its cases, so that it can be read without this code's."""
    return [
        {
            "suite": case.suite,
            "case": case.name,
            "environment": case.environment,
            "unit": case.unit,
            "way": case.way,
            "sizes": list(case.sizes),
            "counts": case.counts,
            "extremes": case.extremes,
            "spread": case.spread,
            "choices": case.choices,
            "runs": case.runs,
            "wanted": [vars(wanted) for wanted in case.wanted],
            "contenders": [
                {
                    "name": one.name,
                    "vshmem": one.vshmem,
                    "floor": one.floor,
                    "base": one.base,
                    "bar": one.bar,
                    "lacks": one.lacks,
                    "sizes": list(case.sizes_of(one)),
                    "paper": case.papers.get(one.name, ""),
                    "papers": {
                        str(size): case.papers[one.name, size]
                        for size in case.sizes
                        if (one.name, size) in case.papers
                    },
                }
                for one in case.contenders
            ],
        }
        for case in cases
    ]


def load(folder: Path, only: Collection[tuple[str, str, str]] | None = None) -> Run:
    """A run's tables, in the order in which it was measured, or those of some cases only."""
    about = store.read_about(folder)
    rows = store.read_rows(folder)
    frame = pd.DataFrame(rows, columns=store.FIELDS)
    for column in ("value", *PERCENTILES, "size", "repetition", "turn"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce")
    frame["steady"] = frame["steady"] == "True"
    found = dict(list(frame.groupby(KEY, sort=False)))
    usual = about["repetitions"]
    keys = [(case, tuple(case[k] for k in KEY)) for case in about["cases"]]
    tables = [
        _table(case, found.get(key), min(case.get("runs") or usual, stats.FEWEST))
        for case, key in keys
        if only is None or key in only
    ]
    return Run(folder.name, about, [table for table in tables if table])


def _table(case: dict, samples: pd.DataFrame | None, enough: int) -> Table | None:
    if samples is None:
        return None
    steady = samples[samples["steady"]]
    tried, kept = (found["repetition"].nunique() for found in (samples, steady))
    used = steady if kept >= min(enough, tried) else samples
    lines = [
        _line(contender, size, used, case.get("counts", ""))
        for contender in case["contenders"]
        for size in _sizes(case, contender)
    ]
    if case.get("choices"):
        for line in lines:
            values = _of(used, line.contender, line.size)["value"].dropna()
            line.choices = dict(values.value_counts().sort_index())
    else:
        _compare(lines, used, spread=case.get("spread", False))
    for wanted in case["wanted"]:
        _judge(lines, used, wanted, case["unit"])
    names = {name: case[name] for name in (*KEY, "unit", "way")}
    counted = used["repetition"].nunique()
    left_out, moved = tried - counted, counted - kept
    return Table(
        **names,
        lines=lines,
        repetitions=counted,
        unsteady=left_out,
        moved=moved,
        noise=_noise(used),
        extremes=case.get("extremes", False),
        spread=case.get("spread", False),
    )


def _sizes(case: dict, contender: dict) -> list[int]:
    """A contender's sizes; older runs have those of the case only."""
    of_all = case["sizes"][:1] if contender["floor"] else case["sizes"]
    return contender.get("sizes", of_all)


def _of(samples: pd.DataFrame, contender: str, size: int) -> pd.DataFrame:
    return samples[(samples["contender"] == contender) & (samples["size"] == size)]


def _line(contender: dict, size: int, samples: pd.DataFrame, counts: str) -> Line:
    mine = _of(samples, contender["name"], size)
    about = {key: contender[key] for key in ("vshmem", "floor", "lacks")}
    about["paper"] = contender.get("papers", {}).get(str(size), contender["paper"])
    base, bar = (contender.get(key, False) for key in ("base", "bar"))
    line = Line(contender["name"], size, **about, counts=counts, base=base, bar=bar)
    good = mine.dropna(subset=["value"])
    errors = [error for error in mine["error"] if error]
    if len(good) == 0:
        line.error = errors[-1] if errors else "It was not measured."
        return line
    line.error = f"{len(errors)} of {len(mine)} turns failed: {errors[-1]}" if errors else ""
    line.summary = stats.summarize(good["value"].to_numpy())
    line.tail = _tail(good)
    line.profile = _profile(good["profile"])
    line.placement = good["placement"].iloc[-1] or ""
    line.accelerator = good["accelerator"].iloc[-1] or ""
    return line


def _tail(samples: pd.DataFrame) -> dict[str, float | None]:
    """Medians of the turns' percentiles. One that not every turn has is left out: all are of the
    same turns, so none is above the next.
    """
    told = samples[list(PERCENTILES)].dropna(how="all")
    whole = {p for p in PERCENTILES if len(told) and told[p].notna().all()}
    return {p: float(told[p].median()) if p in whole else None for p in PERCENTILES}


def _profile(told: pd.Series) -> dict[str, float]:
    """Medians of a profile's NAME=VALUE words; nothing of runs that have none."""
    words = [word.partition("=") for said in told.dropna() for word in said.split()]
    frame = pd.DataFrame([(name, float(value)) for name, _, value in words], columns=["n", "v"])
    return {name: float(values.median()) for name, values in frame.groupby("n")["v"]}


def by_repetition(samples: pd.DataFrame, contender: str, size: int) -> pd.Series:
    """A contender's value in each repetition; the floor, measured twice there, by its mean."""
    mine = _of(samples, contender, size).dropna(subset=["value"])
    return mine.groupby("repetition")["value"].mean()


def _pairs(samples: pd.DataFrame, one: Line, other: Line) -> tuple[np.ndarray, np.ndarray]:
    """What both had in the same repetitions."""
    both = pd.concat(
        [by_repetition(samples, line.contender, line.size) for line in (one, other)],
        axis=1,
        join="inner",
    )
    both = both[(both > 0).all(axis=1)]
    return both.iloc[:, 0].to_numpy(), both.iloc[:, 1].to_numpy()


def _compare(lines: Sequence[Line], samples: pd.DataFrame, *, spread: bool) -> None:
    """Each line with one of Vshmem, or with a base where there is none."""
    for line in lines:
        ours = _reference(lines, line) or _base(lines, line)
        if ours is None or line.bar or line is ours or line.summary is None or ours.summary is None:
            continue
        # What is emulated can be compared with nothing else.
        if "tcg" in (line.accelerator, ours.accelerator) and line.accelerator != ours.accelerator:
            continue
        pairs = _pairs(samples, ours, line)
        if len(pairs[0]):
            line.against = stats.compare_turns(*pairs)
            line.reference = ours.contender
            line.spread = stats.compare_spread(*pairs) if spread else None


def _reference(lines: Sequence[Line], line: Line) -> Line | None:
    """What of Vshmem has the same size and the same means, as "queues" after a comma; of several
    such words at least the last one.
    """
    ours = [one for one in lines if one.vshmem]
    same_size = [one for one in ours if one.size == line.size] or ours
    for words in (_means, _last_word):
        same = [one for one in same_size if words(line) and words(one) == words(line)]
        if same:
            return same[0]
    return next(iter(same_size), None)


def _means(line: Line) -> str:
    return line.contender.partition(", ")[2]


def _last_word(line: Line) -> str:
    return line.contender.rpartition(", ")[2] if ", " in line.contender else ""


def _base(lines: Sequence[Line], line: Line) -> Line | None:
    """The first base of its size; of a line that is emulated, the first that is emulated, too."""
    emulated = line.accelerator == "tcg"
    same = [one for one in lines if one.base and (one.accelerator == "tcg") == emulated]
    return next(iter([one for one in same if one.size == line.size] or same), None)


def _judge(lines: Sequence[Line], samples: pd.DataFrame, wanted: dict, unit: str) -> None:
    """Whether Vshmem keeps a limit: the median of the pairs' ratios counts."""
    for ours in (line for line in lines if line.vshmem and line.summary):
        if wanted.get("size") not in (None, 0, ours.size):
            continue
        if not ours.contender.endswith(wanted.get("ours", "")):
            continue
        if not wanted["of"]:
            limit = wanted["absolute"]
            ours.limits.append((f"<= {limit:g} {unit}", ours.summary.median <= limit))
            continue
        others = [one for one in lines if one.contender == wanted["of"] and one.summary]
        same = [one for one in others if one.size == ours.size or one.floor]
        if not same:
            continue
        theirs, mine = _pairs(samples, same[0], ours)
        if len(mine):
            ratio = float(np.median(mine / theirs))
            ours.limits.append(_limit(ratio, wanted["factor"], wanted["of"], unit in RATES))


def _limit(ratio: float, factor: float, of: str, rate: bool) -> tuple[str, bool]:
    """A limit in words with what was measured, and whether it is kept."""
    if rate:
        return f">= {factor:g} x {of} ({times(ratio)})", ratio >= factor
    if factor < 1:
        return f"{1 / factor:g} x faster than {of} ({times(1 / ratio)})", ratio <= factor
    return f"<= {factor:g} x {of} ({times(ratio)})", ratio <= factor


def _noise(samples: pd.DataFrame) -> float | None:
    """The usual share by which a sample is off its contender's median."""
    groups = samples.dropna(subset=["value"]).groupby(["contender", "size"])["value"]
    shares = [stats.noise(values.to_numpy()) for _, values in groups if len(values) > 2]
    return float(np.median(shares)) if shares else None
