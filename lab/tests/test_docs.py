"""The documentation's tables are what kept results say."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import Fake, Silent, about, all_fake, case
from vshmem_lab.driver import Driver
from vshmem_lab.model import Failed
from vshmem_lab.report import docs
from vshmem_lab.store import Store

PAGE = """Before.

<!-- lab once toys
ping, 8
ping, 1K
-->
| what was | typed in |
<!-- lab end -->

After.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with a kept result and a page."""
    cases = [case(sizes=(8, 1024))]
    kept = Store.create(tmp_path / "run", about(cases))
    Driver(all_fake(theirs=Fake()), kept, 2, 0.1, Silent()).run(cases)
    docs.keep(tmp_path / "run", "once", tmp_path)
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    return tmp_path


def test_every_table_of_the_documentation_is_what_its_result_says() -> None:
    for page in docs.pages():
        assert docs.filled(page) == page.read_text(), f"{page.name}: run lab/vshmem-lab docs"


def test_a_table_is_made_from_its_result(root: Path) -> None:
    page = root / "docs" / "page.md"
    assert docs.fill(root) == [page] and docs.fill(root) == []
    text = page.read_text()
    assert "| ping, 8 B | 108 ns | 1.01 µs |" in text and "typed in" not in text
    assert "|  | **Vshmem** | kernel |" in text
    assert "Medians of 2 repetitions, on a toy: [the whole run](results/once/report.txt)." in text
    assert text.startswith("Before.\n") and text.endswith("\nAfter.\n")
    assert (root / "docs" / "results" / "once" / "report.txt").exists()


def test_a_number_that_was_changed_is_found(root: Path) -> None:
    page = root / "docs" / "page.md"
    docs.fill(root)
    page.write_text(page.read_text().replace("108 ns", "10.8 ns"))
    assert docs.filled(page, root) != page.read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("once", "gone", "does not exist"),
        ("ping, 8", "pong, 8", "no pong, 8"),
        ("ping, 8", "ping, 9", "no ping, 9"),
    ],
)
def test_a_table_of_what_is_not_there(root: Path, old: str, new: str, said: str) -> None:
    page = root / "docs" / "page.md"
    page.write_text(PAGE.replace(old, new))
    with pytest.raises(Failed, match=said):
        docs.filled(page, root)
