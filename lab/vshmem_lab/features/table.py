"""The table of features: what is installed here is asked; what can't be had says why."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vshmem_lab.features import containers, libvirt, qemu, words, xen
from vshmem_lab.features.words import Column
from vshmem_lab.model import Failed

COLUMNS: dict[str, Callable[[], Column]] = {
    "QEMU/KVM": partial(qemu.column, "kvm"),
    "QEMU/TCG": partial(qemu.column, "tcg"),
    "Xen": xen.column,
    "libvirt": libvirt.column,
    "containers": containers.column,
}


def probe(boot_xen: bool = False) -> dict[str, Column]:
    """The columns, by what they are of. Xen is booted for it, where this is no host of it."""
    asked = COLUMNS | ({"Xen": xen.booted} if boot_xen else {})
    return {name: _asked(ask) for name, ask in asked.items()}


def _asked(ask: Callable[[], Column]) -> Column:
    try:
        return ask()
    except Failed as failure:
        return {words.MISSING: str(failure).strip().splitlines()[0]}
