"""What this QEMU says of itself by QMP, with an accelerator under a machine that is not started."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from vshmem_lab.features import words
from vshmem_lab.features.words import Column, listed
from vshmem_lab.model import Missing

PROGRAM = "qemu-system-x86_64"
# Accelerator: the processor that offers the most under it.
PROCESSORS = {"kvm": "host,host-phys-bits=on", "tcg": "max,phys-bits=52"}
WIDEST = 52  # bits that an address may have
MEMFD = "memory-backend-memfd"
SHARED = ("ivshmem-plain", "ivshmem-doorbell", "virtio-pmem-pci", "nvdimm", "vhost-user-fs-pci")
# As in Linux' kvm.h.
KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS = 0xAE03, 66


class Qmp:
    """A QEMU that answers QMP by its standard output."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def ask(self, command: str, **arguments: object) -> object:
        """What a command returns. Raises Missing if QEMU has ended, KeyError if it refuses."""
        line = json.dumps({"execute": command, "arguments": arguments})
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        for said in self._process.stdout:
            answer = json.loads(said)
            if "return" in answer or "error" in answer:
                return answer["return"]
        lines = self._process.stderr.read().strip().splitlines()
        said = lines[0].removeprefix(f"{PROGRAM}: ") if lines else "it said nothing"
        raise Missing(f"QEMU runs no machine: {said}")


def _line(accel: str, *more: str) -> list[str]:
    options = f"-machine q35 -accel {accel} -cpu {PROCESSORS[accel]} -S -display none -nodefaults"
    return [PROGRAM, *options.split(), "-qmp", "stdio", *more]


@contextlib.contextmanager
def started(accel: str, *more: str) -> Iterator[Qmp]:
    """A QEMU under an accelerator; it has ended when the block has."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            _line(accel, *more), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
    except FileNotFoundError:
        raise Missing(f"{PROGRAM} is not installed.") from None
    qmp = Qmp(process)
    try:
        qmp.ask("qmp_capabilities")
        yield qmp
    finally:
        process.kill()
        process.communicate()


def column(accel: str) -> Column:
    """QEMU under kvm or tcg."""
    if accel == "kvm" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise Missing("There is no /dev/kvm that this user may use.")
    with started(accel) as qmp:
        return _said(qmp, accel)


def _said(qmp: Qmp, accel: str) -> Column:
    types = {one["name"] for one in qmp.ask("qom-list-types")}
    commands = {one["name"] for one in qmp.ask("query-commands")}
    can = {one["capability"] for one in qmp.ask("query-migrate-capabilities")}
    machines = {one.get("alias", one["name"]): one for one in qmp.ask("query-machines")}
    version = qmp.ask("query-version")["qemu"]
    most = "host" if accel == "kvm" else "max"
    model = qmp.ask("query-cpu-model-expansion", type="full", model={"name": most})
    return {
        words.VERSION: "{major}.{minor}.{micro}".format(**version),
        words.MEANS: "by the processor" if accel == "kvm" else "by translation",
        words.GUESTS: _architectures(accel, qmp),
        words.CPUS: _processors(machines["q35"]["cpu-max"], accel),
        words.MEMORY: words.binary(memory(accel)),
        words.MODELS: str(len(qmp.ask("query-cpu-definitions"))),
        words.PASSTHROUGH: f"vfio-pci; {words.iommu()}" if "vfio-pci" in types else "no",
        words.HUGE: _pages(qmp),
        words.NUMA: _numa(qmp),
        words.SHARED: listed([name for name in SHARED if name in types]),
        words.MIGRATION: _migration(commands, can),
        words.SNAPSHOTS: _snapshots(commands, can),
        words.CLOCK: _has(model["model"]["props"], "kvmclock", "hv-time"),
        words.NESTED: _has(model["model"]["props"], "vmx", "svm"),
        words.GRAPHICS: listed([one for one in ("virtio-gpu-gl-pci",) if one in types]),
    }


def _architectures(accel: str, qmp: Qmp) -> str:
    if accel == "kvm":
        return qmp.ask("query-target")["arch"]
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = {file.name for folder in folders for file in Path(folder).glob("qemu-system-*")}
    return listed(sorted(name.removeprefix("qemu-system-") for name in found))


def _processors(most: int, accel: str) -> str:
    if accel == "kvm":
        with open("/dev/kvm", "rb") as kvm:
            most = min(most, fcntl.ioctl(kvm, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS))
    return str(most)


def memory(accel: str) -> int:
    """The largest power of two that a machine takes as the limit of what can be plugged in."""
    for bits in range(WIDEST, 29, -1):
        try:
            with started(accel, "-m", f"size=128M,slots=1,maxmem={1 << bits}B") as qmp:
                qmp.ask("query-status")
                return 1 << bits
        except Missing:
            continue
    raise Missing("No limit of memory is taken.")


def _pages(qmp: Qmp) -> str:
    properties = {one["name"] for one in qmp.ask("qom-list-properties", typename=MEMFD)}
    return f"{'memfd' if 'hugetlb' in properties else 'no'}; {words.reserved()}"


def _numa(qmp: Qmp) -> str:
    options = {one["option"] for one in qmp.ask("query-command-line-options")}
    properties = {one["name"] for one in qmp.ask("qom-list-properties", typename=MEMFD)}
    found = ["virtual nodes"] * ("numa" in options) + ["bound to the host's"] * (
        "host-nodes" in properties
    )
    return listed(found)


def _migration(commands: set[str], can: set[str]) -> str:
    kinds = (
        ("pre-copy", "migrate" in commands),
        ("post-copy", "postcopy-ram" in can),
        ("by several connections", "multifd" in can),
    )
    return listed([name for name, there in kinds if there])


def _snapshots(commands: set[str], can: set[str]) -> str:
    kinds = (
        ("of all", "snapshot-save" in commands),
        ("of disks", "blockdev-snapshot-sync" in commands),
        ("in the background", "background-snapshot" in can),
    )
    return listed([name for name, there in kinds if there])


def _has(properties: dict, *names: str) -> str:
    return listed([name for name in names if properties.get(name) is True])
