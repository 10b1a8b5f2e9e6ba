"""The MPI programs: how each is called, and the figures in what it prints."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from vshmem_lab import paths
from vshmem_lab.model import Failed, Missing, Turn
from vshmem_lab.runners import job
from vshmem_lab.runners.job import Figures

FOLDER = paths.ROOT / "tests" / "mpi"
PATIENCE = 180


class Program(job.Program, Protocol):
    """What a job of MPI runs."""

    mpi: str  # that it was built with: mpich or openmpi


def source(name: str) -> Path:
    """A file of the suite `mpi` of the tests."""
    path = FOLDER / name
    if not path.exists():
        raise Missing(f"It is measured from a checkout only: tests/mpi/{name} is not installed.")
    return path


def found(program: str) -> str:
    """The path of a program of Debian's."""
    path = shutil.which(program)
    if path is None:
        package = {"lmp": "lammps"}.get(program, program)
        raise Missing(f"{program} is not installed (Debian's package {package}).")
    return path


def mpi_of(program: str) -> str:
    """The MPI that a program loads."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    for name, library in (("mpich", "libmpich"), ("openmpi", "libmpi.so"), ("mpich", "libmpi")):
        if library in done.stdout:
            return name
    raise Missing(f"{Path(program).name} loads neither MPICH's library nor Open MPI's.")


@functools.cache
def compiled() -> str:
    """measure.c, compiled with the MPI that is installed."""
    compiler = shutil.which("mpicc")
    if compiler is None:
        raise Missing("There is no MPI: mpicc is not installed (libopenmpi-dev, or libmpich-dev).")
    return compile_with(compiler, paths.programs() / "mpi-measure")


def compile_with(compiler: str, program: Path) -> str:
    """measure.c, compiled with a compiler of an MPI."""
    code = source("programs/measure.c")
    program.parent.mkdir(parents=True, exist_ok=True)
    argv = [compiler, "-O2", "-std=gnu11", "-o", str(program), str(code)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"tests/mpi/programs/measure.c does not compile: {done.stderr.strip()}")
    return str(program)


def shared(name: str, text: str) -> str:
    """A file where machines see it."""
    path = paths.programs() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


# What measure.c prints: WHAT BYTES MEDIAN LOWEST HIGHEST UNIT
LINE = re.compile(r"^(\w[\w-]*) +(\d+) +([\d.]+) +[\d.]+ +[\d.]+ +(us|MB/s)$", re.MULTILINE)
NANOSECONDS = {"us": 1000.0, "MB/s": 1.0}


def measured(said: str) -> Figures:
    """A figure for each operation and size."""
    return {
        (what, int(size)): float(median) * NANOSECONDS[unit]
        for what, size, median, unit in LINE.findall(said)
    }


class Measure:
    """Our own program: messages and collectives, by size."""

    limit = PATIENCE
    absent: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._program = compiled()
        self.mpi = mpi_of(self._program)

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """What the turns are for, or the family that a job measures together: WHAT,... BYTES,..."""
        what, *family = turns[0].contender.words
        sizes = ",".join(str(turn.size) for turn in turns)
        milliseconds = str(max(1, round(seconds * 1000)))
        return [self._program, *(family or (what, sizes)), milliseconds, "1"]

    def figures(self, said: str) -> Figures:
        """A line for each operation and size."""
        return measured(said)


class Hpcc:
    """The HPC Challenge: all of its benchmarks in one run."""

    limit = 400
    absent: Mapping[str, str] = {}
    SIZE = 400  # of HPL's matrix; the others' follow from it
    # The name in its summary, and its unit by the case's.
    SUMMARY = {
        "hpl": ("HPL_Tflops", 1e6),
        "dgemm": ("StarDGEMM_Gflops", 1000),
        "stream": ("StarSTREAM_Triad", 1000),
        "latency": ("AvgPingPongLatency_usec", 1000),
        "latency, least": ("MinPingPongLatency_usec", 1000),
        "latency, most": ("MaxPingPongLatency_usec", 1000),
        "bandwidth": ("AvgPingPongBandwidth_GBytes", 1000),
        "bandwidth, least": ("MinPingPongBandwidth_GBytes", 1000),
        "bandwidth, most": ("MaxPingPongBandwidth_GBytes", 1000),
        "fft": ("MPIFFT_Gflops", 1000),
        "fft, each": ("StarFFT_Gflops", 1000),
        "fft, one": ("SingleFFT_Gflops", 1000),
        "ptrans": ("PTRANS_GBs", 1000),
        "randomaccess": ("MPIRandomAccess_GUPs", 1000),
        "randomaccess, each": ("StarRandomAccess_GUPs", 1000),
    }
    # It reads and writes where it is started; the first rank has the results.
    SCRIPT = (
        'd=$(mktemp -d) && cp "$1" "$d/hpccinf.txt" && cd "$d" && "$0"; status=$?; '
        '[ ! -e hpccoutf.txt ] || cat hpccoutf.txt; cd / && rm -r "$d"; exit $status'
    )

    def __init__(self, size: int = SIZE) -> None:
        self._program = found("hpcc")
        self.mpi = mpi_of(self._program)
        text = source("inputs/hpccinf.txt").read_text()
        sized = re.sub(r"^\d+(?= +Ns$)", str(size), text, flags=re.MULTILINE)
        self._input = shared(f"hpccinf-{size}.txt", sized)
        self.files = (self._program, self._input)

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """A run of everything, which takes as long as it takes."""
        return ["sh", "-c", self.SCRIPT, self._program, self._input]

    def figures(self, said: str) -> Figures:
        """From its summary."""
        summary = dict(re.findall(r"^(\w+)=(\S+)$", said, re.MULTILINE))
        if summary.get("Success") != "1":
            raise Failed(f"hpcc did not succeed: {said.strip()[-500:]}")
        figures = {
            (what, 0): float(summary[name]) * factor
            for what, (name, factor) in self.SUMMARY.items()
        }
        # It says less than nothing where its clock did not move.
        return {key: value for key, value in figures.items() if value > 0}


class Lammps:
    """The Lennard-Jones melt; measured is its loop, without start and set-up."""

    limit = PATIENCE
    absent: Mapping[str, str] = {}
    LOOP = re.compile(r"^Loop time of ([\d.e+-]+) on", re.MULTILINE)

    def __init__(self) -> None:
        self._program = found("lmp")
        self.mpi = mpi_of(self._program)
        self._input = shared("in.lj", source("inputs/in.lj").read_text())

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """All steps, which take as long as they take."""
        return [self._program, "-log", "none", "-in", self._input]

    def figures(self, said: str) -> Figures:
        """Nanoseconds of the loop."""
        loop = self.LOOP.search(said)
        return {("loop", 0): float(loop[1]) * 1e9} if loop else {}


PROGRAMS: dict[str, type[Program]] = {"measure": Measure, "hpcc": Hpcc, "lammps": Lammps}
