"""Turns of an MPI program: inside one kernel, and between machines."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vshmem_lab import paths, topology
from vshmem_lab.model import Failed, Missing, Reading, Turn
from vshmem_lab.process import run
from vshmem_lab.runners.machines import PATIENCE, Machines

SOURCE = paths.ROOT / "tests" / "mpi" / "programs" / "measure.c"
# WHAT BYTES MEDIAN LOWEST HIGHEST UNIT
LINE = re.compile(r"^(\w[\w-]*) +(\d+) +([\d.]+) +[\d.]+ +[\d.]+ +(us|MB/s)$")
# Open MPI's launcher asks root for these.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NANOSECONDS = {"us": 1000.0, "MB/s": 1.0}


def parse(said: str) -> dict[tuple[str, int], float]:
    """The value of each operation and size: nanoseconds, or MB/s."""
    found = {}
    for line in said.splitlines():
        match = LINE.match(line.strip())
        if match:
            what, size, median, unit = match.groups()
            found[what, int(size)] = float(median) * NANOSECONDS[unit]
    return found


def compiled() -> Path:
    """The program, compiled with the MPI that is installed."""
    if not SOURCE.exists():
        raise Missing("The MPI program is not here: tests/mpi/programs/measure.c.")
    compiler = shutil.which("mpicc")
    if compiler is None:
        raise Missing("There is no MPI: mpicc is not installed (libmpich-dev, mpich).")
    program = paths.programs() / "mpi-measure"
    program.parent.mkdir(parents=True, exist_ok=True)
    argv = [compiler, "-O2", "-std=gnu11", "-o", str(program), str(SOURCE)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"tests/mpi/programs/measure.c does not compile: {done.stderr.strip()}")
    return program


class Job:
    """What both jobs share: one run of the program measures all sizes of an operation."""

    most = 64

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The turns' operations and sizes, by one job an operation."""
        found = {}
        for what in dict.fromkeys(turn.contender.words[0] for turn in turns):
            sizes = [turn.size for turn in turns if turn.contender.words[0] == what]
            words = [what, str(max(sizes)), str(max(1, int(seconds * 1000))), "1"]
            found.update(parse(self.said(words, PATIENCE + 60 * seconds * len(sizes))))
        return [self._reading(found, turn) for turn in turns]

    def _reading(self, found: dict[tuple[str, int], float], turn: Turn) -> Reading:
        key = (turn.contender.words[0], turn.size)
        if key not in found:
            raise Failed(f"The MPI program did not measure {key[0]} of {key[1]} bytes.")
        return self.seated(Reading(found[key]))

    def said(self, words: Sequence[str], within: float) -> str:
        """What the job printed."""
        raise NotImplementedError

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        raise NotImplementedError


class OneKernel(Job):
    """Two ranks on one kernel, by the MPI's own shared memory."""

    def __init__(self, pair: tuple[int, int]) -> None:
        self._program = compiled()
        self._pair = pair

    def said(self, words: Sequence[str], within: float) -> str:
        """What the job printed."""
        # A rank's core is the list's element of its number; both MPIs name it by a variable.
        one, other = self._pair
        rank = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"
        bound = f'[ "{rank}" = 0 ] && c={one} || c={other}; exec taskset -c $c "$@"'
        argv = ["mpiexec", "-n", "2", "sh", "-c", bound, "sh", str(self._program), *words]
        return run(argv, AS_ROOT, within)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        return dataclasses.replace(reading, placement=topology.placement(self._pair))


class OneMachine(Job):
    """Two ranks on two processors of one machine, by the MPI's own shared memory."""

    def __init__(self, machines: Machines) -> None:
        self._program = compiled()
        self._machines = machines

    def said(self, words: Sequence[str], within: float) -> str:
        """What the job printed."""
        allowed = [word for pair in AS_ROOT.items() for word in ("--env", "=".join(pair))]
        argv = [*allowed, self._machines.names[0], "--", "mpiexec", "-n", "2"]
        what = "mpiexec in a machine"
        return self._machines.do(
            "exec", *argv, str(self._program), *words, what=what, within=within
        )

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        (found,) = self._machines.where([reading])
        return dataclasses.replace(found, placement="two processors of one machine")


class Cluster(Job):
    """Two ranks in two machines, by `vshmem mpirun`, or by TCP between the same machines."""

    def __init__(self, machines: Machines, tcp: bool) -> None:
        self._program = compiled()
        self._machines = machines
        self._options = ["--env", "UCX_TLS=tcp,self"] if tcp else []
        probe = [str(paths.command()), "mpirun", "--help"]
        if subprocess.run(probe, capture_output=True, env=os.environ).returncode != 0:
            raise Missing("This vshmem has no command mpirun.")

    def said(self, words: Sequence[str], within: float) -> str:
        """What the job printed."""
        hosts = ",".join(self._machines.names)
        ranks = ["-n", "2", "--ppn", "1", "--vm", hosts]
        argv = [*self._options, *ranks, "--", str(self._program), *words]
        return self._machines.do("mpirun", *argv, what="vshmem mpirun", within=within)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        return self._machines.where([reading])[0]
