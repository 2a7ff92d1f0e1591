"""docs/troubleshooting.md and docs/install.md quote messages as the code has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import messages, symptoms
from tests.support.tried_rows import TRIED

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text()
JOIN = re.findall(r"^\| (`.*?`) \|", (DOCS / "install.md").read_text().split("| message | cause or fix |")[1], re.M)
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for table in PAGE.split("| message | command | cause | fix |\n| --- | --- | --- | --- |\n")[1:]
    for line in table.split("\n\n")[0].splitlines()
]


def test_the_page_has_rows_of_four_cells() -> None:
    assert len(ROWS) > 50
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


@pytest.mark.parametrize("quoted", [*(row[0] for row in ROWS), *JOIN])
def test_each_message_exists_in_the_source(quoted: str) -> None:
    text = re.fullmatch("`([^`]+)`", quoted)
    assert text is not None, quoted
    assert len(text[1].replace(messages.VALUE, "").strip()) > 8, "there is little of it without its values"
    assert messages.exists(text[1])


def test_rows_that_another_test_produces_are_marked_on_the_page() -> None:
    marked = {message for message, row in symptoms.rows().items() if row.mark == symptoms.PRODUCED}
    assert marked == TRIED.keys()


@pytest.mark.parametrize("message", TRIED)
def test_the_test_that_produces_a_row_expects_a_part_of_its_message(message: str) -> None:
    file, part = TRIED[message]
    text = re.sub(r'"\s*\n\s*[rf]*"', "", (DOCS.parent / "tests" / file).read_text())
    assert part in message and part in text


def test_texts_of_the_source_are_read_with_their_values_left_out() -> None:
    source = 'a = f"node {name!r}: {why}; " f"see {log}"\nlog.error("%s: %d of %.3f s", a, b)\n"""Text."""\n'
    assert {"node …: …; see …", "…: … of … s", "Text."} <= set(messages.in_source(source))


@pytest.mark.parametrize(
    ("shown", "fits"), [("wait for node node1", True), ("paint the machine", False), ("check the machine", True)]
)
def test_a_text_that_was_printed_is_recognized(shown: str, fits: bool) -> None:
    assert messages.fits(shown) is fits
