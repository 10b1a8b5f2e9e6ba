#!/usr/bin/env python3
"""Which checks of test suites take longest, told by when each said that it was done.

    slowest.py keep LOG [--show]   keeps what comes in, and shows it; times go to LOG's .times
    slowest.py print TIMES...      the ten slowest of those files

A check is a line that begins with ok or FAILED, or a part that begins with == and has none; of
cargo's tests a program, and what was compiled for them; of pytest's what --durations tells.
"""

import os
import pathlib
import re
import sys
import time

SHOWN = 10
LEAST_S = 0.5  # others are not kept
CHECK = re.compile(r"(?:ok|FAILED|FAIL)\b[ :]*(.*)")
HEADING = re.compile(r"== (.*)")
PROGRAM = re.compile(r" +Running (?:unittests )?(\S+) \(.*/(\w+)-\w+\)")
FINISHED = re.compile(r"test result: .* finished in ([\d.]+)s")
COMPILED = re.compile(r" +Finished .* in (?:(\d+)m )?([\d.]+)s")
DURATION = re.compile(r"([\d.]+)s (?:call|setup) +(\S+)")


class Watch:
    """Takes the time of checks."""

    def __init__(self, begun):
        self.times = []  # seconds, and the check
        self.since = begun  # when the last one ended
        self.part = None  # a heading without a check so far
        self.program = ""

    def line(self, text, now):
        """A line that has come."""
        if match := PROGRAM.match(text):
            self.program = f"{match[2]} {match[1]}"
        elif match := FINISHED.match(text):
            self.add(float(match[1]), self.program)
        elif match := COMPILED.match(text):
            self.add(60 * int(match[1] or 0) + float(match[2]), "compiled by cargo")
        elif match := DURATION.match(text):
            self.add(float(match[1]), match[2])
        elif match := CHECK.match(text):
            self.add(now - self.since, match[1])
            self.since, self.part = now, None
        elif match := HEADING.match(text):
            self.end(now)
            self.since, self.part = now, match[1]

    def end(self, now):
        """The part that has begun is over."""
        if self.part is not None:
            self.add(now - self.since, self.part)

    def add(self, seconds, what):
        """A check that took so long."""
        if seconds >= LEAST_S:
            self.times.append((seconds, what.strip()))


def keep(log, is_shown):
    """Until the input ends."""
    watch = Watch(time.monotonic())
    rest = b""
    with log.open("wb") as file:
        while data := os.read(0, 1 << 16):
            file.write(data)
            file.flush()
            if is_shown:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            *lines, rest = (rest + data).split(b"\n")
            now = time.monotonic()
            for line in lines:
                watch.line(line.decode(errors="replace").rstrip("\r"), now)
    watch.end(time.monotonic())
    told = [f"{seconds:.1f} {what}\n" for seconds, what in watch.times]
    log.with_suffix(".times").write_text("".join(told))


def slowest(files):
    """The slowest of all, with their suites, as lines."""
    found = []
    for file in map(pathlib.Path, files):
        for line in file.read_text().splitlines() if file.exists() else []:
            seconds, what = line.split(" ", 1)
            suite = file.stem if file.parent.name == "test" else f"{file.parent.name}/{file.stem}"
            found.append((float(seconds), suite, what))
    for seconds, suite, what in sorted(found, reverse=True)[:SHOWN]:
        yield f"{seconds:6.1f} s  {suite}: {what[:80]}"


def main():
    """What the command line says."""
    match sys.argv[1:]:
        case ["keep", log, *show]:
            keep(pathlib.Path(log), show == ["--show"])
        case ["print", *files]:
            print("\n".join(slowest(files)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
