"""Rings and hears doorbells without a driver.

In a machine, as root, by the registers of the ivshmem device: `id` prints the machine's number
and lets rings be seen, `ring N V` rings number N by vector V, `pending` prints the vectors by
which this machine was rung, a bit each. On the host, as one more peer of the pool: `join SOCKET V`
rings every machine by vector V, and prints their numbers.
"""

import ctypes
import glob
import mmap
import os
import socket
import sys


class Device:
    """The registers of QEMU's ivshmem-doorbell, and its MSI-X capability."""

    def __init__(self):
        devices = glob.glob("/sys/bus/pci/devices/*")
        self.path = next(d for d in devices if open(f"{d}/device").read().strip() == "0x1110")
        self.config = os.open(f"{self.path}/config", os.O_RDWR)
        self.registers = self.bar(0)
        self.msix = self.find_msix()

    def bar(self, number):
        fd = os.open(f"{self.path}/resource{number}", os.O_RDWR)
        return mmap.mmap(fd, os.fstat(fd).st_size)

    def read(self, at, length):
        return int.from_bytes(os.pread(self.config, length, at), "little")

    def write(self, at, length, value):
        os.pwrite(self.config, value.to_bytes(length, "little"), at)

    def find_msix(self):
        at = self.read(0x34, 1)
        while self.read(at, 1) != 0x11:
            at = self.read(at + 1, 1)
        return at

    def enable(self):
        """Interrupts on, but all vectors masked: what comes in stays pending."""
        self.write(4, 2, self.read(4, 2) | 6)
        self.write(self.msix + 2, 2, self.read(self.msix + 2, 2) | 0xC000)

    def number(self):
        return ctypes.c_uint32.from_buffer(self.registers, 8).value

    def ring(self, number, vector):
        ctypes.c_uint32.from_buffer(self.registers, 12).value = number << 16 | vector

    def pending(self):
        at = self.read(self.msix + 8, 4) & ~7
        return ctypes.c_uint32.from_buffer(self.bar(1), at).value


def join(path, vector):
    """Connects as a machine's QEMU does, and rings all others."""
    server = socket.socket(socket.AF_UNIX)
    server.settimeout(10)
    server.connect(path)

    def message():
        data, fds, _, _ = socket.recv_fds(server, 8, 1, socket.MSG_WAITALL)
        return int.from_bytes(data, "little", signed=True), fds

    assert message() == (0, []), "version"
    own, _ = message()
    assert message()[0] == -1, "memory"
    bells = {}
    while len(bells.get(own, [])) < 2:
        number, fds = message()
        bells.setdefault(number, []).extend(fds)
    others = sorted(set(bells) - {0, own})
    for number in others:
        os.eventfd_write(bells[number][vector], 1)
    print(*others)


def main():
    command, *arguments = sys.argv[1:]
    if command == "join":
        join(arguments[0], int(arguments[1]))
        return
    device = Device()
    if command == "id":
        device.enable()
        print(device.number())
    elif command == "ring":
        device.ring(int(arguments[0]), int(arguments[1]))
    else:
        print(device.pending())


main()
