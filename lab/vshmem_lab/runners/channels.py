"""Turns of the programs `channel` and `channel-NAME`: the same work by what programs use."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from vshmem_lab import leftovers, paths, priority, topology
from vshmem_lab.builds import ORDINARY
from vshmem_lab.model import Failed, Missing, Reading, Turn
from vshmem_lab.process import run
from vshmem_lab.runners import lines

PROGRAMS = (
    "channel",
    "channel-boost",
    "channel-ucx",
    "channel-fabric",
    "channel-iceoryx",
    "channel-aeron",
)
# Its processes are more than two, and have all processors.
CROWD = "senders"


def versions() -> dict[str, str]:
    """Of what the programs that were compiled are made with."""
    found = {}
    for program in (paths.programs() / name for name in PROGRAMS):
        if program.exists():
            words = (line.split() for line in run([str(program), "-l"]).splitlines())
            found |= {line[0]: line[1] for line in words if len(line) > 1}
    return found


class Channels:
    """One measurement a run of the program, which is compiled first."""

    most = 1

    def __init__(self, program: str, extra: dict[str, str], pair: tuple[int, int]) -> None:
        paths.build_programs(program)
        self._program, self._extra, self._pair = paths.programs() / program, extra, pair

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The reading of the turn's line."""
        (turn,) = turns
        words = [word.format(size=turn.size) for word in turn.contender.words]
        user = ["-u", str(ORDINARY)] if os.geteuid() == 0 else []
        argv = [str(self._program), "-t", str(seconds), *user, *words]
        placement = ""
        if CROWD in words:
            argv = priority.heavy(argv)
        else:
            placement = topology.placement(self._pair)
            argv = priority.real_time(["taskset", "-c", "{},{}".format(*self._pair), *argv])
        try:
            (found,) = lines.values(run(argv, self._extra))
        except Failed as failure:
            _, told, why = str(failure).partition(f": {paths.MISSING}")
            raise Missing(why) if told else failure from None
        finally:
            leftovers.sweep_files()
        return [dataclasses.replace(found, placement=placement)]
