"""Turns between two virtual machines, and between one and the host."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vshmem_lab import paths, priority
from vshmem_lab.builds import current, vshmem
from vshmem_lab.model import Failed, Missing, Reading, Runner, Turn
from vshmem_lab.process import finish, started
from vshmem_lab.runners import lines
from vshmem_lab.runners.onekernel import limit, pingpong, plan

UP_LIMIT = 300
MEMORY = 512  # MiB for each of a machine's processors
# Programs start slowly in an emulated machine.
PATIENCE = 120


@dataclasses.dataclass(frozen=True)
class Kind:
    """How machines are run: by which accelerator, behind which words they are started, and more."""

    accel: str = "auto"
    before: tuple[str, ...] = ()
    suffix: str = ""  # of the cluster's name
    memory: int = 0  # MiB of each; 0: by the number of its processors
    shares: tuple[str, ...] = ()  # folders of the host that they see as well
    pinned: bool = False  # processors are bound to cores in turn, though they are more than those


class Machines:
    """`with Machines() as m`: machines that share a pool; nothing is left of them after it.

    Where one has died, that is said, its turn fails, and before the next one all are booted again.
    """

    def __init__(self, count: int = 2, cpus: int = 1, kind: Kind | None = None) -> None:
        self.names = tuple(f"vm{i}" for i in range(count))
        self._cpus, self._kind = cpus, kind or Kind()
        # A cluster of our own: the user's machines, if there are any, are not meant.
        self.cluster = f"lab-{os.getpid()}-{count}x{cpus}{self._kind.suffix}"
        self.cores: list[list[int]] = []
        self.booted_in = 0.0

    def __enter__(self) -> Machines:
        self._boot()
        return self

    def _boot(self) -> None:
        began = time.monotonic()
        try:
            named = ("--cluster", self.cluster)
            # Whatever directory we are called in.
            folders = {paths.LAB, paths.programs(), *paths.environment(), *self._kind.shares}
            shared = [w for folder in folders for w in ("--share", str(folder))]
            size = ("-n", str(len(self.names)), "--cpus", str(self._cpus))
            memory = ("--memory", f"{self._kind.memory or MEMORY * self._cpus}M")
            words = (*size, *memory, *named, *shared, "--accel", self._kind.accel)
            vshmem("up", *words, limit=UP_LIMIT, before=self._kind.before)
        except subprocess.TimeoutExpired:
            self.__exit__()
            raise Missing(
                f"The machines did not boot within {UP_LIMIT} s. Try: vshmem up --timeout 600"
            ) from None
        except Failed as failure:
            raise Missing(str(failure)) from None
        self.booted_in = time.monotonic() - began
        for pid in self.pids():
            priority.make_heavy(pid)
        self._pin()

    def _boot_again(self) -> None:
        """Boots them anew if one of them has died."""
        machines = self.state()["machines"]
        dead = [machine["name"] for machine in machines if machine["state"] != "running"]
        if dead:
            print(f"{' and '.join(dead)} died; the machines are booted again.", file=sys.stderr)
            self.__exit__()
            self._boot()

    def _pin(self) -> None:
        """Pins virtual processors that `vshmem up` has left, since other machines of ours have any.

        Only machines of one shape are at work at a time.
        """
        machines, usable = self.state()["machines"], sorted(os.sched_getaffinity(0))
        self.cores = [machine["cores"] or [] for machine in machines]
        crowded = len(machines) * self._cpus > len(usable)
        if any(self.cores) or (crowded and not self._kind.pinned):
            return
        for index, machine in enumerate(machines):
            first = index * self._cpus
            share = [usable[at % len(usable)] for at in range(first, first + self._cpus)]
            for thread, core in zip(busiest(machine["pid"], self._cpus), share, strict=True):
                os.sched_setaffinity(thread, {core})
            self.cores[index] = share

    def __exit__(self, *_exc) -> None:
        vshmem("down", "--cluster", self.cluster, limit=60)

    def state(self) -> dict:
        """What `vshmem ps` says of our cluster."""
        clusters = json.loads(vshmem("ps", "--json"))["clusters"]
        for cluster in clusters:
            if cluster["name"] == self.cluster:
                return cluster
        raise Failed(f"The machines of {self.cluster} are gone.")

    def pids(self) -> list[int]:
        """Of the machines' QEMUs."""
        return [machine["pid"] for machine in self.state()["machines"]]

    @contextlib.contextmanager
    def real_time(self) -> Iterator[None]:
        """For machines whose processors mostly sleep."""
        pids = self.pids()
        for pid in pids:
            priority.make_real_time(pid)
        try:
            yield
        finally:
            for pid in pids:
                priority.make_usual(pid)

    def start(self, action: str, *arguments: str) -> contextlib.AbstractContextManager:
        """Starts `vshmem ACTION` on our machines, beside us."""
        variables = {"VSHMEM_CLUSTER": self.cluster}
        self._boot_again()
        return started([str(paths.command()), action, *arguments], variables)

    def do(self, action: str, *arguments: str, what: str, within: float = PATIENCE) -> str:
        """Runs `vshmem ACTION` on our machines; its output."""
        with self.start(action, *arguments) as process:
            return finish(process, what, within)

    def where(self, readings: Sequence[Reading], host: int | None = None) -> list[Reading]:
        """The readings, with where the machines sit, or the first and a process of the host."""
        state = self.state()
        cores = [",".join(map(str, share)) for share in self.cores]
        seats = cores if host is None else [cores[0], str(host)]
        told = "machines" if len(cores) > 1 else "a machine"
        told = told if host is None else "a machine and the host"
        placement = (
            f"{told} on cores {' and '.join(seats)}" if all(seats) else f"{told}, not pinned"
        )
        accelerator = state["accel"]
        replace = dataclasses.replace
        return [replace(one, placement=placement, accelerator=accelerator) for one in readings]


def busiest(pid: int, count: int) -> list[int]:
    """The threads of a QEMU that has booted which are its virtual processors, in their order."""
    used = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        fields = Path(f"/proc/{pid}/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()
        used[int(thread)] = int(fields[11]) + int(fields[12])  # ticks in user and kernel mode
    return sorted(sorted(used, key=used.__getitem__)[-count:])


class Guests:
    """pingpong in both machines."""

    most = 64

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """All turns, by one pair."""
        what = "pingpong in the two machines"
        within = PATIENCE + limit(turns, seconds)
        argv = ["--", *pingpong(turns, seconds)]
        said = self._machines.do("run", *argv, what=what, within=within)
        return self._machines.where(lines.assigned(said, turns, what))


class InOne:
    """ipcbench in the first machine, by its kernel's System V or by ours."""

    most = 1

    def __init__(self, machines: Machines, ours: bool) -> None:
        self._machines = machines
        first = machines.names[0]
        self._action = ("run", "--no-prefix", "--vm", first) if ours else ("exec", first)

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The reading of the turn's line."""
        (turn,) = turns
        argv = [str(paths.programs() / "ipcbench"), "-t", str(seconds), *turn.contender.words]
        said = self._machines.do(*self._action, "--", *argv, what="ipcbench in a machine")
        return self._machines.where([lines.values(said)[turn.contender.line]])


class HostAndGuest:
    """pingpong in the first machine and on the host."""

    most = 64

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """All turns, by one pair."""
        what = "pingpong in a machine and on the host"
        within = PATIENCE + limit(turns, seconds)
        state = self._machines.state()
        # The second machine idles, so its core is free.
        core = (self._machines.cores[1] or [sorted(os.sched_getaffinity(0))[-1]])[0]
        variables = {"LD_PRELOAD": str(current().library), "VSHMEM_POOL": state["pool"]}
        argv = pingpong(turns, seconds)
        here = priority.heavy(["taskset", "-c", str(core), *argv])
        there = ["--vm", self._machines.names[0], "--", *argv]
        with self._machines.start("run", *there) as guest, started(here, variables) as host:
            said = finish(guest, what, within) + finish(host, what, within)
        return self._machines.where(lines.assigned(said, turns, what), host=core)


class PairInOne:
    """Both processes in one machine with a processor for each, by its kernel's System V."""

    most = 64

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """All turns, by one pair."""
        what = "two processes in one machine"
        within = PATIENCE + limit(turns, seconds)
        both = 'taskset -c 0 "$@" & taskset -c 1 "$@" & wait'
        argv = ["--", "sh", "-c", both, "sh", *pingpong(turns, seconds)]
        said = self._machines.do("exec", self._machines.names[0], *argv, what=what, within=within)
        return self._machines.where(lines.assigned(said, turns, what))


class Network:
    """netpong over the network between the machines."""

    most = 64

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """All turns, by one connection each."""
        what = "netpong in the two machines"
        program = str(paths.programs() / "netpong")
        first, second = self._machines.names
        client = [program, "-c", first, "-t", str(seconds), *plan(turns)]
        with self._machines.start("exec", first, "--", program, "-l") as listener:
            within = PATIENCE + limit(turns, seconds)
            said = self._machines.do("exec", second, "--", *client, what=what, within=within)
            finish(listener, "netpong's answering side", PATIENCE)
        return self._machines.where(lines.assigned(said, turns, what))


def vsock() -> Runner:
    """Machines would need a device that the host's kernel, or a daemon of vhost-user, serves."""
    here = "" if Path("/dev/vhost-vsock").exists() else ", this kernel has no vhost-vsock either"
    raise Missing(
        f"`vshmem up` gives machines no vsock device{here}; a daemon of vhost-user would have to "
        "map their memory, which is not shared."
    )


class Wakeup:
    """Two processes that sleep, in two machines that wake each other."""

    most = 64
    LONGER = 10  # a turn takes so much longer: a wake-up takes a hundred times as long as a message

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The methods in turn, within one program, as long as each is asked for."""
        state = self._machines.state()
        if not state["doorbell"] or state["driver"] is None:
            raise Missing("The machines have no doorbells, or not the driver vshmem.ko.")
        methods = list(dict.fromkeys(turn.contender.words[0] for turn in turns))
        key = f"{0x57000000 | os.getpid():#x}"
        program = str(paths.programs() / "wakeup")
        argv = [program, "-k", key, "-t", str(seconds * self.LONGER), "-n", "1", *methods]
        with self._machines.real_time():
            what = "wakeup in the two machines"
            said = self._machines.do("run", "--", *argv, what=what, within=PATIENCE * 2)
        found = {method: reading for method, _, reading in lines.pongs(said)}
        missing = [method for method in methods if method not in found]
        if missing:
            raise Failed(f"{what} did not print {missing[0]}: {said.strip()}")
        return self._machines.where([found[turn.contender.words[0]] for turn in turns])
