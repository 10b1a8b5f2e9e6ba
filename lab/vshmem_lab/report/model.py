"""A table as a grid of text, which is then written in some form."""

from __future__ import annotations

from dataclasses import dataclass, field

EMULATED = (
    "Emulated: QEMU without KVM translated the machines' instructions. Compare rows with each "
    "other; the times are not those of real machines."
)
PARTLY = (
    "Emulated rows: QEMU without KVM translated the machine's instructions. They are not compared "
    "with the others, and are not those of real machines."
)


@dataclass
class Grid:
    """A head, rows, and what is to be said below them."""

    title: str
    head: list[str]
    rows: list[list[str]]
    beaten: set[int] = field(default_factory=set)  # rows that beat Vshmem
    missing: set[int] = field(default_factory=set)
    missed: set[int] = field(default_factory=set)  # rows that miss a limit
    met: set[int] = field(default_factory=set)  # and that keep all of theirs
    notes: list[str] = field(default_factory=list)
    emulated: bool = False
    wrap: int = 0  # so wide is a cell of plain text; 0: as wide as it is
