#!/usr/bin/env python3
"""The demo: two virtual machines that share one pool, and programs that know nothing of it.

Stock perl sends on a System V queue to stock Python in the other machine; a ping-pong written for
<sys/shm.h>, <sys/sem.h> and <sys/msg.h> measures how long a message takes between the machines, and
inside one kernel. Prints a table, saves it as CSV and SVG, and leaves nothing running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import sides
import system
from latency import KERNEL, MACHINES, SIZES, VSHMEM, Latencies
from machines import Machines
from pong import local_pingpong
from sides import OUT, ROOT, Failed

SECONDS = 0.4  # each measurement
SYSTEM_V = ["bare", "8", "semaphore", "8"] + [
    word for method in ("segment", "queue") for size in SIZES for word in (method, str(size))
]
NETWORK = [word for protocol in ("tcp", "udp") for size in SIZES for word in (protocol, str(size))]
QUEUE_KEY = "0x5653484d"
LINES = ["Hello from one kernel.", "This queue lives in memory that both machines map."]


class Progress:
    """Says what happens, with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def step(self, text: str) -> None:
        """A line of progress."""
        print(f"[{time.monotonic() - self._began:4.0f} s] {text}", flush=True)


def stock(program: str) -> str:
    """The system's own program, which the machines have too."""
    path = f"/usr/bin/{program}"
    if not os.access(path, os.X_OK):
        raise Failed(f"{path} is not there. Run: scripts/prepare.sh --install demo")
    return path


def show(said: str) -> None:
    """Output of a program, indented."""
    for line in said.splitlines():
        print(f"         {line}", flush=True)


def perl_to_python(machines: Machines) -> None:
    """One stock program in each machine, over one queue."""
    sender, receiver = machines.names
    scripts = ROOT / "bench" / "demo"
    receive = [stock("python3"), str(scripts / "receive.py"), QUEUE_KEY]
    send = [stock("perl"), str(scripts / "send.pl"), QUEUE_KEY, *LINES]
    both = ["--vm", sender, "--", *send, ":", "--vm", receiver, "--", *receive]
    said = machines.finish(machines.start("run", *both), "perl and python in the two machines")
    show(said)
    missing = [line for line in LINES if line not in said]
    if missing:
        raise Failed(f"Python did not receive {missing[0]!r}.")


def between_machines(progress: Progress, latencies: Latencies) -> None:
    """Everything that needs the machines."""
    progress.step("booting two virtual machines that share one pool: vshmem up -n 2")
    with Machines() as machines:
        progress.step(f"they are up ({machines.booted_in:.1f} s)")
        progress.step("perl in one machine sends on a System V queue to python in the other")
        perl_to_python(machines)
        progress.step("C ping-pong over System V segments, semaphores and queues")
        latencies.add(MACHINES, machines.pingpong(SECONDS, SYSTEM_V))
        progress.step("the same payloads by TCP and UDP over the network between the machines")
        latencies.add(MACHINES, machines.netpong(SECONDS, NETWORK))
        progress.step("turning the machines off")


def inside_one_kernel(progress: Progress, latencies: Latencies) -> None:
    """The same ping-pong by two processes of this kernel."""
    progress.step("the same program on this kernel alone, its calls taken by Vshmem")
    with sides.Pool(f"demo-{os.getpid()}", sides.current()) as pool:
        pool.check_interposed()
        latencies.add(VSHMEM, local_pingpong(SECONDS, SYSTEM_V, pool.environment()))
    progress.step("the same program on this kernel's own System V")
    latencies.add(KERNEL, local_pingpong(SECONDS, SYSTEM_V, {}))


def plot() -> None:
    """Draws with the first Python that has matplotlib."""
    for python in (sys.executable, "/usr/bin/python3"):
        probe = subprocess.run([python, "-c", "import matplotlib"], capture_output=True)
        if probe.returncode == 0:
            program = str(ROOT / "bench" / "plot.py")
            files = [str(OUT / "demo.csv"), str(OUT / "demo.svg")]
            sides.run([python, program, *files])
            return
    raise Failed("matplotlib is not there, so no plot. Run: scripts/prepare.sh --install demo")


def main() -> int:
    """Runs all steps; 1 if one failed, with what to do about it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    progress, latencies = Progress(), Latencies()
    try:
        progress.step("compiling the C programs (nothing of Vshmem is included or linked)")
        sides.build_programs()
        between_machines(progress, latencies)
        inside_one_kernel(progress, latencies)
        latencies.write_csv(OUT / "demo.csv")
        text = f"{system.heading()}\n\n{latencies.table()}\n"
        (OUT / "demo.txt").write_text(text)
        plot()
    except Failed as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: ended by ctrl-C; the machines are off", file=sys.stderr)
        return 130
    print(f"\n{text}\nsaved in {OUT.relative_to(ROOT)}: demo.txt, demo.csv, demo.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
