"""What libvirt says of this host and of the domains that it can run.

A libvirt that runs is asked. Where none does, root has one of its own for the time: a daemon in a
mount namespace, with its folders on a tmpfs, so that no domain is seen or touched.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from vshmem_lab.features import words
from vshmem_lab.features.words import Column, listed
from vshmem_lab.model import Failed, Missing
from vshmem_lab.process import run

LIMIT = 120
LIVE = "host/migration_features/live"
ASK = """
virsh -c "$1" version >version
virsh -c "$1" capabilities >host.xml
for type in kvm qemu; do
    virsh -c "$1" domcapabilities --virttype $type >$type.xml 2>$type.error || rm -f $type.xml
done
"""
# It looks for a user that only the package makes that also starts the daemon.
DAEMON = """
for folder in /etc/libvirt /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do
    mkdir -p $folder
    mount -t tmpfs tmpfs $folder
done
for file in passwd group; do
    getent $file libvirt-qemu >/dev/null && continue
    cp /etc/$file $file
    echo libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin >>$file
    mount --bind $file /etc/$file
done
printf '%s\\n' 'user = "root"' 'group = "root"' 'security_driver = "none"' \
    'cgroup_controllers = []' 'namespaces = []' >/etc/libvirt/qemu.conf
libvirtd >log 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon || true' EXIT
tries=0
until virsh -q -c "$1" list >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] && kill -0 $daemon || { tail -n 1 log >&2; exit 1; }
    sleep 0.2
done
"""


def column() -> Column:
    """libvirt's own column."""
    with tempfile.TemporaryDirectory(prefix="vshmem-lab-") as folder:
        where = Path(folder)
        _ask(where)
        host = ElementTree.parse(where / "host.xml").getroot()
        domains = {
            kind: ElementTree.parse(where / f"{kind}.xml").getroot()
            for kind in ("kvm", "qemu")
            if (where / f"{kind}.xml").exists()
        }
        said = (where / "version").read_text()
    if not domains:
        raise Missing("libvirt has neither domains of QEMU/KVM nor of QEMU.")
    return _said(said, host, domains)


def _ask(where: Path) -> None:
    uri = "qemu:///system" if os.geteuid() == 0 else "qemu:///session"
    prepare = 'set -eu; cd "$2"\n'
    try:
        run(["sh", "-c", prepare + ASK, "sh", uri, str(where)], limit=LIMIT)
        return
    except Failed as failure:
        if "virsh" in str(failure) and "not found" in str(failure):
            raise Missing("virsh is not installed (libvirt-clients).") from None
        if os.geteuid() != 0:
            raise Missing(f"libvirt does not answer: {_last(failure)}") from None
    alone = ["unshare", "--mount", "--propagation", "private"]
    try:
        script = prepare + DAEMON + ASK
        run([*alone, "sh", "-c", script, "sh", uri, str(where)], limit=LIMIT)
    except Failed as failure:
        raise Missing(f"libvirt does not answer, nor one of its own: {_last(failure)}") from None


def _last(failure: Failed) -> str:
    return str(failure).strip().splitlines()[-1]


def _said(said: str, host: ElementTree.Element, domains: dict[str, ElementTree.Element]) -> Column:
    best = domains.get("kvm", domains.get("qemu"))
    used = best.findall(".//cpu/mode[@name='custom']/model[@usable='yes']")
    pages = [int(one.get("size")) << 10 for one in host.findall("host/cpu/pages")]
    backing = [one.text for one in best.findall("memoryBacking/enum[@name='sourceType']/value")]
    uris = [one.text for one in host.findall("host/migration_features/uri_transports/*")]
    features = host.find("guest/features")
    hyperv = [one.text for one in best.findall("features/hyperv/enum/value")]
    devices = [one.text for one in best.findall("devices/hostdev/enum[@name='subsysType']/value")]
    iommu = host.find("host/iommu")
    there = iommu is not None and iommu.get("support") == "yes"
    architectures = {one.get("name") for one in host.findall("guest/arch")}
    return {
        words.VERSION: said.split("libvirt", 1)[1].split()[0],
        words.MEANS: f"domains of type {listed(sorted(domains))}",
        words.GUESTS: listed(sorted(architectures)),
        words.CPUS: best.find("vcpu").get("max"),
        words.MODELS: str(len(used)),
        words.PASSTHROUGH: f"{listed(devices)}; {'an' if there else 'no'} IOMMU here",
        words.HUGE: f"the host's of {listed([words.binary(size) for size in pages])}",
        words.NUMA: f"nodes here: {len(host.findall('host/topology/cells/cell'))}",
        words.SHARED: f"memory backed by {listed(backing)}",
        words.MIGRATION: f"by {listed(uris)}" if host.find(LIVE) is not None else "no",
        words.SNAPSHOTS: listed([one.tag for one in features if "napshot" in one.tag]),
        words.CLOCK: f"of Hyper-V: {listed(hyperv)}" if "stimer" in hyperv else "",
        words.GRAPHICS: listed(
            [one.text for one in best.findall("devices/graphics/enum/value") if "egl" in one.text]
        ),
    }
