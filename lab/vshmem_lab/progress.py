"""Says how far a run has come: a bar with the time left on a terminal, else a line a case."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vshmem_lab.model import Case


class Steps:
    """`with Steps(total) as steps`: `steps.step(case, done)` after each repetition."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)
        self._total, self._done = total, 0
        self._last, self._began = "", time.monotonic()

    def __enter__(self) -> Steps:
        self._bar.__enter__()
        return self

    def __exit__(self, *exc) -> None:
        self._bar.__exit__(*exc)

    def begin(self, case: Case) -> None:
        """A case begins."""
        self._bar.update(self._task, description=case.label[:60])
        if not self._console.is_terminal:
            took = time.monotonic() - self._began
            line = f"[{took:4.0f} s, {self._done}/{self._total}] {case.suite}: {case.label}"
            print(line, file=sys.stderr, flush=True)

    def step(self, _case: Case, done: int) -> None:
        """So many repetitions more are done."""
        self._done += done
        self._bar.advance(self._task, done)
