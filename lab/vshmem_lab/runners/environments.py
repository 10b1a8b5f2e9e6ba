"""Where the suite `hypervisors` plays: this kernel, a container, machines; by their pages."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from vshmem_lab import paths, priority
from vshmem_lab.environments import (
    HUGE,
    KVM,
    NATIVE,
    OPENMP,
    PLACES,
    PROBLEMS,
    RESERVED,
    SMALL,
    TCG,
    XEN,
    hpcc,
    named,
)
from vshmem_lab.features import qemu, words
from vshmem_lab.model import Missing, Reading, Runner, Turn
from vshmem_lab.runners.dwarfs import InMachines, Threads
from vshmem_lab.runners.job import Job
from vshmem_lab.runners.machines import Kind, Machines
from vshmem_lab.runners.mpi import OneKernel, OneMachine
from vshmem_lab.runners.mpi_programs import Hpcc
from vshmem_lab.runners.onekernel import Enclose
from vshmem_lab.runners.podman import Podman
from vshmem_lab.runners.xen_domain import InDomain, OneDomain
from vshmem_lab.runners.xen_host import Xen

CPUS = 2
KINDS = {SMALL: "small", HUGE: "huge", RESERVED: "reserved"}
ACCELERATORS = {KVM: "kvm", TCG: "tcg"}
# Each rank has a processor, and so one thread for its BLAS.
ONE_THREAD = ("env", "OPENBLAS_NUM_THREADS=1")

FindMachines = Callable[[int, int, Kind], Machines]
FindPodman = Callable[[], Podman]
FindXen = Callable[[], Xen]


def paged(pages: str, argv: Sequence[str]) -> list[str]:
    """A command line whose memory is in such pages."""
    return [*ONE_THREAD, str(paths.programs() / "pages"), KINDS[pages], *argv]


def check(pages: str) -> None:
    """Raises Missing if this host has no such pages to give."""
    if pages == HUGE and words.transparent() == "never":
        raise Missing("The kernel gives no transparent huge pages (its mode is never).")
    if pages == RESERVED and free() == 0:
        raise Missing("No huge pages are reserved. As root: sysctl vm.nr_hugepages=256")


def free() -> int:
    """The huge pages that are set aside and not taken."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = [line.split()[1] for line in lines if line.startswith("HugePages_Free:")]
    return int(found[0]) if found else 0


def backing(pid: int) -> str:
    """How much of a QEMU's memory is in huge pages now; nothing if that is not to be seen."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return ""
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
    share = sizes["AnonHugePages"] / max(sizes["Anonymous"], 1)
    return f", {share:.0%} of its memory in huge pages"


class Backed:
    """A runner in a machine, which says in what pages its memory is."""

    def __init__(self, inner: Runner, machines: Machines) -> None:
        self._inner, self._machines = inner, machines
        self.most = inner.most

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The turns; afterwards the machine's memory is looked at."""
        readings = self._inner.measure(turns, seconds)
        found = backing(self._machines.pids()[0])
        return [dataclasses.replace(one, placement=one.placement + found) for one in readings]


class Environments:
    """Makes the runners, each when it is first asked for."""

    def __init__(
        self, machines: FindMachines, pair: tuple[int, int], podman: FindPodman, xen: FindXen
    ) -> None:
        self._find, self._pair, self._podman, self._xen = machines, pair, podman, xen

    def hpcc(self, size: int, place: str, pages: str) -> Runner:
        """The HPC Challenge in a place."""
        check(pages)
        # The program first: machines need not boot for one that is missing.
        program, enclose = Hpcc(size), functools.partial(paged, pages)
        if place == XEN:
            return Job(OneDomain(self._xen(), CPUS, enclose), program)
        if place not in ACCELERATORS:
            return Job(OneKernel(self._pair, self._outer(place, enclose)), program)
        machines = self._machines(place, pages)
        return Backed(Job(OneMachine(machines, CPUS, enclose), program), machines)

    def openmp(self, place: str, pages: str) -> Runner:
        """The dwarfs by OpenMP in a place."""
        check(pages)
        enclose = functools.partial(paged, pages)
        if place == XEN:
            return InDomain(self._xen(), enclose)
        if place not in ACCELERATORS:
            return Threads(self._pair, self._outer(place, enclose))
        machines = self._machines(place, pages)
        return Backed(InMachines("openmp", machines, "threads", enclose), machines)

    def _outer(self, place: str, enclose: Enclose) -> Enclose:
        outer = list if place == NATIVE else self._podman().enclose
        return lambda argv: priority.heavy(outer(enclose(argv)))

    def _machines(self, place: str, pages: str) -> Machines:
        accel = ACCELERATORS[place]
        if accel == "kvm":
            # It says why better than a boot that fails.
            with qemu.started(accel):
                pass
        before = (str(paths.programs() / "pages"), "small") if pages == SMALL else ()
        return self._find(1, CPUS, Kind(accel, before, f"-{accel}-{KINDS[pages]}"))


def runners(
    machines: FindMachines, pair: tuple[int, int], podman: FindPodman, xen: FindXen
) -> dict[str, Callable[[], Runner]]:
    """How each program in each place is made."""
    found: dict[str, Callable[[], Runner]] = {}
    make = Environments(machines, pair, podman, xen)
    for place, pages in ((place, one) for place, kinds in PLACES.items() for one in kinds):
        for size in PROBLEMS.values():
            one = functools.partial(make.hpcc, size, place, pages)
            found[named(hpcc(size), place, pages)] = one
        found[named(OPENMP, place, pages)] = functools.partial(make.openmp, place, pages)
    return found
