"""What the demo prints."""

from __future__ import annotations

from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.choice import selected
from vshmem_lab.demo import CHOICE, SUMMARY, summary
from vshmem_lab.stats import summarize


def test_the_summary_fits_a_terminal() -> None:
    tables = []
    for case in selected(CHOICE):
        lines = [
            Line(
                one.name,
                size,
                one.vshmem,
                one.floor,
                "",
                "",
                summary=summarize([1.23e6] * 3) if one.vshmem else None,
                accelerator="tcg",
            )
            for one in case.contenders
            for size in case.sizes
        ]
        tables.append(
            Table(case.suite, case.name, case.environment, "ns", "", lines, 3, 0, 0, None)
        )
    told = summary(Run("demo", {}, tables)).splitlines()
    assert len(told) <= 9 and max(map(len, told)) <= 80
    assert {table.environment for table in tables} == set(SUMMARY)
    assert sum("1.23 ms" in line for line in told) == 4
    assert "System V" in "".join(told) and "missing" in "".join(told)
