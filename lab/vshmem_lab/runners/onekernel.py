"""Turns on one kernel: `ipcbench`, and two processes of `pingpong` or `netpong`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from vshmem_lab import paths, priority, topology
from vshmem_lab.builds import ORDINARY
from vshmem_lab.model import Failed, Reading, Turn
from vshmem_lab.process import finish, run, started
from vshmem_lab.runners import lines

# So many turns has a run of paper 004's Sync, and one of ours where a turn has the usual seconds.
PAPERS_TURNS = 100_000
USUAL_SECONDS = 0.2

# ipcbench's commands whose two processes sit on two processors; crowds have all.
PAIRS = ("handover", "stream")


class Ipcbench:
    """One measurement a run of the program."""

    most = 1

    def __init__(self, extra: dict[str, str], pair: tuple[int, int], as_root: bool = False) -> None:
        self._extra, self._pair, self._as_root = extra, pair, as_root

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The reading of the turn's line."""
        (turn,) = turns
        words = [word.format(size=turn.size) for word in turn.contender.words]
        user = ["-u", str(ORDINARY)] if os.geteuid() == 0 and not self._as_root else []
        argv = [str(paths.programs() / "ipcbench"), "-t", str(seconds), *user, *words]
        # With more processes than processors the usual scheduler is part of what is measured.
        prioritize = priority.heavy if words[0] == "crowd" else priority.real_time
        placement = ""
        if words[0] in PAIRS:
            argv = ["taskset", "-c", "{},{}".format(*self._pair), *argv]
            placement = topology.placement(self._pair)
        found = lines.values(run(prioritize(argv), self._extra))
        if turn.contender.line >= len(found):
            raise Failed(f"ipcbench {' '.join(words)} printed {len(found)} lines.")
        return [dataclasses.replace(found[turn.contender.line], placement=placement)]


# Puts a command line into name spaces of its own.
Enclose = Callable[[list[str]], list[str]]


class Pair:
    """Two processes of pingpong on two processors."""

    most = 64

    def __init__(
        self,
        extra: dict[str, str],
        pair: tuple[int, int],
        enclose: Enclose = list,
        interval: int = 0,  # nanoseconds from round to round of an open loop
    ) -> None:
        self._extra, self._pair, self._enclose = extra, pair, enclose
        self._interval = interval

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """All turns, by one pair."""
        argv = pingpong(turns, seconds, self._interval)
        said = ""
        with ExitStack() as stack:
            both = []
            for cpu in self._pair:
                line = self._enclose(["taskset", "-c", str(cpu), *argv])
                both.append(stack.enter_context(started(priority.real_time(line), self._extra)))
            for process in both:
                said += finish(process, "pingpong on this kernel", limit(turns, seconds))
        found = lines.assigned(said, turns, "pingpong on this kernel")
        where = topology.placement(self._pair)
        return [dataclasses.replace(reading, placement=where) for reading in found]


class Loopback:
    """netpong with itself, over the loopback interface."""

    most = 64
    PORT = 47113

    def __init__(self, pair: tuple[int, int]) -> None:
        self._pair = pair

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """All turns, by one pair."""
        program = str(paths.programs() / "netpong")
        one, other = (priority.real_time(["taskset", "-c", str(cpu)]) for cpu in self._pair)
        # A port of this run's own.
        port = ["-p", str(self.PORT + os.getpid() % 10000)]
        client = [program, "-c", "127.0.0.1", *port, "-t", str(seconds), *plan(turns)]
        with started([*one, program, "-l", *port]), started([*other, *client]) as process:
            said = finish(process, "netpong on this kernel", limit(turns, seconds))
        where = topology.placement(self._pair)
        found = lines.assigned(said, turns, "netpong on this kernel")
        return [dataclasses.replace(reading, placement=where) for reading in found]


def container(argv: list[str]) -> list[str]:
    """A command line in name spaces as a container has them; the pool is all that it shares."""
    return ["unshare", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", *argv]


def plan(turns: Sequence[Turn]) -> list[str]:
    """METHOD SIZE of each turn."""
    return [word for turn in turns for word in (turn.contender.words[0], str(lines.payload(turn)))]


def pingpong(turns: Sequence[Turn], seconds: float, interval: int = 0) -> list[str]:
    """The command line of pingpong, or busypong for its methods, with a key of this run's own."""
    key = f"{0x50000000 | os.getpid():#x}"
    if turns[0].contender.words[0] in lines.BUSY:
        program = str(paths.programs() / "busypong")
        count = max(1000, min(PAPERS_TURNS, int(PAPERS_TURNS * seconds / USUAL_SECONDS)))
        return [program, "-k", key, "-n", str(count), *plan(turns)]
    program = str(paths.programs() / "pingpong")
    rate = ["-i", str(interval)] if interval else []
    return [program, "-k", key, "-t", str(seconds), *rate, *plan(turns)]


def limit(turns: Sequence[Turn], seconds: float) -> float:
    """When a program of so many turns has hung."""
    return 60 + 10 * seconds * len(turns)
