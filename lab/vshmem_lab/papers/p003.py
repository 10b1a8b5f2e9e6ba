"""Paper 003: PARSEC on one socket and two, and NPB by the size of machines."""

from __future__ import annotations

from vshmem_lab.papers.model import Need, Paper, Rerun, Row, Value, faster, lacking, numbered

CORES = (
    "It takes KVM or Xen on a real host with eight cores, and PARSEC's inputs; the machine has two."
)
CLUSTER = (Need.KVM, Need.CORES, Need.HOSTS)
SOCKETS = (
    "It takes a host with two sockets. docs/balance.md has a model of it, fitted on 1 and 4 vCPUs."
)


def lammps(name: str) -> Value:
    """Four ranks of LAMMPS."""
    return Value(name, "mpi", "LAMMPS, granularity", "4 ranks", name)


PLACES = ("one machine", "Vshmem, two machines", "Vshmem, four machines")
# Of runs in which ranks waited alike, and of the earlier one in which they did not.
ONE, TWO, FOUR = (lammps(f"{place}, ranks sleep") for place in PLACES)
EARLIER = tuple(lammps(place) for place in (*PLACES, "TCP, two machines", "TCP, four machines"))
BY_TCP = tuple(lammps(f"TCP, {count} machines, ranks sleep") for count in ("two", "four"))
NATIVE = lammps("one kernel, ranks sleep")
WHY = (
    "Four ranks of LAMMPS on one host of two cores stand for sixteen of NPB class C on two of "
    "eight: there is no second node. Machines are emulated. In the kept run ranks of one machine "
    "spin, and others sleep, so it is not judged; since 2026-11-29 the suite has all wait alike."
)


def granularity(item: str, subject: str, found: str) -> Row:
    """NPB by the size of machines."""
    return Row(
        item,
        subject,
        found,
        Rerun("mpi", "granularity"),
        (NATIVE, ONE, TWO, FOUR, *BY_TCP, *EARLIER),
        (faster(ONE, TWO), faster(TWO, FOUR)),
        why=WHY,
        wants=CLUSTER,
    )


ROWS = (
    *(
        lacking(item, subject, found, CORES, Need.KVM, Need.CORES)
        for item, subject, found in (
            ("figure 1", "PARSEC on one socket, not pinned", "+2, +2, +4 % by 1, 4, 8 vCPUs"),
            ("figure 2", "the same, pinned", "as figure 1"),
        )
    ),
    *(
        lacking(item, subject, found, SOCKETS, Need.KVM, Need.NODES)
        for item, subject, found in (
            ("figure 3", "on two sockets, not pinned", "+12, +16, +37 %"),
            ("figure 4", "the same, pinned", "+8, +9, +40 %"),
            ("figure 5", "4 vCPUs on the far and on the near socket", "about +16, +9 %"),
            ("figure 6", "NUMA-first, 8 vCPUs", "+37 % becomes +18 %"),
        )
    ),
    granularity(
        "figure 7",
        "NPB by 16 ranks on two hosts, machines of 8, 4, 2, 1 vCPUs, not pinned",
        "+11 % in the largest machines; smaller ones are worse",
    ),
    Row(
        "figure 8",
        "the same, pinned",
        "+11 %; pinning helps smaller machines",
        Rerun("mpi", "granularity, pinned"),
        missing="The suite `mpi` has it since 2026-11-29; a quiet machine has not measured it yet.",
        wants=CLUSTER,
    ),
)
PAPER = Paper("003", numbered("figure", 8), ROWS)
