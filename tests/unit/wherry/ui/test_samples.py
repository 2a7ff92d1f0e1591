"""Numbers of metrics pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.errors import StatusError
from wherry.ui import sources
from wherry.ui.samples import MOST_KEYS, totals

PAGE = """# HELP requests_total Requests.
requests_total{verb="GET",code="200"} 3
requests_total{verb="GET",code="404"} 1 1700000000000
requests_total{verb="a\\"} b{c=\\"d",code="200"} 2
requests_total_more 7
depth 4.5e+01
depth{broken
bad NaN
worse +Inf
"""


def test_families_are_summed_by_the_labels_that_are_wanted() -> None:
    found = totals(PAGE, {"requests_total": ("verb",), "depth": (), "bad": (), "worse": ()})
    assert found == {"requests_total": {"GET": 4.0, 'a\\"} b{c=\\"d': 2.0}, "depth": {"": 45.0}}
    assert totals(PAGE, {"requests_total": ()}) == {"requests_total": {"": 6.0}}
    assert totals(PAGE, {"requests_total": ("code", "verb")})["requests_total"]["404 · GET"] == 1


def test_a_family_has_a_limited_number_of_values() -> None:
    page = "\n".join(f'f{{name="{number}"}} 1' for number in range(MOST_KEYS + 50))
    assert len(totals(page, {"f": ("name",)})["f"]) == MOST_KEYS
    assert totals(page, {"f": ()}) == {"f": {"": MOST_KEYS + 50}}


@pytest.mark.parametrize("part", sorted(sources.PARTS))
def test_every_part_of_the_inside_view_has_its_file(part: str) -> None:
    assert sources.text(part).startswith('"""')


@pytest.mark.parametrize("name", ["", "none", "../pyproject.toml", "control/server/edge.py"])
def test_only_files_of_parts_are_read(name: str) -> None:
    with pytest.raises(StatusError, match="there is no such part"):
        sources.text(name)


def test_parts_of_the_picture_are_those_that_have_files() -> None:
    text = (Path(sources.__file__).parent / "page/inside_parts.js").read_text()
    drawn = {line.split('part: "')[1].split('"')[0] for line in text.splitlines() if 'part: "' in line}
    assert drawn and drawn <= sources.PARTS.keys()
