"""Turns in a domain of Xen: the HPC Challenge by two ranks, and the dwarfs by OpenMP."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vshmem_lab import paths
from vshmem_lab.model import Missing, Reading
from vshmem_lab.runners.dwarfs import THREADS, Dwarf
from vshmem_lab.runners.mpi import AS_ROOT, launcher
from vshmem_lab.runners.mpi_programs import Hpcc, Program, found
from vshmem_lab.runners.onekernel import Enclose
from vshmem_lab.runners.xen_host import Xen

# Debian's packages of which a job needs more than the libraries that its programs name. Names of
# libraries have their versions, so they are patterns.
PACKAGES = {
    "openmpi": ("openmpi-bin", "openmpi-common", "libopenmpi[0-9]*", "libpmix[0-9]*"),
    "mpich": ("mpich", "libmpich12"),
}
# Open MPI's launcher looks for ssh even where all ranks are on this host. OpenBLAS takes the
# processor that QEMU shows Xen for an Opteron, whose 3DNow! it lacks; it has what a Nehalem has.
RANKS = {**AS_ROOT, "OMPI_MCA_plm_rsh_agent": "false", "OPENBLAS_CORETYPE": "Nehalem"}
# What is not run or loaded.
BESIDE = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/lintian/", "/usr/include/")


def files() -> list[str]:
    """What a domain needs of this host's: the programs, and what they don't name themselves.

    Without the HPC Challenge where that is not installed.
    """
    paths.build_programs("dwarfs-openmp")
    wanted = sorted(map(str, paths.programs().glob("*-openmp")))
    wanted.append(str(paths.programs() / "pages"))
    try:
        program = Hpcc()
    except Missing:
        return wanted
    return sorted({*wanted, *program.files, found(launcher(program.mpi)), *_installed(program.mpi)})


def _installed(mpi: str) -> list[str]:
    """The files of an MPI's packages."""
    state = "${binary:Package} ${db:Status-Status}\n"
    known = _dpkg_query("--show", "--showformat", state, *PACKAGES[mpi]).stdout.splitlines()
    names = [line.split()[0] for line in known if line.endswith(" installed")]
    if len(names) < len(PACKAGES[mpi]):
        raise Missing(f"The MPI in a domain is Debian's: install {', '.join(PACKAGES[mpi])}.")
    done = _dpkg_query("--listfiles", *names)
    listed = {line for line in done.stdout.splitlines() if not line.startswith(BESIDE)}
    return sorted(line for line in listed if Path(line).is_file())


def _dpkg_query(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["dpkg-query", *words], capture_output=True, text=True)
    except FileNotFoundError:
        raise Missing("Which files an MPI has, only Debian's dpkg says.") from None


def _line(variables: dict[str, str], argv: Sequence[str]) -> list[str]:
    return ["env", *("=".join(pair) for pair in variables.items()), *argv]


def _seated(reading: Reading) -> Reading:
    where = "a paravirtual domain of Xen in QEMU, not pinned"
    return dataclasses.replace(reading, placement=where, accelerator="tcg")


class OneDomain:
    """A rank on each processor of a domain, by the MPI's own shared memory."""

    def __init__(self, xen: Xen, ranks: int, enclose: Enclose = list) -> None:
        self._xen, self._ranks, self._enclose = xen, ranks, enclose

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""
        job = self._enclose([launcher(program.mpi), "-n", str(self._ranks), *argv])
        return self._xen.domain(_line(RANKS, job), program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        return _seated(reading)


class InDomain(Dwarf):
    """OpenMP, with a processor of a domain for each thread."""

    model = "openmp"

    def __init__(self, xen: Xen, enclose: Enclose = list) -> None:
        super().__init__()
        self._xen, self._enclose = xen, enclose

    def said(self, argv: list[str], count: int, within: float) -> str:
        """What the program printed."""
        return self._xen.domain(_line(THREADS, self._enclose(argv)), within)

    def seated(self, readings: Sequence[Reading], count: int) -> list[Reading]:
        """The readings with where the threads sat."""
        return [_seated(one) for one in readings]
