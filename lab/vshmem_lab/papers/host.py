"""What this host has of what the papers' rows need, each found out by a look or a try."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

from vshmem_lab import kvm
from vshmem_lab.papers.model import Need

ROOT = Path("/")
CORES = 8
DISPLAYS, GPUS = ("0x0300", "0x0302"), ("0x10de", "0x1002")  # classes; NVIDIA, AMD
# As in Linux' perf_event.h: loads of the data TLB that missed.
_HW_CACHE, _DTLB_LOAD_MISSES, _SIZE, _EXCLUDE_HV = 3, 3 | 1 << 16, 112, 1 << 6
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}


class Host:
    """A host; each question is asked once. An answer is empty, or says why it has not."""

    def __init__(self, asked: dict[Need, Callable[[], str]] | None = None) -> None:
        self._asked = PROBES if asked is None else asked
        self._told: dict[Need, str] = {}

    def lacks(self, need: Need) -> str:
        """Why the host has not what is needed; empty if it has."""
        if need not in self._told:
            self._told[need] = self._asked[need]()
        return self._told[need]


def cores() -> str:
    """Processors that this process may use."""
    found = len(os.sched_getaffinity(0))
    return "" if found >= CORES else f"there are {found} processors"


def nodes(root: Path = ROOT) -> str:
    """Memory nodes that have processors."""
    lists = (root / "sys/devices/system/node").glob("node[0-9]*/cpulist")
    found = sum(1 for one in lists if one.read_text().strip())
    return "" if found >= 2 else "there is one memory node"


def hosts() -> str:
    """A suite runs on one host only."""
    return "the lab measures on one host"


def counters() -> str:
    """Counting the misses of the data TLB by the processor has to begin."""
    number = _PERF_EVENT_OPEN.get(os.uname().machine)
    if number is None:
        return "there are no counters of misses that the lab knows"
    head = struct.pack("<IIQQQQQ", _HW_CACHE, _SIZE, _DTLB_LOAD_MISSES, 0, 0, 0, _EXCLUDE_HV)
    event = ctypes.create_string_buffer(head, _SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    opened = libc.syscall(number, event, 0, -1, ctypes.c_int(-1), ctypes.c_ulong(0))
    if opened < 0:
        return f"the processor's counters can't be had ({os.strerror(ctypes.get_errno())})"
    os.close(opened)
    return ""


def swap(root: Path = ROOT) -> str:
    """Something that this kernel swaps to."""
    lines = (root / "proc/swaps").read_text().splitlines()
    return "" if len(lines) > 1 else "this kernel has no swap"


def xen(root: Path = ROOT) -> str:
    """Whether this is a dom0."""
    path = root / "proc/xen/capabilities"
    told = path.read_text() if path.exists() else ""
    return "" if "control_d" in told else "this is no dom0 of Xen"


def gpu(root: Path = ROOT) -> str:
    """A display or 3D controller of a maker of GPUs for computing."""
    for device in (root / "sys/bus/pci/devices").glob("*"):
        kind, maker = ((device / name).read_text().strip() for name in ("class", "vendor"))
        if kind[:6] in DISPLAYS and maker in GPUS:
            return ""
    return "there is no GPU"


def infiniband(root: Path = ROOT) -> str:
    """A card that Linux has a driver for."""
    found = list((root / "sys/class/infiniband").glob("*"))
    return "" if found else "there is no InfiniBand"


PROBES: dict[Need, Callable[[], str]] = {
    Need.KVM: kvm.refused,
    Need.CORES: cores,
    Need.NODES: nodes,
    Need.HOSTS: hosts,
    Need.COUNTERS: counters,
    Need.SWAP: swap,
    Need.XEN: xen,
    Need.GPU: gpu,
    Need.INFINIBAND: infiniband,
}
