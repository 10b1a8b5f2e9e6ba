#!/usr/bin/env python3
"""Boots machines that have a tree of the host as their disk, and compares it with the host's.

run.sh builds what it needs and runs it:

    run.py KERNEL INITRAMFS MANIFEST WORK-DIRECTORY [TEST...]

VSHMEM is the command. Tests: compare, restart, changed, save, system; speed and 9p measure.
"""

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import tree

LIMIT_S = 600
# What a machine of `vshmem up` sees of the host, without what is shared.
SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr", "/usr/local")
ACCEL = (
    ["-accel", "kvm", "-cpu", "host"]
    if os.environ.get("ROOT_KVM") == "1"
    else ["-accel", "tcg", "-cpu", "Nehalem"]
)
passed, failed = [], []


def note(good, what):
    """Counts and prints a check."""
    (passed if good else failed).append(what)
    print(f"{'ok      ' if good else 'FAILED  '}{what}", flush=True)


class Server:
    """The server of a tree."""

    def __init__(self, directory, source, name="kept"):
        self.socket, self.log = directory / "root.sock", directory / "server.log"
        words = ["root", "serve", "--socket", self.socket, "--kept", directory / name]
        if source == "/":
            for part in filter(os.path.isdir, SYSTEM):
                words += ["--tree", part, part]
            words += ["--public", "/etc", "/etc"]
        else:
            words += ["--tree", source, "/"]
        self.words = [os.environ["VSHMEM"], *map(str, words)]
        self.process = None
        self.id, self.said = None, None

    def start(self):
        """Starts it, and waits until it serves."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=log)
        self.said = self.process.stdout.readline().decode().split()
        if len(self.said) != 4:
            raise SystemExit(f"the server does not begin: {self.log.read_text()}")
        self.id = self.said[0]
        return self

    def kill(self):
        """Kills it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


class Machine:
    """A machine that runs one test and then ends."""

    def __init__(self, setup, test, server, source):
        self.out, self.monitor = setup.work / f"{test}.out", setup.work / f"{test}.monitor"
        self.out.write_bytes(b"")
        os.truncate(self.out, 64 << 20)
        disk = (
            f"driver=nbd,node-name=root,read-only=on,server.type=unix,server.path={server.socket}"
        )
        disk += f",export={server.id},reconnect-delay=10"
        command = [
            "qemu-system-x86_64",
            "-machine",
            "q35",
            *ACCEL,
            "-m",
            "512",
            "-nodefaults",
            "-no-reboot",
        ]
        command += [
            "-nographic",
            "-serial",
            "stdio",
            "-kernel",
            setup.kernel,
            "-initrd",
            setup.initramfs,
        ]
        command += ["-append", f"console=ttyS0 quiet panic=-1 cryptomgr.notests test={test}"]
        command += ["-monitor", f"unix:{self.monitor},server=on,wait=off"]
        if test == "9p":
            command += ["-fsdev", f"local,id=tree,path={source},security_model=none,readonly=on"]
            command += ["-device", "virtio-9p-pci,fsdev=tree,mount_tag=tree"]
        else:
            command += ["-blockdev", disk, "-device", "virtio-blk-pci,drive=root,num-queues=1"]
        command += ["-blockdev", f"driver=file,node-name=out,filename={self.out}"]
        command += ["-device", "virtio-blk-pci,drive=out"]
        self.command, self.text = [str(word) for word in command], ""
        self.start()

    def start(self, *more):
        """Starts its QEMU."""
        self.process = subprocess.Popen(
            [*self.command, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.killer = threading.Timer(LIMIT_S, self.process.kill)
        self.killer.start()

    def save_and_load(self, state):
        """Saves it and goes on in another QEMU. Returns whether that could be done."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self.monitor))
            monitor.settimeout(120)
            said = ""
            monitor.sendall(f'stop\nmigrate "exec:cat>{state}"\n'.encode())
            with contextlib.suppress(TimeoutError):
                while "completed" not in said and "Error" not in said and "failed" not in said:
                    time.sleep(0.5)
                    monitor.sendall(b"info migrate\n")
                    said += monitor.recv(1 << 16).decode(errors="replace")
            monitor.sendall(b"quit\n")
            # To the end: who hangs up with answers unread takes back what was not heard yet.
            with contextlib.suppress(OSError):
                while monitor.recv(1 << 16):
                    pass
        self.text += self.process.stdout.read().decode(errors="replace")
        self.process.wait()
        self.killer.cancel()
        self.start("-incoming", f"exec:cat {state}")
        if "completed" not in said:
            print(said[-1000:])
            return False
        return self.go_on()

    def go_on(self):
        """Continues it once it is loaded."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as monitor:
                monitor.connect(str(self.monitor))
                monitor.settimeout(5)
                monitor.sendall(b"cont\ninfo status\n")
                said, more = "", b"-"
                while "VM status" not in said and more:
                    more = monitor.recv(1 << 16)
                    said += more.decode(errors="replace")
                if "running" in said:
                    return True
            time.sleep(0.5)
        return False

    def wait_for(self, words):
        """Waits until the machine says this, or ends."""
        for line in self.process.stdout:
            self.text += line.decode(errors="replace")
            if words in self.text:
                return True
        return False

    def say(self):
        """Lets it go on."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self):
        """Waits for its end; returns what it wrote to its disk."""
        done = self.wait_for("TEST done")
        self.process.stdout.read()
        self.process.wait()
        self.killer.cancel()
        note(done and "TEST failed" not in self.text, "the machine does its test")
        if not done or "TEST failed" in self.text:
            print(self.text[-3000:])
        return self.out.read_bytes().rstrip(b"\0").decode(errors="surrogateescape")


class Setup:
    """What all tests use."""

    def __init__(self, kernel, initramfs, manifest, work):
        self.kernel, self.initramfs, self.manifest, self.work = (
            kernel,
            initramfs,
            manifest,
            Path(work),
        )
        self.source = self.work / "tree"
        self.source.mkdir()
        tree.make(self.source)
        time.sleep(0.1)


def lines_of(setup, *directories):
    """What the host has."""
    texts = [
        subprocess.run([setup.manifest, it], capture_output=True, check=True).stdout
        for it in directories
    ]
    return b"".join(texts).decode(errors="surrogateescape").rstrip("\n").split("\n")


def same(ours, theirs, least):
    """Compares what a machine sees with what the host has."""
    different = [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]]
    note(
        len(ours) == len(theirs) > least,
        f"a machine sees {len(theirs)} lines of files, the host {len(ours)}",
    )
    note(not different, f"all of them are the same ({len(different)} are not)")
    for one, other in different[:10]:
        print(f"  host    {one[:300]!r}\n  machine {other[:300]!r}")


def compare(setup):
    """Every file is what the host has."""
    server = Server(setup.work, setup.source).start()
    theirs = Machine(setup, "compare", server, setup.source).end().rstrip("\n").split("\n")
    same(lines_of(setup, setup.source), theirs, 20000)
    server.kill()


def save(setup):
    """A machine is saved while it reads a file, and goes on in another QEMU."""
    server = Server(setup.work, setup.source).start()
    machine = Machine(setup, "save", server, setup.source)
    note(machine.wait_for("TEST reading"), "a machine reads a file")
    note(machine.save_and_load(setup.work / "state"), "it is saved, and loaded into another QEMU")
    sum_here = hashlib.md5((setup.source / "large").read_bytes()).hexdigest()
    note(machine.end().split()[:1] == [sum_here], "it has read the file as it is")
    server.kill()


def system(setup):
    """The system's own programs run in a machine, from its root."""
    server = Server(setup.work, "/", "kept-system").start()
    print(f"        {server.said[2]} inodes", flush=True)
    machine = Machine(setup, "system", server, "/")
    theirs = machine.end().rstrip("\n").split("\n")
    same(lines_of(setup, "/usr/bin", "/usr/sbin"), theirs, 100)
    note("TEST python 1.5" in machine.text, "the host's Python runs on it")
    note("TEST private" in machine.text, "what not everybody can read of /etc is empty")
    times(machine, "system")
    server.kill()


def restart(setup):
    """A server that is killed while a file is read is replaced, and nobody sees it."""
    server = Server(setup.work, setup.source).start()
    before = server.id
    machine = Machine(setup, "restart", server, setup.source)
    note(machine.wait_for("TEST reading"), "a machine reads a file")
    server.kill()
    time.sleep(1.5)
    server.start()
    note(server.id == before, "the server that is started again has the same image")
    sum_there = machine.end().split()
    sum_here = hashlib.md5((setup.source / "large").read_bytes()).hexdigest()
    note(sum_there[:1] == [sum_here], "the machine has read the file as it is")
    server.kill()


def changed(setup):
    """A changed file gives errors; one that was removed while it was open has what it had."""
    (setup.work / "kept").unlink(missing_ok=True)
    source = setup.source
    server = Server(setup.work, source).start()
    machine = Machine(setup, "changed", server, source)
    machine.wait_for("TEST first")
    (source / "changed").write_bytes(b"another" * 100)
    (source / "new").write_bytes(b"replaced" * 1000)
    (source / "new").rename(source / "replaced")
    (source / "removed").unlink()
    (source / "open").unlink()
    with (source / "grown").open("ab") as file:
        file.write(b"more")
    machine.say()
    lines = machine.end().strip().split("\n")
    names = dict(zip(tree.CHANGED, lines, strict=False))
    whole = hashlib.md5(b"changed" * 1000).hexdigest()
    # It was read before it was changed: the machine's own memory has it.
    note(names["changed"].split()[0] == whole, "what a machine has read already stays what it was")
    for name in ("replaced", "removed", "grown"):
        note(
            "nput/output error" in names.get(name, ""),
            f"a file that was {name} gives an error: {names.get(name)}",
        )
    note(
        names.get("same", "").split()[:1] == [hashlib.md5(b"same" * 1000).hexdigest()],
        "another is as before",
    )
    whole = hashlib.md5(b"open" * 1_000_000).hexdigest()
    note(
        names.get("open", "").split()[:1] == [whole],
        "one that was removed while it was read is there to its end",
    )
    said = [line for line in server.log.read_text().split("\n") if "has changed" in line]
    note(len(said) == 3, f"the log has a line for each of them: {said}")
    server.kill()


def speed(setup, test="speed"):
    """How long finding and reading take."""
    server = Server(setup.work, setup.source).start()
    machine = Machine(setup, test, server, setup.source)
    machine.end()
    times(machine, test)
    server.kill()


def times(machine, test):
    """Prints what a machine has measured."""
    for name, begin, end in re.findall(r"TIME (\S+ \S+) ([0-9.]+) ([0-9.]+)", machine.text):
        print(f"        {test} {name}: {float(end) - float(begin):.2f} s", flush=True)


def main():
    kernel, initramfs, manifest, work, *names = sys.argv[1:]
    setup = Setup(kernel, initramfs, manifest, work)
    tests = {
        "compare": compare,
        "restart": restart,
        "changed": changed,
        "save": save,
        "system": system,
    }
    tests["speed"] = speed
    tests["9p"] = lambda setup: speed(setup, "9p")
    for name in names or ["compare", "restart", "save", "system", "changed"]:
        print(f"== {name}", flush=True)
        tests[name](setup)
    print(f"{len(passed)} passed, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
