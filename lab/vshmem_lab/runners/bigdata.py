"""Turns of the suite `bigdata`: a cluster of Spark for each, on this kernel or in machines."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from vshmem_lab import paths, priority
from vshmem_lab.environments import NATIVE
from vshmem_lab.model import Case, Contender, Failed, Missing, Reading, Runner, Turn
from vshmem_lab.process import finish, started
from vshmem_lab.runners.dwarfs import SPREAD, SPREAD_RANKS, InMachines, parse
from vshmem_lab.runners.environments import FindMachines
from vshmem_lab.runners.machines import Kind, Machines
from vshmem_lab.runners.vsuite import Changed, changes
from vshmem_lab.suites.bigdata import (
    AFTER,
    BEFORE,
    MACHINES,
    ONE_CLUSTER,
    PLACES,
    TEXT,
    runner,
)
from vshmem_lab.suites.vsuite import ALL, PAGES, REMEDIES

SCRIPT = paths.LAB / "src" / "bigdata" / "spark.sh"
MEMORY = 1536  # MiB of each machine: a JVM or two, and Python
LIMIT = 4 * 3600  # an emulated machine counts a MiB in minutes
KEEP = 20  # lines of what a part of Spark said
WORDS = 1000
LINE, AT_A_TIME = 10, 1_000_000
BYTES = 7.85  # of a word with what follows it, of which the mean is 7.89
EXECUTORS = re.compile(r"(?:^|\s)spark (\d+)$", re.MULTILINE)
JAVA = Path("/etc/java-17-openjdk")  # Debian's JVM has its settings there


def packages() -> Path:
    """The folder with pyspark. Raises Missing if there is none."""
    folder = paths.target() / "lab" / "spark" if paths.CHECKOUT else paths.programs() / "spark"
    if not (folder / "pyspark").is_dir():
        pinned = f"--no-deps --require-hashes -r {paths.LAB}/requirements-spark.txt"
        raise Missing(f"Spark is not installed. Run: pip install --target {folder} {pinned}")
    if shutil.which("java") is None:
        raise Missing("java is not installed (default-jre-headless).")
    return folder


@functools.cache
def text(size: int, root: Path) -> tuple[Path, int]:
    """A folder with so many KiB of words or a few more, a file for each machine; their count."""
    folder = root / f"text-{size}"
    count = int(size * 1024 / BYTES) + 1
    share = -(-count // MACHINES)
    total = np.zeros(WORDS, np.int64)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(MACHINES):
        with (folder / f"{i}.txt").open("wb") as file:
            for at in range(i * share, min((i + 1) * share, count), AT_A_TIME):
                end = min(at + AT_A_TIME, (i + 1) * share, count)
                numbers = np.arange(at, end, dtype=np.uint32) * np.uint32(2654435761) % WORDS
                total += np.bincount(numbers, minlength=WORDS)
                file.write(_lines(numbers))
    counted = sorted((f"word{i}", int(n)) for i, n in enumerate(total) if n)
    return folder, zlib.crc32(repr(counted).encode())


def _lines(numbers: np.ndarray) -> bytes:
    """Words of these numbers, ten a line."""
    words = np.array([f"word{i} " for i in range(WORDS)])[numbers]
    whole = len(words) // LINE * LINE
    lines = ["".join(line)[:-1] for line in words[:whole].reshape(-1, LINE)]
    lines += ["".join(words[whole:])[:-1]] if whole < len(words) else []
    return ("\n".join(lines) + "\n").encode()


class Spark:
    """A cluster of Spark and its word count: where its parts run is told by subclasses."""

    most = 1

    def __init__(self) -> None:
        self._packages = packages()

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The turn, however long it takes."""
        (turn,) = turns
        return self.seated([Reading(self.count(turn.size))])

    def count(self, size: int) -> float:
        """The nanoseconds of a word count; what it answers is checked."""
        folder, right = text(size, paths.programs())
        first, *_ = hosts = self.hosts()
        with contextlib.ExitStack() as stack:
            parts = [("master", first), *(("worker", host, first) for host in hosts)]
            for part in parts:
                stack.enter_context(self.part(part))
            words = ("count", first, first, str(folder), str(len(hosts)))
            job = stack.enter_context(self.part(words))
            said = finish(job, "Spark's word count", LIMIT)
        found = [line for line in parse(said) if line[0] == "wordcount"]
        executors = EXECUTORS.search(said)
        if len(found) != 1 or executors is None:
            raise Failed(f"Spark counted nothing: {_end(said)}")
        if found[0][3] != right:
            raise Failed(f"Spark counted {found[0][3]:.0f} instead of {right}.")
        if int(executors[1]) != len(hosts):
            raise Failed(f"{executors[1]} of {len(hosts)} executors counted.")
        return found[0][2]

    def hosts(self) -> list[str]:
        """The names of the machines, the master's first."""
        raise NotImplementedError

    def part(self, words: Sequence[str]) -> contextlib.AbstractContextManager:
        """Starts a part of the cluster on the host that is its second word."""
        raise NotImplementedError

    def seated(self, found: list[Reading]) -> list[Reading]:
        """The readings with where it ran."""
        raise NotImplementedError


def _end(said: str) -> str:
    return "\n".join(said.strip().splitlines()[-KEEP:])


class Here(Spark):
    """On this kernel, a worker for each processor."""

    def hosts(self) -> list[str]:
        """All of it is here."""
        return ["localhost"] * MACHINES

    def part(self, words: Sequence[str]) -> contextlib.AbstractContextManager:
        """Starts it here."""
        variables = {"PACKAGES": str(self._packages), "LOCAL": "/dev/shm"}
        return started(priority.heavy([str(SCRIPT), *words]), variables)

    def seated(self, found: list[Reading]) -> list[Reading]:
        """The readings, as they are."""
        return [dataclasses.replace(one, placement=f"{MACHINES} workers") for one in found]


class There(Spark):
    """In machines, a worker in each."""

    def __init__(self, machines: Machines) -> None:
        super().__init__()
        self._machines = machines

    def hosts(self) -> list[str]:
        """The machines."""
        return list(self._machines.names)

    def part(self, words: Sequence[str]) -> contextlib.AbstractContextManager:
        """Starts it in its machine."""
        variables = ("--env", f"PACKAGES={self._packages}", "--env", "LOCAL=/dev/shm")
        return self._machines.start("exec", *variables, words[1], "--", str(SCRIPT), *words)

    def seated(self, found: list[Reading]) -> list[Reading]:
        """The readings with where the machines are."""
        return self._machines.where(found)


class OneCluster:
    """A job of MPI or System V, a word count, and the same job again, in the same machines."""

    most = 2

    def __init__(self, machines: Machines) -> None:
        self._spark = There(machines)
        self._models = {
            "MPI": InMachines("mpi", machines, SPREAD_RANKS),
            "System V": InMachines("sysv", machines, SPREAD),
        }

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The jobs, in the order in which they are to be, whatever that of the turns is."""
        found = dict(self._jobs(turns, BEFORE, seconds))
        self._spark.count(TEXT)
        found |= dict(self._jobs(turns, AFTER, seconds))
        return [found[turn.contender.name] for turn in turns]

    def _jobs(
        self, turns: Sequence[Turn], when: str, seconds: float
    ) -> Iterator[tuple[str, Reading]]:
        for turn in turns:
            model, of, count = turn.contender.words
            if of == when:
                job = _reduction(turn, count)
                (reading,) = self._models[model].measure([job], seconds)
                yield turn.contender.name, reading


def _reduction(turn: Turn, count: str) -> Turn:
    words = ("meet", "reduction", count)
    contender = Contender(turn.contender.name, turn.contender.runner, words)
    case = Case(turn.case.suite, turn.case.name, turn.case.environment, (contender,))
    return Turn(case, contender, turn.size)


def runners(machines: FindMachines) -> dict[str, Callable[[], Runner]]:
    """How each is made."""
    found: dict[str, Callable[[], Runner]] = {
        runner(place): functools.partial(_make, machines, place) for place in PLACES
    }
    return found | {ONE_CLUSTER: lambda: OneCluster(_machines(machines, REMEDIES[ALL]))}


def _make(machines: FindMachines, place: str) -> Runner:
    if place == NATIVE:
        return Here()
    found = _machines(machines, REMEDIES[place])
    return Changed(There(found), found, changes(REMEDIES[place]))


def _machines(machines: FindMachines, remedies: frozenset[str]) -> Machines:
    # What machines need is looked for before they boot.
    shares = (packages(), *([JAVA] if JAVA.is_dir() else []))
    before = () if PAGES in remedies else (str(paths.programs() / "pages"), "small")
    kind = Kind("auto", before, "-bd" if before else "-b", MEMORY, tuple(map(str, shares)))
    return machines(MACHINES, 1, kind)
