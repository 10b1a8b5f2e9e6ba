"""A run as one file that can be sent in: an archive of its two files, and back."""

from __future__ import annotations

import tarfile
from pathlib import Path

from vshmem_lab import paths
from vshmem_lab.model import Failed
from vshmem_lab.store import ABOUT, SAMPLES

SUFFIX = ".tar.gz"
FILES = (ABOUT, SAMPLES)
# More than any run has: what is sent in may be anything.
MOST = 1 << 28


def pack(folder: Path) -> Path:
    """Writes the archive beside a run's folder; its path."""
    path = folder.with_name(folder.name + SUFFIX)
    partial = path.with_name(path.name + ".new")
    try:
        with tarfile.open(partial, "w:gz") as archive:
            for name in FILES:
                archive.add(folder / name, f"{folder.name}/{name}", filter=_nobodys)
        partial.replace(path)
    except OSError as error:
        raise Failed(f"{path} could not be written: {error.strerror}.") from None
    return path


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member that does not tell whose it was."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(file: Path) -> Path:
    """A run's folder among the others, made of an archive, or as an earlier call has made it."""
    folder = paths.runs() / file.name.removesuffix(SUFFIX)
    found = _files(file)
    if folder.exists():
        if any((folder / name).read_bytes() != text for name, text in found.items()):
            raise Failed(f"There is another run {folder.name} already. Rename {file.name}.")
        return folder
    folder.mkdir(parents=True)
    for name, text in found.items():
        (folder / name).write_bytes(text)
    return folder


def _files(file: Path) -> dict[str, bytes]:
    """The two files; nothing else of an archive is looked at, and no path of it is used."""
    found = {}
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                if name in FILES and member.isfile() and member.size <= MOST:
                    found[name] = archive.extractfile(member).read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Failed(f"{file.name} is no archive of a run: {error}.") from None
    if set(found) != set(FILES):
        raise Failed(f"{file.name} has not {' and '.join(FILES)}: it is no archive of a run.")
    return found
