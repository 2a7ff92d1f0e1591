"""Numbers of metrics pages."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kube.errors import StatusError
from tests.support.iterations import Iterations
from wherry.ui import samples, sources
from wherry.ui.samples import LONGEST_VALUE, MOST_KEYS, PART_BYTES, totals
from wherry.why import pacing

PAGE = b"""# HELP requests_total Requests.
requests_total{verb="GET",code="200"} 3
requests_total{verb="GET",code="404"} 1 1700000000000
requests_total{verb="a\\"} b{c=\\"d",code="200"} 2
requests_total_more 7
depth 4.5e+01
depth{broken
bad NaN
worse +Inf
"""


async def test_families_are_summed_by_the_labels_that_are_wanted() -> None:
    found = await totals(PAGE, {"requests_total": ("verb",), "depth": (), "bad": (), "worse": ()})
    assert found == {"requests_total": {"GET": 4.0, 'a\\"} b{c=\\"d': 2.0}, "depth": {"": 45.0}}
    assert await totals(PAGE, {"requests_total": ()}) == {"requests_total": {"": 6.0}}
    assert (await totals(PAGE, {"requests_total": ("code", "verb")}))["requests_total"]["404 · GET"] == 1


async def test_a_family_has_a_limited_number_of_values() -> None:
    page = "\n".join(f'f{{name="{number}"}} 1' for number in range(MOST_KEYS + 50)).encode()
    assert len((await totals(page, {"f": ("name",)}))["f"]) == MOST_KEYS
    assert await totals(page, {"f": ()}) == {"f": {"": MOST_KEYS + 50}}


MANY = 4 << 20


@pytest.mark.parametrize(
    "page",
    [
        b"\n" * MANY,
        b"f{" + b"a" * MANY + b"} 1\n",
        b"f 1\n" * (MANY // 64),
        b'f{name="' + b"x" * 4000 + b'"} 1\n' + b"f{" + b"a" * 4000 + b"} 1\n" * 100,
        b"f{" * (MANY // 2),
        b"f " + b'a="' * (MANY // 3),
    ],
    ids=["line ends", "a long word", "short lines", "long lines", "braces", "quotes"],
)
async def test_a_page_of_any_content_is_read_in_parts_and_soon(page: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0.0)
    begin = time.process_time()
    with Iterations() as iterations:
        await totals(page, {"f": ("name",), "family_total": ()})
    assert time.process_time() - begin < 30
    assert iterations.number >= min(page.count(b"\n"), len(page) // PART_BYTES)


@pytest.mark.parametrize("labels", ["a" * 40_000, 'a="' * 10_000, 'a="x",' * 6_000, '\\"' * 20_000, "a=" * 20_000])
def test_labels_are_found_in_time_that_grows_with_their_length(labels: str) -> None:
    begin = time.process_time()
    samples._LABEL.findall(labels)
    assert time.process_time() - begin < 0.5


async def test_long_lines_are_left_out_and_long_values_cut() -> None:
    page = b'f{name="' + b"x" * 3000 + b'"} 1\nf{name="' + b"y" * 5000 + b'"} 1\nf{name="z"} 2'
    assert await totals(page, {"f": ("name",)}) == {"f": {"x" * LONGEST_VALUE: 1.0, "z": 2.0}}


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
