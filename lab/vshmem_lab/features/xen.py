"""What Xen says of itself: `xl info`, and the commands that xl has, in dom0.

Where this is no host of Xen, one can be booted for it, in QEMU.
"""

from __future__ import annotations

import re

from vshmem_lab.features import words
from vshmem_lab.features.words import Column, listed
from vshmem_lab.model import Failed, Missing
from vshmem_lab.process import run
from vshmem_lab.runners.xen_host import Xen

INFO = re.compile(r"^(\w+) +: (.*)$", re.MULTILINE)
COMMAND = re.compile(r"^ ([a-z][a-z0-9-]+) ", re.MULTILINE)
MIB = 1 << 20
INFORM, HELP = ["xl", "info"], ["xl", "help"]
LIMIT = 60
OTHERWISE = "`vshmem lab features --boot-xen` boots one in QEMU."


def column() -> Column:
    """Of this host, if it is a dom0."""
    try:
        return said(run(INFORM), run(HELP))
    except Missing:
        raise Missing(f"xl is not installed: this is no host of Xen. {OTHERWISE}") from None
    except Failed as failure:
        raise Missing(f"This is no dom0: {failure}") from None


def booted() -> Column:
    """Of a host of Xen in QEMU, whose processor and memory are emulated."""
    with Xen() as xen:
        found = said(xen.dom0(INFORM, LIMIT), xen.dom0(HELP, LIMIT))
    return found | {words.VERSION: f"{found[words.VERSION]}, in QEMU/TCG"}


def said(info: str, commands: str) -> Column:
    """What xl says of Xen."""
    found = dict(INFO.findall(info))
    known = set(COMMAND.findall(commands))
    means = found.get("virt_caps", "").split()
    guests = sorted({one.rsplit("-", 1)[-1] for one in found.get("xen_caps", "").split()})
    return {
        words.VERSION: found.get("xen_version", ""),
        words.MEANS: listed(means),
        words.GUESTS: listed(guests),
        words.CPUS: found.get("most_vcpus", ""),
        words.MEMORY: f"{words.binary(int(found['total_memory']) * MIB)} here",
        words.PASSTHROUGH: _of(known, "pci-attach", "usbdev-attach")
        + ("" if "hvm_directio" in means else "; no IOMMU here"),
        words.HUGE: "by nested paging (hap)" if "hap" in means else "no",
        words.NUMA: f"nodes here: {found.get('nr_nodes', '?')}",
        words.SHARED: listed([one for one in means if one.startswith("gnttab")]),
        words.MIGRATION: _of(known, "migrate"),
        words.SNAPSHOTS: _of(known, "save", "restore"),
    }


def _of(known: set[str], *wanted: str) -> str:
    names = [name for name in wanted if name in known]
    return f"xl {listed(names)}" if names else "no"
