"""The runners by name, each set up when the first turn needs it, and ended with the lab."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from vshmem_lab import builds
from vshmem_lab.model import Missing, Runner
from vshmem_lab.runners import (
    algebra,
    bigdata,
    channels,
    cores,
    dwarfs,
    environments,
    machines,
    mpi,
    onekernel,
    podman,
    programs,
    vsuite,
    xen,
    xen_domain,
    xen_host,
)

# Of the runners "at a rate": a round each 100 us, more than the kernel takes for one.
INTERVAL = 100_000


class Runners:
    """`with Runners(...) as r`: `r.find(name)` gives a runner; nothing is left of them after it."""

    def __init__(
        self,
        pair: tuple[int, int],
        repetitions: int,
        seconds: float,
        before: Path | None = None,
    ) -> None:
        self._pair, self._before = pair, before
        self._stack = ExitStack()
        self._pools: dict[str, dict[str, str]] = {}
        self._machines: dict[tuple[int, int, machines.Kind | None], machines.Machines] = {}
        self._containers: podman.Podman | None = None
        self._xen_host: xen_host.Xen | None = None
        self._files: programs.Files | None = None
        self._found: dict[str, Runner] = {}
        self._makers: dict[str, Callable[[], Runner]] = {
            "ipcbench": lambda: onekernel.Ipcbench({}, pair),
            "ipcbench as root": lambda: onekernel.Ipcbench({}, pair, as_root=True),
            "ipcbench, Vshmem": lambda: onekernel.Ipcbench(self._pool("vshmem"), pair),
            "ipcbench, Vshmem as root": lambda: onekernel.Ipcbench(
                self._pool("vshmem"), pair, True
            ),
            "ipcbench, Vshmem before": lambda: onekernel.Ipcbench(self._pool("before"), pair),
            "pair": lambda: onekernel.Pair({}, pair),
            "pair, Vshmem": lambda: onekernel.Pair(self._pool("vshmem"), pair),
            "pair at a rate": lambda: onekernel.Pair({}, pair, interval=INTERVAL),
            "pair at a rate, Vshmem": lambda: onekernel.Pair(
                self._pool("vshmem"), pair, interval=INTERVAL
            ),
            "channel, Vshmem": lambda: channels.Channels("channel", self._pool("vshmem"), pair),
            "channel, Vshmem before": lambda: channels.Channels(
                "channel", self._pool("before"), pair
            ),
            **{name: partial(channels.Channels, name, {}, pair) for name in channels.PROGRAMS},
            "containers": lambda: onekernel.Pair(self._enclosed(), pair, onekernel.container),
            "loopback": lambda: onekernel.Loopback(pair),
            "guests": lambda: machines.Guests(self.machines()),
            "ipcbench in a machine": lambda: machines.InOne(self.machines(), False),
            "ipcbench in a machine, Vshmem": lambda: machines.InOne(self.machines(), True),
            "host and guest": lambda: machines.HostAndGuest(self.machines()),
            "pair in a machine": lambda: machines.PairInOne(self.machines(1, 2)),
            "vsock between machines": machines.vsock,
            "network": lambda: machines.Network(self.machines()),
            "wakeup": lambda: machines.Wakeup(self.machines()),
            "program": lambda: programs.Programs(self._program_files(), {}),
            "program, Vshmem": lambda: programs.Programs(
                self._program_files(), self._pool("vshmem")
            ),
            "program, Vshmem before": lambda: programs.Programs(
                self._program_files(), self._pool("before")
            ),
            "Xen": lambda: xen.Domains(repetitions, seconds),
            **mpi.runners(self.machines, pair, lambda: self._pool("vshmem")),
            **environments.runners(self.machines, pair, self._podman, self._xen),
            **dwarfs.runners(self.machines, pair, lambda: self._pool("vshmem"), self._enclosed),
            **vsuite.runners(self.machines, pair),
            **bigdata.runners(self.machines),
            **cores.runners(lambda: self._pool("vshmem")),
            **algebra.runners(self.machines, pair, lambda: self._pool("vshmem"), self._enclosed),
        }

    def __enter__(self) -> Runners:
        return self

    def __exit__(self, *exc) -> None:
        self._stack.__exit__(*exc)

    def names(self) -> set[str]:
        """The runners that there are."""
        return set(self._makers)

    def find(self, name: str) -> Runner:
        """The runner of that name. Raises Missing if it can't be had here."""
        if name not in self._found:
            self._found[name] = self._makers[name]()
        return self._found[name]

    def machines(
        self, count: int = 2, cpus: int = 1, kind: machines.Kind | None = None
    ) -> machines.Machines:
        """So many machines with so many processors each, booted when they are first asked for."""
        shape = (count, cpus, kind)
        if shape not in self._machines:
            self._machines[shape] = self._stack.enter_context(machines.Machines(*shape))
        return self._machines[shape]

    def _podman(self) -> podman.Podman:
        if self._containers is None:
            self._containers = self._stack.enter_context(podman.Podman())
        return self._containers

    def _xen(self) -> xen_host.Xen:
        if self._xen_host is None:
            found = xen_host.Xen(xen_domain.files())
            self._xen_host = self._stack.enter_context(found)
        return self._xen_host

    def _program_files(self) -> programs.Files:
        if self._files is None:
            self._files = self._stack.enter_context(programs.Files())
        return self._files

    def _pool(self, which: str) -> dict[str, str]:
        """The environment of a build's programs: it has a pool of its own."""
        if which not in self._pools:
            if which == "before" and self._before is None:
                raise Missing("No earlier build was named (--before).")
            build = builds.earlier(self._before) if which == "before" else builds.current()
            pool = builds.Pool(f"lab-{os.getpid()}-{which}", build)
            self._pools[which] = self._stack.enter_context(pool).environment()
        return self._pools[which]

    def _enclosed(self) -> dict[str, str]:
        if os.geteuid() != 0:
            raise Missing("Only root makes name spaces as a container has them.")
        return self._pool("vshmem")
