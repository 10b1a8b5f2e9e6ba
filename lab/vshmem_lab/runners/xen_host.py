"""A host of Xen inside QEMU, without KVM: programs run in its dom0, or in a domain of it.

tests/xen/run.sh boots it. Commands go in by QEMU's second serial line, which is a socket here:
tests/xen/bench/hypervisors.sh, in dom0, reads them and says what came of each.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from vshmem_lab import priority
from vshmem_lab.model import Failed
from vshmem_lab.process import named
from vshmem_lab.runners import xen_script

# Packages are downloaded, and an emulated dom0 boots; on a busy computer it is started anew.
UP_LIMIT = 1200
# An emulated domain boots and answers slowly. What it printed comes by XenStore, in pieces.
PATIENCE = 600
READY = b"ready\n"
# A script whose lab is killed ends its machine, and removes its files.
TIED = ("setpriv", "--pdeathsig", "TERM")


class Xen:
    """`with Xen(files) as x`: it boots at once, its domain with the first program there.

    The domain has the files that are named, in the same places. Where Xen or the domain has died,
    its turn fails, and both are booted again before the next one.
    """

    def __init__(self, files: Sequence[str] = ()) -> None:
        self._files = files
        self._stack = ExitStack()
        self._process: subprocess.Popen | None = None
        self._line: BinaryIO | None = None
        self._socket: socket.socket | None = None

    def __enter__(self) -> Xen:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vshmem-lab-"))
            self._folder = Path(folder)
            stack.callback(self._end)
            self._boot()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc) -> None:
        self._stack.close()

    def dom0(self, argv: Sequence[str], within: float) -> str:
        """What a program printed in dom0. Raises Failed if it failed, or took longer."""
        return self._asked("dom0", argv, within)

    def domain(self, argv: Sequence[str], within: float) -> str:
        """What a program printed in the domain. Raises Failed if it failed, or took longer."""
        return self._asked("domain", argv, within)

    def _boot(self) -> None:
        script = xen_script.script()
        (self._folder / "files").write_text("".join(f"{file}\n" for file in self._files))
        at = str(self._folder / "serial")
        settings = {"XEN_SERIAL": at, "XEN_FILES": str(self._folder / "files"), "XEN_LIMIT": "0"}
        with (
            socket.socket(socket.AF_UNIX) as listener,
            (self._folder / "log").open("w") as log,
        ):
            listener.bind(at)
            listener.listen()
            self._process = subprocess.Popen(
                [*(TIED if shutil.which(TIED[0]) else ()), str(script), "hypervisors"],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            priority.make_heavy(self._process.pid)
            self._await(listener)

    def _await(self, listener: socket.socket) -> None:
        """Waits until dom0 listens. The script may start a QEMU anew, which connects again."""
        deadline = time.monotonic() + UP_LIMIT
        listener.settimeout(0.2)
        while time.monotonic() < deadline:
            self._check()
            try:
                self._socket = listener.accept()[0]
            except TimeoutError:
                continue
            self._line = self._socket.makefile("rwb")
            self._socket.settimeout(max(1, deadline - time.monotonic()))
            try:
                if self._line.readline() == READY:
                    return
            except OSError:
                break
            self._hang_up()
        raise Failed(f"Xen did not boot within {UP_LIMIT} s:\n{self._said()}")

    def _check(self) -> None:
        """Raises Missing or Failed, with what the script said, if it has ended."""
        status = self._process.poll()
        if status is None:
            return
        xen_script.check(status, self._said())
        raise Failed(f"The machine with Xen ended with status {status}:\n{self._said()}")

    def _asked(self, where: str, argv: Sequence[str], within: float) -> str:
        if self._line is None:
            print("The machine with Xen died; it is booted again.", file=sys.stderr)
            self._boot()
        what = f"{named(argv)} in {'dom0' if where == 'dom0' else 'a domain of Xen'}"
        text = base64.b64encode(shlex.join(argv).encode()).decode()
        try:
            self._socket.settimeout(within + PATIENCE)
            self._line.write(f"{where} {within:.0f} {text}\n".encode())
            self._line.flush()
            status, size = map(int, self._line.readline().split())
            said = self._line.read(size)
        except (OSError, ValueError) as error:
            self._end()
            late = isinstance(error, TimeoutError)
            how = f"did not end within {within:g} s" if late else "was cut off: Xen has died"
            raise Failed(f"{what} {how}:\n{self._said()}") from None
        found = said.decode(errors="replace")
        if status != 0:
            raise Failed(f"{what} failed with status {status}: {found.strip()[-2000:]}")
        return found

    def _said(self) -> str:
        """The end of what the script has printed."""
        return "\n".join((self._folder / "log").read_text(errors="replace").splitlines()[-20:])

    def _hang_up(self) -> None:
        for end in (self._line, self._socket):
            if end is not None:
                end.close()
        self._line = self._socket = None

    def _end(self) -> None:
        self._hang_up()
        if self._process is not None:
            xen_script.end(self._process)
        (self._folder / "serial").unlink(missing_ok=True)
