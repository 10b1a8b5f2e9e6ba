"""Contenders of the suite mpi: each gets what its user would have, and all wait alike."""

from __future__ import annotations

from pathlib import Path

from vshmem_lab.runners import mpi
from vshmem_lab.runners.table import Runners
from vshmem_lab.suites import mpi as suite

FOUR = [case for case in suite.CASES if case.environment == "4 ranks"]


class Fake:
    """Machines that only say what they are asked for."""

    def __init__(self, count: int) -> None:
        self.names = [f"vm{i}" for i in range(count)]
        self.asked: tuple[str, ...] = ()

    def do(self, *words: str, what: str, within: float) -> str:
        """Nothing is done."""
        self.asked = words
        return ""


class Program:
    """A program of any MPI."""

    mpi, limit = "openmpi", 1.0


def settings(place: str) -> dict[str, str]:
    """The variables that a place gives ranks."""
    made: dict[tuple, Fake] = {}

    def machines(count: int, cpus: int, kind: object = None) -> Fake:
        return made.setdefault((count, cpus, kind), Fake(count))

    found = mpi.four_ranks(machines, (0, 1), lambda: {"VSHMEM_POOL": "x"})[f"4 ranks, {place}"]()
    found.said(Program, ["true"])
    ((fake),) = made.values()
    words = list(fake.asked)
    pairs = (words[at + 1] for at, word in enumerate(words) if word == "--env")
    return dict(pair.split("=", 1) for pair in pairs)


def test_all_places_wait_alike() -> None:
    for waiting, wanted in mpi.WAITS.items():
        for place in ("one machine", *suite.SPLIT):
            for more in ("", ", pinned"):
                found = settings(f"{place}{more}, {waiting}")
                assert found.items() >= wanted.items(), place


def test_over_tcp_ranks_of_one_machine_share_its_memory() -> None:
    for place in suite.SPLIT:
        transports = settings(f"{place}, ranks spin").get("UCX_TLS", "")
        assert ("posix" in transports.split(",")) == place.startswith("TCP")
        # By the pool of all machines it would be no TCP.
        assert "sysv" not in transports


def test_each_place_has_a_native_row_and_each_way_of_waiting() -> None:
    case = next(one for one in FOUR if one.name == "LAMMPS, granularity")
    names = {one.name for one in case.contenders}
    for waiting in mpi.WAITS:
        assert {f"one kernel, {waiting}", f"one machine, {waiting}"} < names
        assert {f"{place}, {waiting}" for place in suite.SPLIT} < names
    # What a launcher does alone waits as it likes: it stands beside, and is not compared.
    alone = {one.name for one in case.contenders if one.bar}
    assert alone == {"one kernel, mpiexec alone", "one machine, mpiexec alone"}


def test_all_contenders_have_a_runner() -> None:
    known = Runners((0, 1), 1, 0.1, Path("none")).names()
    assert {one.runner for case in suite.CASES for one in case.contenders} <= known
