"""What a run consists of: the suites' cases, or those of the papers' rows, as the options narrow
them down.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vshmem_lab.model import Case, Failed
from vshmem_lab.papers.cases import PAPERS, cases
from vshmem_lab.suites.parts import with_before
from vshmem_lab.suites.table import SUITES


@dataclass(frozen=True)
class Choice:
    """The options that decide what is measured. Words fit what contains them."""

    suites: tuple[str, ...]
    cases: tuple[str, ...] = ()
    contenders: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    before: str = ""  # the folder of an earlier build
    as_asked: bool = False  # as many repetitions of each as are asked for, whatever a paper has

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Choice:
        """As a run's metadata has it."""
        lists = {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
        return cls(**{**kept, **lists})


def _fits(words: Sequence[str], text: str) -> bool:
    """Whether a word is in the text, or is the whole of it if it begins with "="."""
    found = (
        text == word[1:] if word[:1] == "=" else word.lower() in text.lower() for word in words
    )
    return not words or any(found)


def _narrowed(case: Case, choice: Choice) -> Case | None:
    if not _fits(choice.cases, case.name) or not _fits(choice.environments, case.environment):
        return None
    # The floor stays: it tells how far apart the processors are, whoever contends.
    keep = [c for c in case.contenders if c.floor or _fits(choice.contenders, c.name)]
    sizes = tuple(size for size in case.sizes if not choice.sizes or size in choice.sizes)
    if case.sizes == (0,):
        sizes = case.sizes
    if not sizes or all(contender.floor for contender in keep):
        return None
    return dataclasses.replace(case, contenders=tuple(keep), sizes=sizes)


def _all(suites: Sequence[str]) -> list[Case]:
    """The cases of suites."""
    if PAPERS in suites:
        if len(suites) > 1:
            raise Failed(f"{PAPERS} has cases of many suites already; name it alone.")
        return cases()
    unknown = [name for name in suites if name not in SUITES]
    if unknown:
        raise Failed(f"There is no suite {unknown[0]}. There are: {', '.join(SUITES)}, {PAPERS}.")
    return [case for name in suites for case in SUITES[name]]


def selected(choice: Choice) -> list[Case]:
    """The cases of a run. Raises Failed if nothing fits, or a suite does not exist."""
    found = []
    for case in _all(choice.suites):
        case = dataclasses.replace(case, runs=0, least=1) if choice.as_asked else case
        if case.name.endswith("as root") and os.geteuid() != 0:
            continue
        case = with_before(case) if choice.before else case
        narrowed = _narrowed(case, choice)
        found += [narrowed] if narrowed else []
    if not found:
        raise Failed("Nothing fits these options. `vshmem lab list` shows what there is.")
    return found
