"""The words of these tables: a row is a table or figure, a value a line of a run."""

from __future__ import annotations

import enum
import shlex
from dataclasses import dataclass

ALIKE, FASTER = "alike", "faster"
EXPLAINS = "No measurement: it explains."


@dataclass(frozen=True)
class Value:
    """A line of the newest kept run that has it."""

    name: str
    suite: str
    case: str
    environment: str
    contender: str
    size: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """Its case."""
        return self.suite, self.case, self.environment


@dataclass(frozen=True)
class Claim:
    """What the paper found of two values: that they are alike, or that the one is faster."""

    kind: str
    one: Value
    other: Value


@dataclass(frozen=True)
class Rerun:
    """The command that measures a row: a suite, and perhaps cases and environments of it."""

    suite: str
    case: str = ""
    environment: str = ""
    repetitions: int = 0  # the paper's, where they are known

    @property
    def command(self) -> str:
        """As it is typed."""
        words = ["vshmem lab run", self.suite]
        for option in ("case", "environment"):
            if value := getattr(self, option):
                words += [f"--{option}", shlex.quote(value)]
        words += [f"--repetitions {self.repetitions}"] if self.repetitions else []
        return " ".join(words)


class Need(enum.Enum):
    """What a host may have, and a row may want of it."""

    KVM = "KVM"
    CORES = "eight cores"
    NODES = "two memory nodes"
    HOSTS = "a second host"
    COUNTERS = "counters of misses"
    SWAP = "swap"
    XEN = "Xen"
    GPU = "a GPU"
    INFINIBAND = "InfiniBand"


@dataclass(frozen=True)
class Row:
    """A table or figure of a paper."""

    item: str  # as "figure 7"
    subject: str
    found: str  # the paper's figures, or what it found
    rerun: Rerun | None = None
    values: tuple[Value, ...] = ()
    claims: tuple[Claim, ...] = ()
    missing: str = ""  # why there is no run
    why: str = ""  # why today's differs, in what is measured or in what comes out
    needs: tuple[Need, ...] = ()  # without which there is nothing to measure
    wants: tuple[Need, ...] = ()  # without which something else than the paper's is measured

    @property
    def explains(self) -> bool:
        """Whether it is no measurement."""
        return self.missing == EXPLAINS


@dataclass(frozen=True)
class Paper:
    """All rows of a paper, and the items that it has."""

    number: str
    items: tuple[str, ...]
    rows: tuple[Row, ...]


def alike(one: Value, other: Value) -> Claim:
    """Both take as long."""
    return Claim(ALIKE, one, other)


def faster(one: Value, other: Value) -> Claim:
    """The one takes less time, or has the higher rate."""
    return Claim(FASTER, one, other)


def drawing(item: str, subject: str) -> Row:
    """A row of what is no measurement."""
    return Row(item, subject, "", missing=EXPLAINS)


def lacking(item: str, subject: str, found: str, missing: str, *needs: Need) -> Row:
    """A row that can't be measured here."""
    return Row(item, subject, found, missing=missing, needs=needs)


def numbered(word: str, count: int) -> tuple[str, ...]:
    """table 1, table 2, ..."""
    return tuple(f"{word} {i}" for i in range(1, count + 1))
