"""What a command shows in a terminal, as lines of text.

    screen.py LINESxCOLUMNS [--until TEXT --keys KEYS] -- COMMAND...

With --until, what is on the screen once TEXT is there, at which KEYS are typed that end the
command; else all that it has shown when it has ended. The terminal breaks no line: one that is
longer than it has columns is an error (exit code 3), after what was shown.
"""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

PATIENCE = 60 * int(os.environ.get("VSHMEM_TEST_SLOW", "1"))
words, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
height, width = map(int, words[0].split("x"))
options = dict(zip(words[1::2], words[2::2], strict=True))
until, keys = options.get("--until"), options.get("--keys", "")
UNFINISHED = re.compile(r"\x1b(\[[?0-9;]*)?$")
PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][A-Z0-9]|([\r\n\b])|([^\x1b\r\n\b]+)|\x1b")


class Screen:
    """Lines of characters, and where the next one goes."""

    def __init__(self):
        self.lines, self.row, self.column = [""], 0, 0

    def show(self, text):
        for found in PIECE.finditer(text):
            if found[4]:
                line = self.lines[self.row].ljust(self.column)
                after = self.column + len(found[4])
                self.lines[self.row] = line[: self.column] + found[4] + line[after:]
                self.column = after
            elif found[3] == "\r":
                self.column = 0
            elif found[3] == "\n":
                self.go(self.row + 1, self.column)
            elif found[2]:
                self.obey(found[1], found[2])

    def obey(self, numbers, letter):
        if letter == "H":
            row, column = (int(number or 1) for number in (numbers or "1;1").split(";"))
            self.go(row - 1, column - 1)
        elif letter == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif letter == "J":
            if numbers == "2":
                self.lines = [""] * len(self.lines)
            else:
                self.lines[self.row] = self.lines[self.row][: self.column]
                del self.lines[self.row + 1 :]

    def go(self, row, column):
        self.lines += [""] * (row + 1 - len(self.lines))
        self.row, self.column = row, column


def own_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def main():
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", height, width, 0, 0))
    child = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=own_terminal,
        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
    )
    screen, begun, kept = Screen(), time.monotonic(), None
    decoder, pending = codecs.getincrementaldecoder("utf-8")("replace"), ""
    while True:
        if select.select([ours], [], [], 0.2)[0]:
            some = pending + decoder.decode(os.read(ours, 65536))
            whole = found.start() if (found := UNFINISHED.search(some)) else len(some)
            screen.show(some[:whole])
            pending = some[whole:]
        elif child.poll() is not None:
            break
        elif until and kept is None and until in "\n".join(screen.lines):
            kept = list(screen.lines)
            os.write(ours, keys.encode())
        if time.monotonic() - begun > PATIENCE:
            child.kill()
            print(*screen.lines, sep="\n")
            sys.exit(f"{command} takes too long")
    lines = [line.rstrip() for line in (kept or screen.lines)]
    while lines and not lines[-1]:
        lines.pop()
    print(*lines, sep="\n")
    if until and len(lines) > height:
        sys.exit(f"it has {len(lines)} lines, and the terminal {height}")
    if long := [line for line in lines if len(line) > width]:
        print(*long, sep="\n", file=sys.stderr)
        sys.exit(3)


main()
