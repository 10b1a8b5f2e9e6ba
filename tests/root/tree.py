"""A tree with everything that a file system can have."""

import os
import random
import socket
import stat
import struct
from pathlib import Path

CHANGED = ("changed", "replaced", "removed", "grown", "same", "open")


def write(path, text=b"", mode=0o644):
    """Makes a file."""
    path.write_bytes(text)
    path.chmod(mode)


def make_names(root, chance):
    """Directories of all sizes around those of blocks, and one of many."""
    for count in (0, 1, 2, 60, 61, 62, 63, 150, 151, 152, 400):
        directory = root / f"with {count}"
        directory.mkdir()
        for number in range(count):
            name = f"{number:x}-" + "".join(
                chance.choices("aZ .-~é\x01", k=chance.randrange(1, 60))
            )
            write(directory / name, str(number).encode())
    # Names whose entries, with those of . and .., fill a block to the last byte but one, to it,
    # and over it.
    for more in (-1, 0, 1):
        directory = root / f"block {more}"
        directory.mkdir()
        left = 4096 - 13 - 14
        while left > 12 + 255 + 13:
            write(directory / f"{left:0255d}")
            left -= 12 + 255
        write(directory / f"{0:0{left - 12 + more}d}")
    many = root / "find"
    many.mkdir()
    for number in range(20):
        directory = many / f"directory-{number}"
        directory.mkdir()
        for file in range(1000):
            write(directory / f"file-{file}")
    for name in ("n" * 255, "-first", "!before the dots", "+", ",", "~", "\\", "é" * 127, "a\nb"):
        write(root / name, name.encode())


def make_files(root):
    """Files of sizes around those of blocks, sparse and huge ones, links of all kinds."""
    for size in (1, 4095, 4096, 4097, 8192, 100_000, (1 << 20) + 1):
        write(root / f"size {size}", random.Random(size).randbytes(size))
    with (root / "large").open("wb") as file:
        for number in range(200):
            file.write(random.Random(number).randbytes(1 << 20))
    for size in (3 << 30, 10 << 40):
        with (root / f"sparse {size}").open("wb") as file:
            file.truncate(size)
            # Where the comparison looks, and elsewhere.
            for part in (0, 5, 63):
                file.seek(size // 4096 // 64 * part * 4096)
                file.write(b"data" * 2000)
            file.seek(size - 5)
            file.write(b"end")
    with (root / "hole").open("wb") as file:
        file.truncate(2 << 30)
    os.link(root / "size 1", root / "hard")
    (root / "in").mkdir()
    os.link(root / "size 1", root / "in" / "hard")
    for length in (1, 60, 3000, 4000, 4031, 4032, 4033, 4095):
        os.symlink("x" * length, root / f"link {length}")
    os.symlink("large", root / "link")
    os.link(root / "link", root / "hard link", follow_symlinks=False)
    os.mkfifo(root / "fifo")
    here = os.getcwd()
    os.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    os.chdir(here)
    deep = root
    for number in range(150):
        deep = deep / f"deep {number:015d}"
        deep.mkdir()
    write(deep / "at the bottom", b"deep")
    for name in CHANGED:
        write(root / name, name.encode() * (1_000_000 if name == "open" else 1000))


def make_meta(root):
    """Modes, owners, times and attributes."""
    for number, mode in enumerate((0o400, 0o4755, 0o2755, 0o1777, 0o7777, 0o604)):
        write(root / f"mode {number}", b"x", mode)
    for number, seconds in enumerate((-1, 0, 1 << 31, (1 << 33) + 5)):
        file = root / f"time {number}"
        write(file)
        os.utime(file, ns=(seconds * 10**9 + 123456789, seconds * 10**9 + 123456789))
    for count in (1, 40):
        file = root / f"attributes {count}"
        write(file)
        for number in range(count):
            os.setxattr(file, f"user.name-{number}", b"v" * (number * 2))
    for number in range(5):
        file = root / f"shared {number}"
        write(file)
        os.setxattr(file, "user.same", b"as others")
        os.setxattr(file, "user.long", b"l" * 1500)
    entry = struct.Struct("<HHI")
    everybody = 0xFFFFFFFF
    acl = struct.pack("<I", 2) + b"".join(
        entry.pack(*it)
        for it in (
            (1, 6, everybody),
            (2, 4, 12345),
            (4, 4, everybody),
            (16, 6, everybody),
            (32, 0, everybody),
        )
    )
    for number in range(3):
        file = root / f"acl {number}"
        write(file)
        os.setxattr(file, "system.posix_acl_access", acl)
    directory = root / "acl directory"
    directory.mkdir()
    os.setxattr(directory, "system.posix_acl_default", acl)
    if os.geteuid() != 0:
        return
    os.setxattr(root / "attributes 1", "trusted.name", b"\0binary\xff")
    write(root / "capable", b"#!", 0o755)
    os.setxattr(
        root / "capable", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
    )
    for number, owner in enumerate((1, 65534, 65536, 4_000_000_000)):
        write(root / f"owner {number}")
        os.chown(root / f"owner {number}", owner, owner + 1)
    for number, (kind, device) in enumerate(
        ((stat.S_IFCHR, (1, 3)), (stat.S_IFBLK, (259, 70_000)), (stat.S_IFCHR, (4000, 1_000_000)))
    ):
        os.mknod(root / f"device {number}", kind | 0o600, os.makedev(*device))


def make(root):
    """Makes it in an empty directory."""
    root = Path(root)
    make_names(root, random.Random(1))
    make_files(root)
    make_meta(root)
