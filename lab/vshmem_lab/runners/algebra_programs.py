"""The programs of `algebra`: how each is called, and the figures in what it prints."""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from vshmem_lab import paths
from vshmem_lab.model import Failed, Missing, Turn
from vshmem_lab.process import run
from vshmem_lab.report import kernels
from vshmem_lab.runners.job import Figures, Place
from vshmem_lab.tune import ROUTINES

# Debian's libraries, each where it lies whatever the system's BLAS is, and its package.
BLAS = {
    "OpenBLAS": ("openblas*", "libopenblas0-pthread"),
    "BLIS": ("blis*", "libblis4-serial"),
    "ATLAS": ("atlas", "libatlas3-base"),
    "reference BLAS": ("blas", "libblas3"),
}
# Our own: three loops; by blocks with parameters that nobody tuned; with those of the tuner.
OURS = ("naive", "untuned", "tuned")
LIBRARIES = (*BLAS, *OURS)
# One thread each: what a processor does is measured.
ONE_THREAD = ("OPENBLAS_NUM_THREADS=1", "BLIS_NUM_THREADS=1")
# What would choose OpenBLAS's kernel in its place.
CHOOSING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
ITS_CHOICE = tuple(word for name in CHOOSING for word in ("-u", name))
KERNEL = re.compile(r"(?:^|\s)kernel (\w+)$", re.MULTILINE)
# WHAT SIZE VALUE, with or without a machine's name before it.
LINE = re.compile(r"(?:^|\s)([a-z0-9-]+) (\d+) ([\d.e+-]+)$")
LIMIT = 600
# Below so many seconds a turn a run is a miniature.
MINIATURE = 0.1
KIB = 1024
EDGES = (0, *(size * KIB for size in (64, 128, 256, 512, 1024, 2048, 4096, 8192)))
NO_COUNTERS = (
    "There is no counter of TLB misses here: virtual machines mostly have none, and "
    "kernel.perf_event_paranoid may be above 2."
)


def parse(said: str) -> list[tuple[str, int, float]]:
    """What, size and value of each line that is one."""
    found = (LINE.search(line.strip()) for line in said.splitlines())
    return [(m[1], int(m[2]), float(m[3])) for m in found if m]


# The path of a library, for turns of so many seconds: the tuner looks further for long ones.
Library = Callable[[float], str]


def library(name: str, tuning: Callable[[], Tuning] | None, routine: str = "gemm") -> Library:
    """A library that has a routine."""
    if name in BLAS:
        pattern, package = BLAS[name]
        found = sorted(glob.glob(f"/usr/lib/*/{pattern}/libblas.so.3"))
        if not found:
            raise Missing(f"{name} is not installed (Debian's package {package}).")
        return lambda _: found[0]
    if name == "tuned":
        return functools.partial(tuning().library, routine)
    paths.build_programs("algebra")
    return lambda _: str(paths.programs() / f"dgemm-{name}.so")


class Dgemm:
    """A fresh process for each multiplication, as in paper 000."""

    limit = LIMIT
    absent: Mapping[str, str] = {"data-tlb": NO_COUNTERS, "code-tlb": NO_COUNTERS}

    def __init__(self, of: Library, options: Sequence[str] = (), processes: int = 1) -> None:
        paths.build_programs("algebra")
        self._library, self._options, self._processes = of, options, processes

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """One after the other."""
        together = ["-p", str(self._processes)] if self._processes > 1 else []
        program = [str(paths.programs() / "dgemm"), *self._options, *together]
        # Processes that begin together meet by a key of this run's and size's own.
        key = 0x45000000 | (os.getpid() & 0xFFFF) << 8
        sizes = " ".join(str(turn.size) for turn in turns)
        script = (
            f'i={key}; for n in {sizes}; do i=$((i + 1)); "$@" -k $i "$LIBRARY" $n || exit 1; done'
        )
        variables = [*ITS_CHOICE, *ONE_THREAD, f"LIBRARY={self._library(seconds)}"]
        return ["env", *variables, "sh", "-c", script, "sh", *program]

    def note(self, said: str) -> str:
        """Which of its kernels OpenBLAS took."""
        found = dict.fromkeys(KERNEL.findall(said))
        return kernels.NOTE.format(" and ".join(found)) if found else ""

    def figures(self, said: str) -> Figures:
        """The mean of what its processes measured."""
        values: dict[tuple[str, int], list[float]] = {}
        for what, size, value in parse(said):
            values.setdefault((what, size), []).append(value)
        whole = {key: found for key, found in values.items() if len(found) == self._processes}
        return {key: sum(found) / len(found) for key, found in whole.items()}


class Level2:
    """A fresh process for each routine of a matrix and vectors: gemvn, gemvt or ger."""

    limit = LIMIT
    absent: Mapping[str, str] = {}

    def __init__(self, of: Library, routine: str) -> None:
        paths.build_programs("algebra")
        self._library, self._routine = of, routine

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """One after the other."""
        sizes = " ".join(str(turn.size) for turn in turns)
        script = f'for n in {sizes}; do "$@" $n || exit 1; done'
        program = [str(paths.programs() / "level2"), self._routine, self._library(seconds)]
        return ["env", *ITS_CHOICE, *ONE_THREAD, "sh", "-c", script, "sh", *program]

    def figures(self, said: str) -> Figures:
        """A line each."""
        return {(what, size): value for what, size, value in parse(said)}


class Edges:
    """The sweep of CacheEdge, and what it would choose."""

    limit = LIMIT
    absent: Mapping[str, str] = {}

    def __init__(self, of: Library) -> None:
        paths.build_programs("algebra")
        self._library = of

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """All of them, whatever is asked for; the turns' second word is the number of rows."""
        rows = "100" if seconds < MINIATURE else turns[0].contender.words[1]
        edges = " ".join(map(str, EDGES))
        script = f'for edge in {edges}; do "$1" -e $edge "$2" {rows} || exit 1; done'
        program = str(paths.programs() / "dgemm")
        return ["sh", "-c", script, "sh", program, self._library(seconds)]

    def figures(self, said: str) -> Figures:
        """By edge, and the best one of the second level's."""
        rates = {size: value for what, size, value in parse(said) if what == "rate"}
        if set(rates) != set(EDGES):
            raise Failed(f"dgemm did not measure all edges: {said.strip()}")
        chosen = max(EDGES[1:], key=rates.__getitem__)
        return {**{("rate", edge): rate for edge, rate in rates.items()}, ("chosen", 0): chosen}


class Probe:
    """What a tuner finds out of a system first."""

    limit = LIMIT
    absent: Mapping[str, str] = {}

    def __init__(self) -> None:
        paths.build_programs("algebra")

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """All of it."""
        return [str(paths.programs() / "probe")]

    def figures(self, said: str) -> Figures:
        """A line each."""
        return {(what, size): value for what, size, value in parse(said)}


class KernelSizes:
    """How much memory a kernel's code and data take, as it says itself."""

    limit = LIMIT
    absent: Mapping[str, str] = {
        what: "The kernel tells only root where it lies." for what in ("code", "data")
    }
    RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) : Kernel (code|data)$", re.MULTILINE)

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """Where its parts lie in memory."""
        return ["cat", "/proc/iomem"]

    def figures(self, said: str) -> Figures:
        """Bytes."""
        found = ((what, int(a, 16), int(b, 16)) for a, b, what in self.RANGE.findall(said))
        return {(what, 0): to - begin + 1 for what, begin, to in found if to}


class Tuning:
    """kernel_tuner over the routines' parameters; libraries with those that it chose."""

    limit = 1800
    absent: Mapping[str, str] = {}

    def __init__(self, place: Place) -> None:
        if importlib.util.find_spec("kernel_tuner") is None:
            raise Missing("kernel_tuner is not installed: vshmem-lab setup fetches it from PyPI.")
        paths.build_programs("algebra")
        self._place = place
        self._chosen: dict[str, dict[str, int]] = {}  # the source's parameters, by routine

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """The whole search; in miniature a small one."""
        space = "small" if seconds < MINIATURE else "whole"
        self.compile_all(space)
        return self._search(space, 240, paths.programs() / "tuning")

    def _search(self, space: str, rows: int, cache: object) -> list[str]:
        variables = ["env", f"PYTHONPATH={paths.LAB}", *ONE_THREAD]
        return [*variables, sys.executable, "-m", "vshmem_lab.tune", space, str(rows), str(cache)]

    @functools.cache  # noqa: B019 it lives as long as the lab
    def compile_all(self, space: str) -> None:
        """Compiles here what the search compares: in an emulated machine that takes too long."""
        run(self._search(space, 8, paths.programs() / "tuning"), limit=self.limit)

    def figures(self, said: str) -> Figures:
        """The parameters, and the rates with them."""
        found = {(what, size): value for what, size, value in parse(said)}
        chosen = {
            name: {
                parameter: int(found.get((f"{name}-{called}", 0), -1))
                for parameter, called in routine.called.items()
            }
            for name, routine in ROUTINES.items()
        }
        if min(value for values in chosen.values() for value in values.values()) < 0:
            raise Failed(f"The tuner did not say what it chose: {said.strip()}")
        self._chosen = chosen
        return found

    def library(self, routine: str, seconds: float) -> str:
        """The library of the last choice; of a new one where there was none (a resumed run)."""
        if not self._chosen:
            self.figures(self._place.said(self, self.argv((), seconds)))
        values = self._chosen[routine]
        name = "-".join(map(str, (routine, *values.values())))
        path = paths.programs() / f"{name}.so"
        if not path.exists():
            flags = [f"-D{parameter}={value}" for parameter, value in values.items()]
            flags = ["-O3", "-std=gnu11", "-shared", "-fPIC", *flags]
            run(["cc", *flags, "-o", str(path), ROUTINES[routine].path])
        return str(path)
