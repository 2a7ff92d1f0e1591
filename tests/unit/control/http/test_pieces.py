"""Large lists are written a part at a time and say what they say as a whole."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.http.negotiate import MediaTypeOptions
from control.http.pieces import PART, Pieces
from control.registry.strategies import strategy_for
from control.server.forms import Form
from control.storage.entry import Entry
from kube import resources
from tests.support.clock import FakeClock


@given(
    items=st.lists(st.lists(st.binary(min_size=3, max_size=9), max_size=4), max_size=4),
    between=st.sampled_from([b"", b",", b",{"]),
    skip=st.integers(0, 3),
    most=st.integers(1, 40),
)
def test_the_parts_are_the_whole(items: list[list[bytes]], between: bytes, skip: int, most: int) -> None:
    pieces = Pieces(b"head", between, b"tail", skip)
    for some in items:
        pieces.extend(some)
    bare = [item[skip:] for some in items for item in some]
    expected = b"head" + between.join(bare) + b"tail"
    assert b"".join(pieces.parts(most)) == pieces.gathered() == pieces.whole() == expected
    assert len(pieces) == len(expected)


def test_no_part_is_much_larger_than_is_requested() -> None:
    pieces = Pieces(b"[", b",", b"]")
    pieces.extend([b"x" * 1000] * 1000)
    sizes = [len(part) for part in pieces.parts()]
    assert max(sizes) <= PART + 2000 and len(sizes) == 1_001_001 // PART + 1


@pytest.mark.parametrize("versions", [["v1"], ["v1", "v2"], ["v2"], []])
def test_a_list_in_the_plain_form_is_the_same_in_parts(versions: list[str]) -> None:
    resource = resources.by_path("", "v1", "configmaps")
    assert resource is not None
    form = Form(MediaTypeOptions(), strategy_for(resource), "None", FakeClock())
    objects = [{"kind": "ConfigMap", "apiVersion": v, "metadata": {"name": f"a-{n}"}} for n, v in enumerate(versions)]
    entries = [Entry("", 1, msgspec.json.encode(obj), lambda obj: {}) for obj in objects]
    pieces, items = form.as_stored({"resourceVersion": "7"}, empty=not entries)
    pieces.extend(items(entries))
    assert b"".join(pieces.parts(10)) == form.list(entries, {"resourceVersion": "7"})
    shown = msgspec.json.decode(pieces.whole())
    assert shown["items"] == [{"metadata": obj["metadata"]} for obj in objects] and shown["kind"] == "ConfigMapList"
