#!/usr/bin/env python3
"""Boots machines with ivshmem devices and tests vshmem.ko in them.

run.sh builds what it needs and runs it:

    run.py KERNEL INITRAMFS WORK-DIRECTORY [TEST...]

The machines run under QEMU's TCG, or with KMOD_KVM=1 on KVM. Each has room for two processors, else
TCG's locked instructions are not atomic between machines.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROUNDS = int(os.environ.get("KMOD_ROUNDS", "50000"))
SECONDS = int(os.environ.get("KMOD_SECONDS", "3"))
ACCEL = (
    ["-accel", "kvm", "-cpu", "host"]
    if os.environ.get("KMOD_KVM") == "1"
    else ["-accel", "tcg,thread=multi", "-cpu", "Nehalem"]
)
# Whether the kernel has lockdep and KASAN, which make it slow.
WATCHED = os.environ.get("KMOD_DEBUG") == "1"
VECTORS = 3
# What Debian's kernels can be told to look after: freed memory that is used, overflows, lists.
DEBUG = "slub_debug=FZPU page_poison=1 init_on_free=1 oops=panic"
SMALL = 16 << 20
LARGE = 4 << 30  # so large that its place is above 4 GiB, where the MTRRs say write-back
LIMIT_S = (900 if WATCHED else 300) + 3 * SECONDS

passed = []
failed = []


def note(good, what):
    """Counts and prints a check of this side."""
    (passed if good else failed).append(what)
    print(f"{'ok      ' if good else 'FAILED  '}{what}", flush=True)


class Machine:
    """A machine that runs one test and then ends."""

    def __init__(self, setup, name, test, device, memory_type, more="", processors=1):
        self.name = name
        self.monitor_path = setup.work / f"{name}.qmp"
        self.monitor = None
        append = f"console=ttyS0 quiet panic=-1 cryptomgr.notests no_timer_check test={test}"
        append += f" memory_type={memory_type} rounds={ROUNDS} seconds={SECONDS} {more}"
        append += " watched=1" if WATCHED else ""
        command = [
            "qemu-system-x86_64",
            "-machine",
            "pc",
            *ACCEL,
        ]
        command += [
            "-smp",
            f"cpus={processors},maxcpus=2",
            "-m",
            "256",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
        ]
        command += [
            "-no-reboot",
            "-serial",
            "stdio",
            "-qmp",
            f"unix:{self.monitor_path},server=on,wait=off",
        ]
        command += ["-kernel", setup.kernel, "-initrd", setup.initramfs, "-append", append, *device]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def lines(self):
        """What it prints, until it ends."""
        for line in self.process.stdout:
            yield line.rstrip()

    def finish(self, on_line=None):
        """Counts its checks until it ends; calls on_line for the other lines."""
        finished = False
        limit = threading.Timer(LIMIT_S, self.process.kill)
        limit.start()
        for line in self.lines():
            if line.startswith(("ok ", "FAILED ")):
                note(line.startswith("ok "), f"{self.name}: {line[8:]}")
            else:
                finished = finished or line == "finished"
                if on_line:
                    on_line(line)
                if re.search("^kernel: |WARNING|BUG|Oops|panic|RIP|segfault", line):
                    print(f"        {line}")
        limit.cancel()
        if not finished:
            note(False, f"{self.name}: the machine ended before its test")

    def qmp(self, command, **arguments):
        """Carries out a command of QEMU's monitor."""
        if self.monitor is None:
            self.monitor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.monitor.connect(str(self.monitor_path))
            self.answers = self.monitor.makefile()
            self.answers.readline()
            self.qmp("qmp_capabilities")
        self.monitor.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while True:
            answer = json.loads(self.answers.readline())
            if "return" in answer or "error" in answer:
                return answer


class Setup:
    """Where the machines' parts are."""

    def __init__(self, kernel, initramfs, work):
        self.kernel, self.initramfs, self.work = kernel, initramfs, Path(work)
        self.memory = Path("/dev/shm") / f"vshmem-kmod-test.{os.getpid()}"
        self.machines = []
        self.server = None

    def plain(self, size):
        """The options of a plain device."""
        self.memory.write_bytes(b"")
        os.truncate(self.memory, size)
        backend = f"memory-backend-file,id=pool,share=on,mem-path={self.memory},size={size}"
        return ["-object", backend, "-device", "ivshmem-plain,memdev=pool,id=dev"]

    def doorbell(self):
        """The options of a device with a doorbell; starts the server."""
        path = self.work / "server"
        command = [sys.executable, HERE / "server.py", path, self.memory, str(SMALL), str(VECTORS)]
        self.server = subprocess.Popen(command)
        until = time.monotonic() + 10
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.05)
        return [
            "-chardev",
            f"socket,id=server,path={path}",
            "-device",
            f"ivshmem-doorbell,chardev=server,vectors={VECTORS},id=dev",
        ]

    def start(self, *arguments):
        """Starts a machine."""
        self.machines.append(Machine(self, *arguments))
        return self.machines[-1]

    def clean(self):
        """Ends what is left and removes the memory."""
        for machine in self.machines:
            machine.process.kill()
            machine.process.wait()
        self.machines = []
        if self.server:
            self.server.kill()
            self.server.wait()
            self.server = None
        for path in [self.memory, *self.work.glob("*.qmp"), self.work / "server"]:
            path.unlink(missing_ok=True)


def test_plain(setup):
    """A large pool, above 4 GiB, without a doorbell."""
    setup.start("plain", "plain", setup.plain(LARGE), "write-back").finish()


def test_doorbell(setup):
    """A small pool, which the firmware puts where its MTRRs say uncached, with a doorbell."""
    setup.start("doorbell", "doorbell", setup.doorbell(), "uncached-minus").finish()


def test_pair(setup):
    """Two machines that wake each other."""
    device = setup.doorbell()
    first = setup.start("first", "pair", device, "uncached-minus")
    time.sleep(0.5)
    second = setup.start("second", "pair", device, "uncached-minus")
    first.finish()
    second.finish()


def test_storm(setup):
    """Everything at once, on two processors, while the kernel looks after its memory."""
    setup.start("storm", "storm", setup.doorbell(), "uncached-minus", DEBUG, 2).finish()


def test_unplug(setup):
    """The device is pulled out while it is in use."""
    machine = setup.start("unplug", "unplug", setup.plain(SMALL), "uncached-minus")

    def pull(line):
        if line == "unplug now":
            note(
                "return" in machine.qmp("device_del", id="dev"),
                "unplug: QEMU takes the device away",
            )

    machine.finish(pull)


def test_look(setup):
    """The page tables, seen from outside: mappings are write-back though the MTRRs say uncached."""
    machine = setup.start("look", "look", setup.plain(SMALL), "uncached-minus")

    def look(line):
        if line.startswith("look at "):
            entry = re.compile(rf"^0*{line.split()[-1]}: \S+ (\S+)", re.MULTILINE)
            answer = machine.qmp("human-monitor-command", **{"command-line": "info tlb"})
            found = entry.search(answer["return"].replace("\r", ""))
            flags = found.group(1) if found else "not found"
            note(
                found is not None and "C" not in flags and "T" not in flags,
                f"look: the page's flags are {flags}",
            )

    machine.finish(look)


TESTS = {
    "plain": test_plain,
    "doorbell": test_doorbell,
    "unplug": test_unplug,
    "look": test_look,
    "pair": test_pair,
    "storm": test_storm,
}


def main():
    """Runs the tests that were named, or all."""
    kernel, initramfs, work, *names = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("run.py: ended from outside"))
    if WATCHED:
        # QEMU would print KASAN's shadow of the whole address space, page by page.
        del TESTS["look"]
    for name in names or TESTS:
        print(f"== {name} ({Path(kernel).name})", flush=True)
        setup = Setup(kernel, initramfs, work)
        with contextlib.ExitStack() as stack:
            stack.callback(setup.clean)
            TESTS[name](setup)
    for what in failed:
        print(f"failed: {what}")
    print(f"{len(passed)} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
