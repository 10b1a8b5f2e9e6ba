"""Paper 002: hypervisors compared, GPUs and InfiniBand passed through, huge pages."""

from __future__ import annotations

from vshmem_lab.papers.model import Need, Paper, Rerun, Row, Value, drawing, lacking

SUITE = "hypervisors"
GPU = "No GPU is at hand."
BOTH = "Neither a GPU nor InfiniBand is at hand, nor a second node."
CLUSTER = (Need.GPU, Need.INFINIBAND, Need.HOSTS)
PAGES = "huge pages"
WHY = (
    "In the place of KVM, Xen and VirtualBox on eight real cores: QEMU by emulation, a "
    "container, and "
    "a domain of an emulated Xen. Rows of emulated machines are compared with no others."
)


def ranked(item: str, subject: str, found: str, case: str, environment: str) -> Row:
    """A figure of chapter 3."""
    places = (f"native, {PAGES}", f"container, {PAGES}")
    if environment != "large problems":
        places += (f"QEMU/TCG, {PAGES}",)
    values = tuple(Value(x.partition(",")[0], SUITE, case, environment, x) for x in places)
    rerun, wants = Rerun(SUITE, case, repetitions=20), (Need.KVM,)
    return Row(item, subject, found, rerun, values, why=WHY, wants=wants)


def openmp(name: str) -> Value:
    """A line of OpenMP's, for SPEC's."""
    return Value(name.partition(",")[0], SUITE, "OpenMP: matrix by matrix", "2 threads", name, 100)


ROWS = (
    drawing("figure 1.1", "the framework"),
    drawing("figure 1.2", "the architecture of virtual clusters"),
    drawing("figure 2.1", "the layers of a cloud"),
    drawing("figure 2.2", "what a virtual machine is"),
    drawing("figure 2.3", "a picture that stands for another"),
    drawing("figure 2.4", "FutureGrid"),
    drawing("table 2.1", "FutureGrid's hardware"),
    lacking(
        "figure 3.1",
        "features of Xen, KVM, VirtualBox and ESX",
        "Xen: 128 processors, 4 TB; KVM: 16, 4 TB",
        "No time is measured. `vshmem lab features` prints the table of today's hypervisors here; "
        "the kept report of `hypervisors` ends with it.",
    ),
    drawing("figure 3.2", "FutureGrid"),
    ranked(
        "figure 3.3",
        "Linpack",
        "native 73.5 Gflop/s, Xen 49.1, KVM 51.8, VirtualBox 51.3",
        "HPL",
        "large problems",
    ),
    ranked("figure 3.4", "FFT", "KVM near native, Xen behind", "FFT, one rank", "large problems"),
    ranked(
        "figure 3.5",
        "ping-pong bandwidth",
        "Xen and KVM near native, VirtualBox varies",
        "ping-pong bandwidth",
        "small problems",
    ),
    ranked(
        "figure 3.6",
        "ping-pong latency",
        "KVM and VirtualBox near native, Xen far behind",
        "ping-pong latency",
        "small problems",
    ),
    Row(
        "figure 3.7",
        "SPEC OMP2001",
        "KVM almost native, then VirtualBox, Xen",
        Rerun(SUITE, "OpenMP", repetitions=20),
        tuple(openmp(f"{x}, {PAGES}") for x in ("native", "container", "QEMU/TCG")),
        why=f"SPEC's is not free: our dwarfs by OpenMP. {WHY}",
        wants=(Need.KVM,),
    ),
    Row(
        "figure 3.8",
        "ranks of all",
        "KVM best, then VirtualBox, Xen",
        Rerun(SUITE, repetitions=20),
        missing="A rank of what is emulated says nothing of the paper's; the report of "
        "`hypervisors` ranks what is not: native, and a container.",
        needs=(Need.KVM,),
    ),
    drawing("figure 4.1", "a GPU passed through by Xen"),
    *(
        lacking(f"figure 4.{n}", f"SHOC: {what}", found, GPU, Need.GPU)
        for n, what, found in (
            (2, "floating point", "below 1 % less in Xen"),
            (3, "FFT", "below 1 % less with Kepler"),
            (4, "matrix multiplication", "below 1 % less with Kepler"),
            (5, "stencil and S3D", "near native"),
            (6, "memory of the device", "no difference"),
            (7, "molecular dynamics and reduction", "near native"),
            (8, "PCI Express", "Fermi 14.6 and 26.7 % less, Kepler near native"),
        )
    ),
    drawing("table 5.1", "the hosts"),
    drawing("table 5.2", "the hypervisors' versions"),
    lacking(
        "table 5.3",
        "SHOC in KVM, Xen, LXC, ESXi",
        "0.92 to 1.04 of native, on average",
        GPU,
        Need.GPU,
    ),
    *(
        lacking(f"figure 5.{n}", what, "96 to 100 % of native with KVM", GPU, Need.GPU)
        for n, what in (
            (1, "SHOC, levels 0 and 1, Kepler"),
            (2, "SHOC, levels 1 and 2, Kepler"),
            (3, "SHOC, levels 0 and 1, Fermi"),
            (4, "SHOC, levels 1 and 2, Fermi"),
            (5, "GPU-LIBSVM, Kepler"),
            (6, "GPU-LIBSVM, Fermi"),
            (7, "LAMMPS, Kepler"),
            (8, "LAMMPS, Fermi"),
            (9, "LULESH"),
        )
    ),
    drawing("figure 6.1", "GPUs and InfiniBand passed through"),
    lacking("figure 6.2", "LAMMPS, LJ, 4 nodes", "98.5 % of native", BOTH, *CLUSTER),
    lacking("figure 6.3", "LAMMPS, Rhodopsin, 4 nodes", "96.4 % of native", BOTH, *CLUSTER),
    lacking(
        "figure 6.4", "HOOMD, 4 nodes, by GPUDirect and without", "98.5, 98.4 %", BOTH, *CLUSTER
    ),
    Row(
        "figure 7.1",
        "libSVM on a GPU with huge pages",
        "a machine with huge pages is faster than its host without",
        Rerun(SUITE, "RandomAccess, each rank", repetitions=20),
        tuple(
            Value(x, SUITE, "RandomAccess, each rank", "small problems", x)
            for x in ("native, small pages", "QEMU/TCG, small pages", "QEMU/TCG, huge pages")
        ),
        why="No GPU and no KVM: RandomAccess, which misses the TLB, in an emulated machine, whose "
        "translations are no hardware's.",
        wants=(Need.KVM, Need.GPU),
    ),
)
ITEMS = (
    *(f"figure 1.{n}" for n in (1, 2)),
    *(f"figure 2.{n}" for n in range(1, 5)),
    "table 2.1",
    *(f"figure 3.{n}" for n in range(1, 9)),
    *(f"figure 4.{n}" for n in range(1, 9)),
    *(f"table 5.{n}" for n in (1, 2, 3)),
    *(f"figure 5.{n}" for n in range(1, 10)),
    *(f"figure 6.{n}" for n in range(1, 5)),
    "figure 7.1",
)
PAPER = Paper("002", ITEMS, ROWS)
