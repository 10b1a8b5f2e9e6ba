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


def probe() -> dict[str, Column]:
    """The columns, by what they are of."""
    return {name: _asked(ask) for name, ask in COLUMNS.items()}


def _asked(ask: Callable[[], Column]) -> Column:
    try:
        return ask()
    except Failed as failure:
        return {words.MISSING: str(failure).strip().splitlines()[0]}
