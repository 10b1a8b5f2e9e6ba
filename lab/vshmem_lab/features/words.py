"""The rows of the table of features, and what all columns say of the host."""

from __future__ import annotations

from pathlib import Path

VERSION = "version"
MEANS = "virtualization"
GUESTS = "guests' processors"
CPUS = "virtual processors at most"
MEMORY = "memory at most"
MODELS = "models of processors"
PASSTHROUGH = "passthrough of devices"
HUGE = "huge pages"
NUMA = "NUMA"
SHARED = "shared memory"
MIGRATION = "live migration"
SNAPSHOTS = "snapshots"
CLOCK = "paravirtual clock"
NESTED = "nested virtualization"
GRAPHICS = "3D acceleration"
ROWS = (
    *(VERSION, MEANS, GUESTS, CPUS, MEMORY, MODELS, PASSTHROUGH, HUGE, NUMA, SHARED),
    *(MIGRATION, SNAPSHOTS, CLOCK, NESTED, GRAPHICS),
)
MISSING = "missing"

# What a hypervisor or runtime says of itself, by row; or MISSING alone, and why.
Column = dict[str, str]


def listed(words: list[str], none: str = "no") -> str:
    """Words with commas between them."""
    return ", ".join(words) if words else none


def binary(size: int) -> str:
    """A number of bytes in the largest unit that goes into it."""
    for shift, unit in ((50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB")):
        if size >> shift:
            return f"{size / (1 << shift):.3g} {unit}"
    return f"{size >> 10} KiB"


def iommu() -> str:
    """Whether this host can give devices away."""
    groups = Path("/sys/kernel/iommu_groups")
    count = len(list(groups.iterdir())) if groups.is_dir() else 0
    return f"{count} IOMMU groups here" if count else "no IOMMU here"


def reserved() -> str:
    """The huge pages that this host has set aside, by their size."""
    found = []
    for folder in sorted(Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")):
        size = int(folder.name.removeprefix("hugepages-").removesuffix("kB")) << 10
        count = (folder / "nr_hugepages").read_text().strip()
        found.append(f"{count} of {binary(size)}")
    return f"reserved here: {listed(found, 'none')}"


def transparent() -> str:
    """The kernel's mode of transparent huge pages: always, madvise or never."""
    try:
        modes = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "never"
    return modes.partition("[")[2].partition("]")[0]
