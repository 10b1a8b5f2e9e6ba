"""Runs a command in a terminal of 24 lines with 80 characters, as somebody who types there.

    terminal.py STEP... -- COMMAND...

wait:TEXT waits until the terminal shows it, from where the last one stood; send:TEXT types (both
with Python's escapes); size:LINESxCHARACTERS makes the terminal that large; kill:NAME sends the
command a signal; run:COMMAND has a shell do something meanwhile. Shows at last what the terminal
has shown, and whether its modes are as they were. Exits as the command does, as shells tell it, and
with 99 if something takes too long.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

PATIENCE = 60 * int(os.environ.get("VSHMEM_TEST_SLOW", "1"))
steps, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
ours, theirs = pty.openpty()


def size(lines, characters):
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", lines, characters, 0, 0))


def own_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


size(24, 80)
before = termios.tcgetattr(theirs)
child = subprocess.Popen(
    command,
    stdin=theirs,
    stdout=theirs,
    stderr=theirs,
    start_new_session=True,
    preexec_fn=own_terminal,
)
shown = b""
seen = 0


def read(seconds):
    """Reads what is shown meanwhile."""
    global shown
    if select.select([ours], [], [], seconds)[0]:
        shown += os.read(ours, 65536)
        return True
    return False


def late(what):
    child.kill()
    print(shown.decode(errors="replace"))
    print(f"{what} takes too long")
    sys.exit(99)


for step in steps:
    kind, _, text = step.partition(":")
    meant = text.encode().decode("unicode_escape").encode()
    if kind == "send":
        os.write(ours, meant)
    elif kind == "size":
        size(*map(int, text.split("x")))
    elif kind == "kill":
        child.send_signal(signal.Signals["SIG" + text])
    elif kind == "run":
        subprocess.run(["sh", "-c", text], check=True)
    elif kind == "wait":
        begun = time.monotonic()
        while (found := shown.find(meant, seen)) < 0:
            read(1)
            if time.monotonic() - begun > PATIENCE:
                late(step)
        seen = found + len(meant)
    else:
        sys.exit(f"there is no step {step}")
begun = time.monotonic()
while child.poll() is None:
    read(0.1)
    if time.monotonic() - begun > PATIENCE:
        late("the end")
while read(0):
    pass
print(shown.decode(errors="replace").replace("\r\n", "\n"), end="")
print("modes are", "as before" if termios.tcgetattr(theirs) == before else "others")
code = child.returncode
sys.exit(code if code >= 0 else 128 - code)
