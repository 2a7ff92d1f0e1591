"""The rows of the benchmark: all of them, each able to fail, and the documentation's table made of them."""

from __future__ import annotations

from pathlib import Path

from wherry.security.table import CHECKS, markdown

SECTIONS = {
    "1.1": 21, "1.2": 30, "1.3": 7, "1.4": 2, "2": 7, "3.1": 3, "3.2": 2, "4.1": 10, "4.2": 14, "4.3": 1,
    "5.1": 13, "5.2": 12, "5.3": 2, "5.4": 2, "5.5": 1, "5.6": 4,
}  # fmt: skip
"""Number of checks in each section of version 1.12."""
ROOT = Path(__file__).parents[4]


def test_every_check_of_the_benchmark_is_there_in_its_order() -> None:
    wanted = [f"{section}.{number}" for section, most in SECTIONS.items() for number in range(1, most + 1)]
    assert [check.id for check in CHECKS] == [*wanted, "W.1"], "Wherry's own checks come last"


def test_the_documentation_has_the_table_of_the_rows() -> None:
    assert markdown() in (ROOT / "docs/security.md").read_text(), "python -m wherry.security.table prints the table"


def test_titles_fit_a_line_of_the_terminal() -> None:
    assert [check.title for check in CHECKS if len(f"PASS {check.id:7} {check.title}") > 80] == []
    assert [check.id for check in CHECKS if "|" in check.title + check.state] == []
