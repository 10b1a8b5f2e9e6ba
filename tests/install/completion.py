"""What bash, zsh and fish complete, as somebody sees it who types there.

    completion.py PREFIX     where vshmem and its completions are installed

Prints a line that begins with 'skip' for each shell that is not there.
"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 30
LATE = 5
QUICK = 0.1

prefix = pathlib.Path(sys.argv[1])
vshmem = prefix / "bin/vshmem"
work = pathlib.Path(tempfile.mkdtemp(prefix="vshmem-completion."))
runtime = work / "run"
pool = f"completion-{os.getpid()}"
broken = f"completion-{os.getpid()}-broken"
pools = pathlib.Path(f"/dev/shm/vshmem.{os.geteuid()}")

environment = {
    "PATH": f"{prefix}/bin:{os.environ['PATH']}",
    "HOME": str(work),
    "XDG_RUNTIME_DIR": str(runtime),
    "XDG_DATA_DIRS": f"{prefix}/share",
    "TERM": "vt100",
    "LC_ALL": "C.UTF-8",
}

# (what is typed, what is offered among other things, what is not)
CASES = [
    ("vshmem p", ["ps", "pool"], ["up", "vm0"]),
    ("vshmem pool ", ["create", "ls", "rm"], ["ps"]),
    ("vshmem exec ", ["vm0", "vm1"], ["ann", "db", pool]),
    ("vshmem exec -c other ", ["ann", "bob"], ["vm0", "db"]),
    ("vshmem shell --cluster other ", ["ann", "bob"], ["vm0"]),
    ("vshmem shell --cluster=other ", ["ann", "bob"], ["vm0"]),
    ("vshmem run --vm vm0,", ["vm0,vm0", "vm0,vm1"], ["ann"]),
    ("vshmem restart vm0 ", ["vm0", "vm1"], ["db"]),
    ("vshmem down -c ", ["default", "other"], ["vm0"]),
    ("vshmem ps --", ["--long", "--json", "--help"], ["--all"]),
    ("vshmem grant ", [pool, broken], ["work", "vm0"]),
    (f"vshmem grant {pool} ", ["vm0", "vm1", "db", "dc"], ["ann"]),
    ("vshmem revoke ", [pool, "work", "theirs"], ["vm0"]),
    ("vshmem detach ", ["db", "dc"], ["vm0"]),
    ("vshmem check comp", [pool, broken], ["work"]),
    ("vshmem pool rm comp", [pool, broken], ["work"]),
    ("vshmem ipcs --pool comp", [pool, broken], ["work"]),
    ("vshmem top -p comp", [pool, broken], ["work"]),
    ("vshmem run --local -- real-", ["real-program", "real-tool"], ["real-text", "vm0"]),
    ("vshmem explain -- ls some", ["some-file", "some-directory/"], ["some-program"]),
    ("vshmem up --hypervisor ", ["qemu", "xen"], ["vm0"]),
    ("vshmem up --kernel some", ["some-file", "some-directory/"], ["vm0"]),
]
# What one candidate makes of the line.
WHOLE = [
    ("vshmem exec -c other a", "vshmem exec -c other ann "),
    ("vshmem down --cluster=o", "vshmem down --cluster=other "),
    ("vshmem shell vm0 --us", "vshmem shell vm0 --user "),
    ("vshmem up --kernel 'with", "vshmem up --kernel 'with blanks' "),
]
failures = []


def write_down(name, machines, pools=()):
    """A cluster whose machines have died, as far as it is written down."""
    directory = runtime / "vshmem" / name
    directory.mkdir()
    given = [{"name": one, "path": "/none", "size": 1, "doorbell": False} for one in pools]
    machine = {"index": 0, "runs": None, "address": None, "cores": [], "pools": given}
    record = dict(version=2, name=name, boot="", starter=None, accel="tcg", kernel="/none", cpus=1)
    record |= dict(memory=1, pool="/none", pool_size=1, channels=1, since=1)
    record["machines"] = [{"name": one} | machine for one in machines]
    (directory / "cluster.json").write_text(json.dumps(record))


def attach(name, pools=()):
    """An adopted machine, whose monitor nobody serves."""
    directory = runtime / "vshmem/.attached" / name
    directory.mkdir()
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    given = [{"name": one, "path": "/none", "size": 1, "doorbell": False} for one in pools]
    record = dict(version=1, name=name, boot=boot, reach={"qmp": "/none"}, doorbell=False)
    record |= dict(channel=None, since=1, pools=given)
    (directory / "machine.json").write_text(json.dumps(record))


def prepare():
    for directory in ["run", "run/vshmem", "run/vshmem/.attached", "here", "bin"]:
        (work / directory).mkdir(mode=0o700)
    (work / "here/some-directory").mkdir()
    for name in ["some-file", "with blanks"]:
        (work / "here" / name).touch()
    for name in ["real-program", "real-tool", "real-text", "some-program"]:
        (work / "bin" / name).touch(mode=0o644 if name == "real-text" else 0o755)
    environment["PATH"] += f":{work}/bin"
    run("pool", "create", pool, "--size", "1M")
    (pools / broken).write_bytes(b"no pool")
    write_down("default", ["vm0", "vm1"], ["work"])
    write_down("other", ["ann", "bob"])
    write_down("damaged", [])
    (runtime / "vshmem/damaged/cluster.json").write_text("{")
    attach("db", ["theirs"])
    attach("dc")


def run(*words, **variables):
    return subprocess.run(
        [vshmem, *words],
        env=environment | variables,
        cwd=work / "here",
        capture_output=True,
        text=True,
        check=True,
    ).stdout


class Terminal:
    """A shell in a terminal that is wide enough for all on one line."""

    def __init__(self, *command):
        pid, self.file = pty.fork()
        if pid == 0:
            os.chdir(work / "here")
            os.execvpe(command[0], command, environment)
        self.pid = pid
        subprocess.run(["stty", "rows", "200", "cols", "1000"], stdin=self.file, check=True)
        self.shown = ""

    def read(self, seconds):
        ready = select.select([self.file], [], [], seconds)[0]
        if ready:
            try:
                self.shown += os.read(self.file, 65536).decode(errors="replace")
            except OSError:
                return False
        return bool(ready)

    def wait(self, what, seconds=PATIENCE):
        """Whether the terminal shows in time what `what` looks for; then all that it shows."""
        end = time.monotonic() + seconds
        while not what(plain(self.shown)):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.read(left)
        while self.read(0.2):
            pass
        return True

    def type(self, text):
        os.write(self.file, text.encode())

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.file)


def plain(text):
    """Without what moves the cursor or colours."""
    text = re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[()].|[=>])", " ", text)
    return re.sub(r" +", " ", re.sub(r"[^\n\x20-\x7e]", "", text))


def words_of(text):
    return set(text.split())


def fail(shell, typed, why):
    failures.append(f"{shell}: '{typed}': {why}")


def check_list(shell, typed, offered, others, shown):
    words = words_of(shown)
    # zsh shows directories without their slash.
    has = {*words, *(word + "/" for word in words)}
    if missing := [word for word in offered if word not in has]:
        fail(shell, typed, f"not offered: {missing}; shown: {shown!r}")
    if extra := [word for word in others if word in words]:
        fail(shell, typed, f"offered: {extra}; shown: {shown!r}")
    if "rror" in shown:
        fail(shell, typed, f"an error is shown: {shown!r}")


def check_in_terminal(shell, start):
    terminal = start()
    for typed, offered, others in CASES:
        terminal.shown = ""
        terminal.type(typed + "\t")
        everything = {word.rstrip("/") for word in offered}

        def has_all(shown, everything=everything):
            return everything <= {word.rstrip("/") for word in words_of(shown)}

        terminal.wait(has_all, seconds=LATE)
        shown = plain(terminal.shown).replace(typed.strip(), " ", 1)
        check_list(shell, typed, offered, others, shown)
        clear(terminal)
    for typed, whole in WHOLE:
        terminal.shown = ""
        terminal.type(typed + "\t#")
        if not terminal.wait(lambda shown, whole=whole: whole + "#" in shown, seconds=LATE):
            fail(shell, typed, f"is not completed to '{whole}': {plain(terminal.shown)!r}")
        clear(terminal)
    terminal.close()


def clear(terminal):
    """An empty line, by ctrl-C."""
    terminal.shown = ""
    terminal.type("\x03")
    if not terminal.wait(lambda shown: "ready>" in shown):
        sys.exit(f"completion: no prompt: {terminal.shown!r}")


def bash():
    terminal = Terminal("bash", "--norc", "--noprofile", "-i")
    terminal.type(f". {prefix}/share/bash-completion/completions/vshmem\n")
    settings = ["show-all-if-ambiguous on", "enable-bracketed-paste off", "page-completions off"]
    for setting in settings:
        terminal.type(f"bind 'set {setting}'\n")
    terminal.type("PS1='rea''dy> '\n")
    terminal.wait(lambda shown: "ready>" in shown)
    return terminal


def zsh():
    terminal = Terminal("zsh", "-f", "-i")
    terminal.type(f"fpath=({prefix}/share/zsh/site-functions $fpath)\n")
    terminal.type("autoload -Uz compinit && compinit -u -D; LISTMAX=1000\n")
    terminal.type("unsetopt list_ambiguous auto_menu prompt_sp; PS1='rea''dy> '\n")
    terminal.wait(lambda shown: "ready>" in shown)
    return terminal


def check_fish():
    """fish says itself what it would offer."""
    script = f"source {prefix}/share/fish/vendor_completions.d/vshmem.fish; complete -C $argv[1]"
    for typed, offered, others in CASES:
        done = subprocess.run(
            ["fish", "--no-config", "-c", script, typed],
            env=environment,
            cwd=work / "here",
            capture_output=True,
            text=True,
        )
        words = [line.split("\t")[0] for line in done.stdout.splitlines()]
        check_list("fish", typed, offered, others, "\n".join(words) + done.stderr)


def check_answers():
    """It is quick, and changes nothing."""
    asks = [typed.split(" ") for typed, _, _ in CASES]
    before = sorted(str(path) for path in runtime.rglob("*"))
    for words in asks:
        took = []
        for _ in range(5):
            begun = time.monotonic()
            run("--", *words, _VSHMEM_COMPLETE="bash")
            took.append(time.monotonic() - begun)
        if min(took) > QUICK:
            fail("bash", " ".join(words), f"takes {min(took):.3f} s")
    if (after := sorted(str(path) for path in runtime.rglob("*"))) != before:
        fail("bash", "all of them", f"changed files: {set(before) ^ set(after)}")
    empty = work / "empty"
    empty.mkdir(mode=0o700)
    for words in asks:
        run("--", *words, _VSHMEM_COMPLETE="bash", XDG_RUNTIME_DIR=str(empty))
    if left := list(empty.iterdir()):
        fail("bash", "all of them", f"made {left}")
    # What can't be answered is answered by nothing.
    for words in [[], ["vshmem"], ["vshmem", "nonsense", ""], ["vshmem", "exec", "-c"]]:
        done = subprocess.run(
            [vshmem, "--", *words],
            env=environment | {"_VSHMEM_COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": "7"},
            capture_output=True,
            text=True,
        )
        if done.stderr:
            fail("bash", " ".join(words), f"says {done.stderr!r}")


try:
    prepare()
    check_answers()
    for shell, check in [
        ("bash", lambda: check_in_terminal("bash", bash)),
        ("zsh", lambda: check_in_terminal("zsh", zsh)),
        ("fish", check_fish),
    ]:
        if shutil.which(shell):
            check()
        else:
            print(f"skip    completion in {shell}: it is not installed")
finally:
    shutil.rmtree(work)
    for name in [pool, broken]:
        (pools / name).unlink(missing_ok=True)
for failure in failures:
    print(f"completion: {failure}", file=sys.stderr)
sys.exit(bool(failures))
