"""Two virtual machines for the time of a measurement, by way of the `vshmem` command."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator

import priority
from pong import Measurement, parse, pingpong_command, wakeup_command
from sides import OUT, ROOT, Failed, command, vshmem

UP_LIMIT = 300
RUN_LIMIT = 240


class Machines:
    """`with Machines() as m`: two machines that share a pool; nothing is left of them after it."""

    def __init__(self) -> None:
        self.names = ("vm0", "vm1")
        # A cluster of our own: the user's machines, if there are any, are not meant.
        self.cluster = f"bench-{os.getpid()}"
        self.booted_in = 0.0
        self._children: list[subprocess.Popen] = []

    def __enter__(self) -> Machines:
        began = time.monotonic()
        try:
            # Whatever directory we are called in.
            shared = ("--share", str(ROOT))
            vshmem("up", "-n", "2", "--cluster", self.cluster, *shared, limit=UP_LIMIT)
        except subprocess.TimeoutExpired:
            self.__exit__()
            raise Failed(
                f"The machines did not boot within {UP_LIMIT} s. Try: vshmem up --timeout 600"
            ) from None
        self.booted_in = time.monotonic() - began
        for pid in self._pids():
            priority.make_heavy(pid)
        return self

    def __exit__(self, *_exc) -> None:
        for process in self._children:
            if process.poll() is None:
                process.terminate()
            process.wait()
        vshmem("down", "--cluster", self.cluster, limit=60)

    def _ours(self) -> dict:
        """What `vshmem ps` says of our cluster."""
        clusters = json.loads(vshmem("ps", "--json"))["clusters"]
        return next(c for c in clusters if c["name"] == self.cluster)

    def _pids(self) -> list[int]:
        """Of the machines' QEMUs."""
        return [machine["pid"] for machine in self._ours()["machines"]]

    @contextlib.contextmanager
    def _real_time(self) -> Iterator[None]:
        """For machines whose processors mostly sleep."""
        pids = self._pids()
        for pid in pids:
            priority.make_real_time(pid)
        try:
            yield
        finally:
            for pid in pids:
                priority.make_usual(pid)

    def can_ring(self) -> bool:
        """Whether the machines have the driver, and doorbells."""
        ours = self._ours()
        return ours["doorbell"] and ours["driver"] is not None

    def start(self, action: str, *arguments: str) -> subprocess.Popen:
        """Starts `vshmem ACTION` on our machines, beside us; ended with them at the latest."""
        process = subprocess.Popen(
            [str(command()), action, *arguments],
            env={**os.environ, "VSHMEM_CLUSTER": self.cluster},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._children.append(process)
        return process

    def finish(self, process: subprocess.Popen, what: str) -> str:
        """Waits for a process that `start` started; its output."""
        try:
            said, _ = process.communicate(timeout=RUN_LIMIT)
        except subprocess.TimeoutExpired:
            process.terminate()
            said, _ = process.communicate()
            raise Failed(f"{what} did not end within {RUN_LIMIT} s. So far:\n{said}") from None
        if process.returncode != 0:
            raise Failed(f"{what} failed with status {process.returncode}: {said.strip()}")
        return said

    def pingpong(self, seconds: float, plan: list[str]) -> list[Measurement]:
        """One pingpong process in each machine, under the interposer."""
        argv = ["run", "--", *pingpong_command(seconds, plan)]
        return parse(self.finish(self.start(*argv), "pingpong in the two machines"))

    def wakeup(self, seconds: float, times: int) -> list[Measurement]:
        """One wakeup process in each machine, under the interposer; nothing without doorbells."""
        if not self.can_ring():
            return []
        argv = ["run", "--", *wakeup_command(seconds, times)]
        with self._real_time():
            return parse(self.finish(self.start(*argv), "wakeup in the two machines"))

    def netpong(self, seconds: float, plan: list[str]) -> list[Measurement]:
        """The same payloads by TCP and UDP over the network between the machines."""
        program = str(OUT / "netpong")
        listener = self.start("exec", self.names[0], "--", program, "-l")
        argv = [program, "-c", self.names[0], "-t", str(seconds), *plan]
        client = self.start("exec", self.names[1], "--", *argv)
        found = parse(self.finish(client, "netpong in the two machines"))
        self.finish(listener, "netpong's answering side")
        return found
