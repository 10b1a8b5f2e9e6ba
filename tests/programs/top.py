"""vshmem top in a terminal: what it shows, its keys, and that the terminal is left as it was."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

VSHMEM, POOL = sys.argv[1:]
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW, HIDE = b"\x1b[?25h", b"\x1b[?25l"


class Terminal:
    """vshmem top at one end of a terminal of its own."""

    def __init__(self, *words, rows=24, columns=100):
        self.main, self.other = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.other)
        self.heard = b""
        self.process = subprocess.Popen(
            [VSHMEM, "top", "--pool", POOL, "--interval", "0.2", *words],
            stdin=self.other,
            stdout=self.other,
            stderr=self.other,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, rows, columns):
        fcntl.ioctl(self.other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hear(self, what, pattern, seconds=60):
        """Reads until a pattern comes; returns what was heard since the last one."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.heard, re.S)):
            left = end - time.monotonic()
            assert left > 0, f"{what}: not in {self.heard!r}"
            if select.select([self.main], [], [], left)[0]:
                self.heard += os.read(self.main, 65536)
        seen, self.heard = self.heard[: found.end()], self.heard[found.end() :]
        return seen

    def listen(self, seconds):
        """What comes in that time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.main], [], [], left)[0]:
                self.heard += os.read(self.main, 65536)
        seen, self.heard = self.heard, b""
        return seen

    def type(self, keys):
        os.write(self.main, keys)

    def ends(self, what, code):
        self.hear(what, re.escape(SHOW) + b".*" + re.escape(LEAVE))
        got = self.process.wait(60)
        assert got == code, f"{what}: it ended with {got}, not {code}"
        assert termios.tcgetattr(self.other) == self.before, (
            f"{what}: the terminal is not as it was"
        )
        os.close(self.main)
        os.close(self.other)


def shows_and_obeys():
    top = Terminal()
    top.hear("the other screen", re.escape(ENTER) + b".*" + re.escape(HIDE))
    raw = termios.tcgetattr(top.other)
    assert not raw[3] & termios.ECHO, "keys are not shown"
    segment = b"segment +(0x00000013 +)?[0-9]+ +1M"
    top.hear("the pool", b"vshmem top.*waiting [12].*KERNEL.*alive.*" + segment)
    top.type(b"t")
    top.hear("threads", b"WAITS FOR.*semaphore 3 to let -1 be added")
    top.type(b"ti")
    top.hear("sorted by id", b"i ID")
    top.type(b"r")
    top.hear("backwards", b"r REVERSE.*i ID")
    top.resize(6, 30)
    top.hear("all drawn anew", b"\x1b\\[2J")
    small = top.listen(0.6)
    rows = [int(row) for row in re.findall(rb"\x1b\[(\d+);1H", small)]
    assert max(rows) <= 6, f"rows {rows} of 6"
    longest = max(len(text) for text in re.split(rb"\x1b\[[0-9;]*[a-zA-Z]", small))
    assert longest <= 30, f"{longest} characters of 30: {small!r}"
    top.type(b"q")
    top.ends("q", 0)


def is_ended():
    top = Terminal()
    top.hear("the pool", b"vshmem top")
    top.type(b"\x03")
    top.ends("ctrl-C", 0)
    top = Terminal()
    top.hear("the pool", b"vshmem top")
    top.process.send_signal(signal.SIGTERM)
    top.ends("SIGTERM", 128 + signal.SIGTERM)


def is_read_by_programs():
    words = [VSHMEM, "top", "--pool", POOL, "--interval", "0.5"]
    once = [*words, "--once"]
    text = subprocess.run(once, capture_output=True, check=True, text=True).stdout
    assert "\x1b" not in text and "Waiting threads" in text, text
    line = json.loads(subprocess.run([*once, "--json"], capture_output=True, check=True).stdout)
    pool = line["pools"][0]
    (queue,) = pool["queues"]
    assert queue["rates"]["sent"] > 5 and queue["rates"]["sent_bytes"] > 500, queue
    assert abs(queue["rates"]["sent"] - queue["rates"]["received"]) < 50, queue
    (waiter,) = [waiter for waiter in pool["waiters"] if waiter["kind"] == "set"]
    assert waiter["wanted"] == "semaphore 3 to let -1 be added", waiter
    assert pool["segments"][0]["size"] == 1 << 20
    many = subprocess.Popen([*words, "--json"], stdout=subprocess.PIPE)
    lines = [json.loads(many.stdout.readline()) for _ in range(3)]
    assert lines[0]["pools"][0]["time"] < lines[2]["pools"][0]["time"]
    many.stdout.close()
    assert many.wait(5) == 0, "it ends when nobody reads"


shows_and_obeys()
is_ended()
is_read_by_programs()
