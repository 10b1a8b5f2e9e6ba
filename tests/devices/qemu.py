#!/usr/bin/python3
"""A machine's QEMU, with an IOMMU, an NVMe drive, and another one with two virtual functions.

The disks are memory of this process, which becomes QEMU: its sandbox has no files.
"""

import os
import sys

QEMU = "@QEMU@"
SIZE = 64 << 20


def port(name, number):
    return [
        "-device",
        f"pcie-root-port,id={name},bus=pcie.0,chassis={number},slot={number}",
    ]


def disk(name):
    file = os.memfd_create(name, 0)
    os.ftruncate(file, SIZE)
    drive = f"file=/proc/self/fd/{file},format=raw,file.locking=off,if=none,id={name}"
    return ["-drive", drive]


def main():
    words = sys.argv[1:]
    if "-append" in words:
        place = words.index("-machine") + 2
        # Addresses of 48 bits: machines have their pools high up.
        words[place:place] = ["-device", "intel-iommu,intremap=on,aw-bits=48"]
        words[words.index("-append") + 1] += " intel_iommu=on"
        words += port("one", 201) + disk("plain")
        words += ["-device", "nvme,bus=one,serial=plain,drive=plain"]
        words += port("two", 202) + ["-device", "nvme-subsys,id=both"] + disk("shared")
        virtual = "sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2"
        words += ["-device", f"nvme,bus=two,serial=shared,subsys=both,id=shared-nvme,{virtual}"]
        words += ["-device", "nvme-ns,bus=shared-nvme,drive=shared,nsid=1,shared=on"]
    os.execv(QEMU, ["qemu-system-x86_64", *words])


main()
