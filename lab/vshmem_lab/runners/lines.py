"""What the lab's C programs print: a value and perhaps percentiles of single operations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vshmem_lab.model import Failed, Reading, Turn

# The methods of busypong; the others are those of pingpong, wakeup and netpong.
BUSY = ("raw", "bakery", "swap")

# METHOD SIZE NANOSECONDS PIECES [P50 P99 P99.9], with or without a machine's name before it; a
# dash where too few operations were timed.
_NUMBER = r"(?:[\d.e+]+|-)"
PONG = re.compile(
    r"\b(bare|semaphore|segment|queue|bell|woken|tcp|udp|raw|bakery|swap) (\d+) ([\d.]+) (\d+)"
    rf"(?: ({_NUMBER}) ({_NUMBER}) ({_NUMBER}))?$"
)


def payload(turn: Turn) -> int:
    """The bytes that a turn asks for: of its words, its size, or 8; busypong may have none."""
    method, *fixed = turn.contender.words
    if method in BUSY:
        return int(fixed[0]) if fixed else turn.size
    return turn.size or 8


def number(text: str | None) -> float | None:
    """A number, or nothing for a dash."""
    return None if text in (None, "-") else float(text)


def pongs(said: str) -> list[tuple[str, int, Reading]]:
    """Method, size and reading of each line that is one."""
    found = []
    for line in said.splitlines():
        match = PONG.search(line.strip())
        if match:
            method, size, ns, _pieces, *tail = match.groups()
            found.append((method, int(size), Reading(float(ns), *map(number, tail))))
    return found


def assigned(said: str, turns: Sequence[Turn], what: str) -> list[Reading]:
    """The readings of these turns, which pingpong or netpong measured in this order."""
    found = pongs(said)
    asked = [(turn.contender.words[0], payload(turn)) for turn in turns]
    if [(method, size) for method, size, _ in found] != asked:
        raise Failed(f"{what} did not print what was asked for: {said.strip()}")
    return [reading for _, _, reading in found]


def values(said: str) -> list[Reading]:
    """The readings of ipcbench: VALUE UNIT [P50 P99 P99.9] a line."""
    found = []
    for line in said.splitlines():
        value, _unit, *tail = line.split()
        found.append(Reading(float(value), *map(number, tail)))
    return found
