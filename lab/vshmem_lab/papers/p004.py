"""Paper 004: Vshmem itself, its Sync, and the dwarfs."""

from __future__ import annotations

import dataclasses

from vshmem_lab.papers.model import (
    Need,
    Paper,
    Rerun,
    Row,
    Value,
    alike,
    drawing,
    faster,
    numbered,
)
from vshmem_lab.suites import dwarfs, sync

NOT_YET = "The suite has it since 2026-11-29; a quiet machine has not measured it yet."


def synced(name: str, where: str, contender: str, size: int = 500) -> Value:
    """A line of Sync."""
    return Value(name, sync.SUITE, sync.CASE, where, contender, size)


SYSTEM_V = synced("System V", "native", "System V, bakery")
IN_ONE = synced("System V in one machine", "guest-guest", "System V in one machine, bakery")
VSHMEM = synced("Vshmem between machines", "guest-guest", "Vshmem, bakery")
NATIVELY = synced("Vshmem on one kernel", "native", "Vshmem, bakery")
TCP, UDP = (synced(word, "guest-guest", word) for word in ("TCP", "UDP"))


def models(case: str, size: int, place: str = "native") -> dict[str, Value]:
    """A dwarf by each model."""
    names = ("Vshmem", "System V", "OpenMP", "MPI")
    return {one: Value(one, dwarfs.SUITE, case, place, one, size) for one in names}


def dwarf(item: str, subject: str, found: str, case: str, small: int, large: int, why: str) -> Row:
    """A row of a dwarf in the paper's order."""
    little, much = models(case, small), models(case, large)
    values = tuple(little.values())
    claims = [alike(much["System V"], much["Vshmem"])]
    if "set-up" not in found:
        whole = {}
    else:  # which is in the paper's times
        whole = models(f"{case}, {dwarfs.TOGETHER}", small)
        claims += [faster(whole["System V"], whole["Vshmem"])]
    if "Laplace" in case:
        claims += [faster(little["OpenMP"], little["Vshmem"])]
    else:
        claims += [faster(little["Vshmem"], little["OpenMP"])]
    if "molecular" in case:
        values = values[:3]
    else:
        claims += [faster(little["OpenMP"], little["MPI"])]
    rerun = Rerun(dwarfs.SUITE, case, repetitions=50)
    named = (
        dataclasses.replace(whole[one], name=f"{one}, with set-up")
        for one in ("System V", "Vshmem")
        if one in whole
    )
    shown, wants = (*values, *named), (Need.KVM,)
    return Row(item, subject, found, rerun, shown, tuple(claims), why=why, wants=wants)


MPI_TODAY = (
    "The paper's MPI sends by sockets (MPICH's P4), today's by shared memory. OpenMP's threads "
    "meet "
    "in more steps than two processes that spin."
)
SET_UP = "Set-up is in the paper's times. Here it is timed apart, too; the run is without it."
ROWS = (
    drawing("figure 1", "a stack of software without machines, and one with"),
    drawing("figure 2", "the same, with Vshmem"),
    drawing("figure 3", "ways in which programs in machines talk"),
    Row(
        "figure 4",
        "a buffer there and back: System V on one kernel, sockets between machines",
        "System V 1.923 µs, TCP 117.66 µs, UDP 106.94 µs",
        Rerun(sync.SUITE, repetitions=10),
        (IN_ONE, TCP, UDP),
        (faster(IN_ONE, TCP), faster(IN_ONE, UDP)),
        missing=NOT_YET,
        wants=(Need.KVM,),
    ),
    drawing("figure 5", "the parts of Vshmem"),
    drawing("figure 6", "Sync in pseudo-code; `lab/src/busypong.c` does that"),
    Row(
        "figure 7",
        "Sync and Socket by the size of the buffer, 0 to 1,000 bytes",
        "Vshmem as System V; variances in µs²: System V 2.7, Vshmem 0.307, TCP 6.28, UDP 31.2",
        Rerun(sync.SUITE, repetitions=25),
        (SYSTEM_V, NATIVELY, IN_ONE, VSHMEM, TCP, UDP),
        (
            alike(SYSTEM_V, NATIVELY),
            alike(IN_ONE, VSHMEM),
            faster(VSHMEM, TCP),
            faster(VSHMEM, UDP),
        ),
        missing=NOT_YET,
        why="Whether variances differ is tested in the run. The paper gives Vshmem a standard "
        "deviation of 0.086 beside its variance of 0.307, which can't both be.",
        wants=(Need.KVM,),
    ),
    dwarf(
        "figure 8",
        "matrix by vector, and matrix by matrix",
        "System V and Vshmem first, OpenMP second, MPI last; gaps close",
        "matrix by matrix, double, 2 processes",
        10,
        200,
        MPI_TODAY,
    ),
    dwarf(
        "figure 9",
        "Laplace by Jacobi, 1,000 iterations, 50 runs",
        "OpenMP first (its reduction), then System V and Vshmem, MPI last",
        "Laplace by Jacobi, 1,000 iterations, 2 processes",
        10,
        200,
        MPI_TODAY,
    ),
    dwarf(
        "figure 10",
        "pi by Simpson's rule, 50 runs",
        "System V and Vshmem first, OpenMP, MPI; Vshmem behind System V at 10 intervals by its "
        "set-up",
        "pi by Simpson's rule, 2 processes",
        10,
        1_000_000,
        f"{MPI_TODAY} {SET_UP}",
    ),
    dwarf(
        "figure 11",
        "molecular dynamics, 1 to 50 particles, 2 and 3 dimensions, 100 steps",
        "System V first, Vshmem behind it up to 35 particles by its set-up, OpenMP last",
        "molecular dynamics, 3 dimensions, 100 steps, 2 processes",
        10,
        50,
        SET_UP,
    ),
    drawing("table I", "the programs"),
)
PAPER = Paper("004", (*numbered("figure", 11), "table I"), ROWS)
