"""Tests of the benchmarks' own arithmetic and formats."""

from __future__ import annotations

import csv
import io
import unittest

import between
import compare
import latency
import pong
import results
import xen
from cases import CASES, Wanted, faster, within
from results import Result


def result(wanted: Wanted | None, **samples: list[float]) -> Result:
    """A row with these samples."""
    return Result("row", "ns", wanted, dict(samples))


class Verdicts(unittest.TestCase):
    """What passes and what does not."""

    def test_faster_than_the_kernel(self) -> None:
        fast = result(faster(8), kernel=[800, 820, 790], vshmem=[100, 90, 99])
        slow = result(faster(8), kernel=[800, 820, 790], vshmem=[101, 120, 99])
        self.assertEqual((fast.verdict(), slow.verdict()), ("pass", "FAIL"))
        self.assertEqual(slow.comparison(), "7.9 x faster")
        self.assertEqual(slow.wish(), "8 x faster")

    def test_within_the_floor(self) -> None:
        self.assertEqual(result(within(2.5, "floor"), floor=[100], vshmem=[250]).verdict(), "pass")
        self.assertEqual(result(within(2.5, "floor"), floor=[100], vshmem=[251]).verdict(), "FAIL")

    def test_rounds_are_compared_one_by_one(self) -> None:
        # In two rounds of three, the processors were far apart for both sides.
        row = result(within(2.5, "floor"), floor=[70, 300, 310], vshmem=[140, 600, 1000])
        self.assertEqual((row.ratio("floor"), row.verdict()), (2.0, "pass"))

    def test_a_stream_is_compared_with_its_floor_too(self) -> None:
        row = result(faster(8), floor=[200], kernel=[1400], vshmem=[210])
        self.assertEqual(row.comparison(), "6.7 x faster, 1.05 of floor")

    def test_an_absolute_limit(self) -> None:
        self.assertEqual(result(Wanted(absolute=10), vshmem=[10]).verdict(), "pass")
        self.assertEqual(result(Wanted(absolute=10), vshmem=[11]).verdict(), "FAIL")

    def test_what_was_not_measured_has_no_verdict(self) -> None:
        self.assertEqual(result(faster(8), kernel=[1]).verdict(), "")
        self.assertEqual(result(faster(8), vshmem=[1]).verdict(), "")
        self.assertEqual(result(None, kernel=[1], vshmem=[9]).verdict(), "")

    def test_an_error_fails(self) -> None:
        row = result(faster(8), kernel=[80], vshmem=[1])
        row.error = "it hung"
        self.assertEqual(row.verdict(), "FAIL")
        self.assertIn("it hung", results.table([row]))

    def test_spread_is_half_of_the_range(self) -> None:
        self.assertAlmostEqual(result(None, kernel=[90, 100, 120]).spread("kernel"), 0.15)

    def test_a_cell_stays_narrow(self) -> None:
        wild = result(None, kernel=[90, 100, 90_000])
        self.assertEqual(results.cell(wild, "kernel"), "100 ±>999%")


class Formats(unittest.TestCase):
    """What is written can be read again."""

    def test_csv_feeds_compare(self) -> None:
        old = result(faster(8), kernel=[800], vshmem=[200])
        new = result(faster(8), kernel=[800], vshmem=[100])
        read = [
            {row["name"]: row for row in csv.DictReader(io.StringIO(results.as_csv([r])))}
            for r in (old, new)
        ]
        said = compare.lines(*read)
        self.assertEqual(len(said), 2)
        self.assertIn("-50%", said[1])
        self.assertIn("FAIL -> pass", said[1])

    def test_pingpong_lines_with_and_without_a_machine(self) -> None:
        said = "vm0: queue 8 1234 1\n[vm1] segment 65536 99 1\nnoise 1 2 3\nudp 65536 5 2\n"
        found = pong.parse(said)
        self.assertEqual([m.method for m in found], ["queue", "segment", "udp"])
        self.assertEqual(found[2], pong.Measurement("udp", 65536, 5.0, 2))

    def test_latencies_show_ratios_and_pieces(self) -> None:
        found = latency.Latencies()
        found.add(latency.MACHINES, pong.parse("queue 65536 2000 8\ntcp 65536 3000000 1\n"))
        table = found.table()
        self.assertIn("1,500 x", table)
        self.assertIn("64 KiB in 8 pieces", table)

    def test_names_are_unique(self) -> None:
        names = [row.name for case in CASES for row in case.rows] + [r[2] for r in between.ROWS]
        self.assertEqual(len(names), len(set(names)))


class Papers(unittest.TestCase):
    """The table of the papers' micro-benchmarks."""

    SAID = (
        "ok      vm0 is up\nmeasured native bare 8 500\nmeasured native bare 8 700\n"
        "measured guest-guest tcp 8 410000\n"
    )

    def test_lines_are_found(self) -> None:
        found = xen.parse(self.SAID + "measured native udp 8 1\nmeasured native bare 8 x\n")
        self.assertEqual(found, {("native", "bare"): [0.5, 0.7], ("guest-guest", "tcp"): [410.0]})
        self.assertFalse(xen.complete(found))

    def test_the_papers_stand_beside(self) -> None:
        raw, tcp = (xen.table(xen.parse(self.SAID)).splitlines()[i] for i in (2, 5))
        self.assertEqual(raw.split()[:5], ["Raw", "0.6", "(0.5)", "0.49", "-"])
        self.assertEqual(tcp.split()[-2:], ["410", "80.9-104.0"])


if __name__ == "__main__":
    unittest.main()
