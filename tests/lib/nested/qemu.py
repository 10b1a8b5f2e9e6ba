#!/usr/bin/python3
"""A machine's QEMU, with more than `vshmem up` gives one: whatever of these HARDWARE names.

nodes        two memory nodes, the second one without processors
iommu        an IOMMU that interrupts go through, too
nvme         an NVMe drive, and another one with two virtual functions
igb          a network card with seven virtual functions, and nothing outside that it leads to
gigantic=N   N pages of 1 GiB, which its kernel reserves as it boots

Disks are memory of this process, which becomes QEMU: its sandbox has no files.
"""

import os
import sys

QEMU = "@QEMU@"
HARDWARE = "@HARDWARE@"
DISK = 64 << 20


def port(name, number, more=""):
    its = f"id={name},bus=pcie.0,chassis={number},slot={number}{more}"
    return ["-device", f"pcie-root-port,{its}"]


def disk(name):
    file = os.memfd_create(name, 0)
    os.ftruncate(file, DISK)
    drive = f"file=/proc/self/fd/{file},format=raw,file.locking=off,if=none,id={name}"
    return ["-drive", drive]


def nodes(words, _):
    half = int(words[words.index("-m") + 1].removeprefix("size=").removesuffix("k")) // 2
    for number, (name, cpus) in enumerate((("near", ",cpus=0-1"), ("far", ""))):
        words += ["-object", f"memory-backend-ram,id={name},size={half}k"]
        words += ["-numa", f"node,nodeid={number}{cpus},memdev={name}"]
    words += ["-numa", "dist,src=0,dst=1,val=21", "-numa", "dist,src=1,dst=0,val=21"]


def iommu(words, _):
    place = words.index("-machine") + 2
    # Before the devices that it is for. Addresses of 48 bits: machines have their pools high up.
    words[place:place] = ["-device", "intel-iommu,intremap=on,aw-bits=48"]
    words[words.index("-append") + 1] += " intel_iommu=on"


def nvme(words, _):
    words += port("one", 201) + disk("plain")
    words += ["-device", "nvme,bus=one,serial=plain,drive=plain"]
    words += port("two", 202) + ["-device", "nvme-subsys,id=both"] + disk("shared")
    virtual = "sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2"
    words += ["-device", f"nvme,bus=two,serial=shared,subsys=both,id=shared-nvme,{virtual}"]
    words += ["-device", "nvme-ns,bus=shared-nvme,drive=shared,nsid=1,shared=on"]


def igb(words, _):
    # QEMU 10.0 takes the lower half of a virtual function's address for all of it. So it must be
    # below 4 GiB: there is room kept for it, and no other port takes so much that the firmware
    # moves all of them up.
    words += port("three", 203, ",pref32-reserve=1M") + ["-device", "igb,bus=three,romfile="]


def gigantic(words, count):
    words[words.index("-append") + 1] += f" hugepagesz=1G hugepages={count}"


def main():
    words = sys.argv[1:]
    # Else it is asked what it can do.
    if "-append" in words:
        for part in HARDWARE.split():
            name, _, value = part.partition("=")
            {it.__name__: it for it in (nodes, iommu, nvme, igb, gigantic)}[name](words, value)
    os.execv(QEMU, ["qemu-system-x86_64", *words])


main()
