"""Which cases have another repetition while there is time.

Those that lack repetitions for a verdict come first, and of these the cheapest, so that as many as
can be have one; then all that fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vshmem_lab.model import Case


def that_fit(
    cases: Sequence[Case], took: Mapping[Case, float], few: set[Case], left: float
) -> list[Case]:
    """The cases of the next round, in their order; none if none fits into the seconds left.

    `took` has the seconds of each one's last repetition, `few` the cases that lack repetitions for
    a verdict. Cases that have a runner in common are in a round together or not at all: what a job
    of one of them measured, others get for nothing.
    """
    costs = {case: took.get(case, 0) for case in cases}
    groups = sorted(together(cases), key=lambda group: sum(costs[case] for case in group))
    chosen: set[Case] = set()
    for group in groups:
        if not few.isdisjoint(group) and sum(costs[case] for case in group) <= left:
            return [case for case in cases if case in group]
    for group in groups:
        left -= sum(costs[case] for case in group)
        if left < 0:
            break
        chosen.update(group)
    return [case for case in cases if case in chosen]


def together(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases in groups, none of which has a runner that another one has."""
    groups: list[tuple[set[str], list[Case]]] = []
    for case in cases:
        runners, members = {contender.runner for contender in case.contenders}, [case]
        apart = []
        for theirs, others in groups:
            if runners & theirs:
                runners, members = runners | theirs, [*others, *members]
            else:
                apart.append((theirs, others))
        groups = [*apart, (runners, members)]
    return [members for _, members in groups]
