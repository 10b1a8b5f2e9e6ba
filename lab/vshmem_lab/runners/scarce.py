"""Places where a program may have only so much memory, and the rest of it is swapped."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from vshmem_lab import paths
from vshmem_lab.model import Failed, Missing, Reading
from vshmem_lab.process import run
from vshmem_lab.runners.job import Program
from vshmem_lab.runners.machines import Machines

SCRIPT = paths.LAB / "src" / "algebra" / "scarce.sh"
# MiB of the swap that a machine gets, in its own memory: the system's disk is left alone.
SWAP, LARGE_SWAP = 96, 512
BUILD = paths.ROOT / "kmod" / "build.sh"
FETCHING = 300


class Limitable(Protocol):
    """A place that runs a program behind other words, which hold for all that it starts at once."""

    def said(self, program: Program, argv: Sequence[str], before: Sequence[str]) -> str:
        """What a job printed there."""

    def seated(self, reading: Reading) -> Reading:
        """The reading with where its processes sat."""


class Scarce:
    """A place, with so many bytes of memory for a program's processes together."""

    def __init__(self, place: Limitable, limit: int) -> None:
        self._place, self._limit = place, limit

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""
        try:
            return self._place.said(program, argv, (str(SCRIPT), str(self._limit)))
        except Failed as failure:
            _, found, why = str(failure).partition(paths.MISSING)
            if not found:
                raise
            raise Missing(f"Memory can't be made scarce here: {why}.") from None

    def seated(self, reading: Reading) -> Reading:
        """The reading with where its processes sat."""
        return self._place.seated(reading)


def swap_in(machines: Machines, size: int = SWAP, *, whole: bool = False) -> None:
    """Gives the machines a disk in their memory (the module brd) to swap to, of so many MiB.

    Its memory is taken when it is written to; if it is to be `whole`, at once. Then the machine has
    so much less for all else, swapped or not.
    """
    first = machines.names[0]
    release = machines.do("exec", first, "--", "uname", "-r", what="uname in a machine").strip()
    module = paths.programs() / "brd.ko"
    module.write_bytes(_module(release, "brd"))
    steps = (
        f"insmod {module} rd_nr=1 rd_size={size * 1024}",
        *([f"dd if=/dev/zero of=/dev/ram0 bs=1M count={size} 2>/dev/null"] if whole else []),
        "mkswap /dev/ram0 >/dev/null",
        "swapon /dev/ram0",
    )
    script = f"grep -q /dev/ram0 /proc/swaps || {{ {' && '.join(steps)}; }}"
    for vm in machines.names:
        machines.do("exec", "-u", "root", vm, "--", "sh", "-c", script, what="swapon in a machine")


def _module(release: str, name: str) -> bytes:
    """A module of the machines' kernel: it lies here, or comes with that kernel's package."""
    folder = Path("/lib/modules") / release
    if not folder.is_dir():
        if not BUILD.exists():
            raise Missing(f"The module {name} of {release} is not here, nor what fetches it.")
        image = Path(run([str(BUILD), "--image", release], limit=FETCHING).strip())
        folder = image.parent.parent / "lib" / "modules" / release
    found = sorted(folder.glob(f"kernel/**/{name}.ko*"))
    if not found:
        raise Missing(f"The machines' kernel {release} has no module {name} to swap to.")
    text = found[0].read_bytes()
    return lzma.decompress(text) if found[0].suffix == ".xz" else text
