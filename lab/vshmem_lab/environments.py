"""The environments of the suite `hypervisors`, and the names of their runners."""

from __future__ import annotations

SMALL, HUGE, RESERVED = "small pages", "huge pages", "reserved huge pages"
NATIVE, CONTAINER, KVM, TCG = "native", "container", "QEMU/KVM", "QEMU/TCG"
XEN = "Xen"  # in QEMU/TCG
EMULATED = (TCG, XEN)
# By which pages programs, and the memory of machines, are measured there.
PLACES = {
    NATIVE: (SMALL, HUGE, RESERVED),
    CONTAINER: (SMALL, HUGE),
    KVM: (SMALL, HUGE),
    TCG: (SMALL, HUGE),
    # A paravirtual domain has no others.
    XEN: (SMALL,),
}
# Rows of HPL's matrix. Small problems end in an emulated machine, too.
SMALL_PROBLEMS = "small problems"
PROBLEMS = {SMALL_PROBLEMS: 400, "large problems": 1000}
OPENMP = "OpenMP"


def named(program: str, place: str, pages: str) -> str:
    """A runner's name."""
    return f"{program} in {place}, {pages}"


def hpcc(size: int) -> str:
    """The HPC Challenge with so many rows of HPL's matrix."""
    return f"HPCC {size}"
