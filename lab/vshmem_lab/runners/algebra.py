"""Where the programs of `algebra` run: on one kernel, in containers, in one machine and in two."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from vshmem_lab import kvm, priority, topology
from vshmem_lab.model import Reading, Runner
from vshmem_lab.process import finish, run, started
from vshmem_lab.runners.algebra_programs import (
    BLAS,
    LIBRARIES,
    Dgemm,
    Edges,
    KernelSizes,
    Level2,
    Library,
    Probe,
    Tuning,
    library,
)
from vshmem_lab.runners.job import Job, Place, Program
from vshmem_lab.runners.machines import PATIENCE, Kind, Machines
from vshmem_lab.runners.mpi import Find, crowded
from vshmem_lab.runners.onekernel import Enclose, container
from vshmem_lab.runners.scarce import LARGE_SWAP, Scarce, swap_in

# Where DGEMM runs by itself, and with another one.
ALONE = ("native", "a machine")
TOGETHER = ("one kernel", "two containers", "one machine", "two machines")
SCARCE_TOGETHER = tuple(f"{place}, scarce" for place in TOGETHER)
# Bytes of a process where memory is scarce: the papers' 256 MB, and what emulation soon fills.
LIMITS = {"native": 256 << 20, "a machine": 8 << 20}
# MiB of the papers' machines: with plentiful memory, with scarce one, and for two processes.
PLENTY, LITTLE = 756, 256
KVM = "a machine of KVM"
IN_KVM = (KVM, f"{KVM}, Vshmem", f"{KVM}, scarce")
TOGETHER_IN_KVM = ("one machine of KVM, scarce", "two machines of KVM, scarce")
TRANSPOSED = ("NN", "NT", "TN", "TT")
LEVEL2 = ("GEMVN", "GEMVT", "GER")
# Whose routines of all kinds are measured.
COMPLETE = (*BLAS, "tuned")


class Native:
    """On one processor of this kernel, or a process on each of two that begin together."""

    def __init__(
        self, cpus: Sequence[int], extra: dict[str, str] | None = None, enclose: Enclose = list
    ) -> None:
        self._cpus, self._extra, self._enclose = tuple(cpus), extra or {}, enclose
        self._apart = enclose is not list

    def said(self, program: Program, argv: Sequence[str], before: Sequence[str] = ()) -> str:
        """What the processes printed. In one place the words before hold for both together."""
        if before and len(self._cpus) > 1 and not self._apart:
            one, other = self._cpus
            both = f'taskset -c {one} "$@" & taskset -c {other} "$@" & wait'
            line = priority.heavy([*before, "sh", "-c", both, "sh", *argv])
            return run(line, self._extra, program.limit)
        lines = [
            priority.heavy([*before, "taskset", "-c", str(cpu), *self._enclose(list(argv))])
            for cpu in self._cpus
        ]
        if len(lines) == 1:
            return run(lines[0], self._extra, program.limit)
        with ExitStack() as stack:
            both = [stack.enter_context(started(line, self._extra)) for line in lines]
            return "".join(finish(one, "a process of two", program.limit) for one in both)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where its processes sat."""
        if len(self._cpus) == 1:
            return dataclasses.replace(reading, placement=f"on core {self._cpus[0]}")
        where = topology.placement((self._cpus[0], self._cpus[1]))
        return dataclasses.replace(reading, placement=where)


class InMachines:
    """In a machine; on Vshmem a process in each of them, else so many in the first one."""

    def __init__(self, machines: Machines, processes: int = 1, on_vshmem: bool = False) -> None:
        self._machines, self._processes, self._on_vshmem = machines, processes, on_vshmem

    def said(self, program: Program, argv: Sequence[str], before: Sequence[str] = ()) -> str:
        """What the processes printed. In one machine the words before hold for both together."""
        line = list(argv)
        if self._on_vshmem:
            as_root = ["-u", "root"] if before else []
            action = ["run", *as_root, "-n", str(self._processes), "--", *before, *line]
        else:
            if self._processes > 1:
                line = ["sh", "-c", '"$@" & "$@" & wait', "sh", *line]
            # Some of what the kernel says of itself is root's.
            action = ["exec", "-u", "root", self._machines.names[0], "--", *before, *line]
        what = f"{type(program).__name__} in machines"
        return self._machines.do(*action, what=what, within=PATIENCE + program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where its processes sat."""
        (found,) = self._machines.where([reading])
        return crowded(found, self._processes)


def runners(
    machines: Find,
    pair: tuple[int, int],
    pool: Callable[[], dict[str, str]],
    enclosed: Callable[[], dict[str, str]],
) -> dict[str, Callable[[], Runner]]:
    """How each program in each place is made."""
    places: dict[str, Callable[[], Place]] = {
        "native": lambda: Native(pair[:1]),
        "native, Vshmem": lambda: Native(pair[:1], pool()),
        "a machine": lambda: InMachines(machines(1, 1)),
        "a machine, Vshmem": lambda: InMachines(machines(1, 1), on_vshmem=True),
        "native, scarce": lambda: Scarce(Native(pair[:1]), LIMITS["native"]),
        "a machine, scarce": lambda: Scarce(
            InMachines(_swapping(machines(1, 1))), LIMITS["a machine"]
        ),
        "one kernel": lambda: Native(pair),
        "two containers": lambda: Native(pair, enclosed(), container),
        "one machine": lambda: InMachines(machines(1, 2), 2),
        "two machines": lambda: InMachines(machines(2, 1), 2, on_vshmem=True),
        # Two in one place have twice as much, together.
        "one kernel, scarce": lambda: Scarce(Native(pair), 2 * LIMITS["native"]),
        "two containers, scarce": lambda: Scarce(
            Native(pair, enclosed(), container), LIMITS["native"]
        ),
        "one machine, scarce": lambda: Scarce(
            InMachines(_swapping(machines(1, 2)), 2), 2 * LIMITS["a machine"]
        ),
        "two machines, scarce": lambda: Scarce(
            InMachines(_swapping(machines(2, 1)), 2, on_vshmem=True), LIMITS["a machine"]
        ),
        KVM: lambda: InMachines(_by_kvm(machines, 1, 1, PLENTY)),
        f"{KVM}, Vshmem": lambda: InMachines(_by_kvm(machines, 1, 1, PLENTY), on_vshmem=True),
        f"{KVM}, scarce": lambda: InMachines(_little(machines, 1, 1, LITTLE)),
        TOGETHER_IN_KVM[0]: lambda: InMachines(_little(machines, 1, 2, 2 * LITTLE), 2),
        TOGETHER_IN_KVM[1]: lambda: InMachines(_little(machines, 2, 1, LITTLE), 2, on_vshmem=True),
    }
    find = functools.cache(lambda place: places[place]())
    tuning = {place: functools.cache(lambda place=place: Tuning(find(place))) for place in ALONE}
    found: dict[str, Callable[[], Runner]] = {}

    def add(name: str, place: str, program: Callable[[], Program]) -> None:
        # The program first: machines need not boot for one that is missing.
        def make() -> Job:
            made = program()
            return Job(find(place), made)

        found[f"algebra {name}, {place}"] = make

    for place in ALONE:
        tuned = tuning[place]
        add("probe", place, Probe)
        add("kernel", place, KernelSizes)
        add("tuning", place, tuned)
        add("edges", place, functools.partial(_edges, tuned))
        for name in LIBRARIES:
            of = functools.partial(library, name, tuned)
            add(name, place, functools.partial(_dgemm, of))
            for transposed in TRANSPOSED:
                options = ("-t", transposed)
                add(f"{name} GEMM{transposed}", place, functools.partial(_dgemm, of, options))
        for name, routine in itertools.product(COMPLETE, LEVEL2):
            add(f"{name} {routine}", place, functools.partial(_level2, name, tuned, routine))
        add("OpenBLAS", f"{place}, scarce", functools.partial(_dgemm, _openblas))
        add("OpenBLAS", f"{place}, Vshmem", functools.partial(_dgemm, _openblas, ("-s",)))
    for place in (*TOGETHER, *SCARCE_TOGETHER, *TOGETHER_IN_KVM):
        add("OpenBLAS", place, functools.partial(_dgemm, _openblas, (), 2))
    for place in IN_KVM:
        options = ("-s",) if place.endswith("Vshmem") else ()
        add("OpenBLAS", place, functools.partial(_dgemm, _openblas, options))
    return found


def _swapping(machines: Machines) -> Machines:
    swap_in(machines)
    return machines


def _by_kvm(machines: Find, count: int, cpus: int, memory: int) -> Machines:
    """Machines of KVM with so many MiB, as the papers' had."""
    kvm.needed()
    return machines(count, cpus, Kind("kvm", suffix=f"-{memory}M", memory=memory))


def _little(machines: Find, count: int, cpus: int, memory: int) -> Machines:
    """Machines of KVM with so many MiB, and a disk to swap to, whose memory comes on top."""
    found = _by_kvm(machines, count, cpus, memory + LARGE_SWAP)
    swap_in(found, LARGE_SWAP, whole=True)
    return found


def _openblas() -> Library:
    return library("OpenBLAS", None)


def _dgemm(of: Callable[[], Library], options: Sequence[str] = (), processes: int = 1) -> Dgemm:
    return Dgemm(of(), options, processes)


def _level2(name: str, tuning: Callable[[], Tuning], routine: str) -> Level2:
    return Level2(library(name, tuning, routine.lower()), routine.lower())


def _edges(tuning: Callable[[], Tuning]) -> Edges:
    return Edges(library("tuned", tuning))
