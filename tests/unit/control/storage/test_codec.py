from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.storage import codec
from kube.nesting import DEEPEST
from tests.support import nesting

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "resourceVersion": "7", "labels": {"a": "ü"}},
    "spec": {"containers": [{"name": "c", "image": 'x"y'}]},
}


def test_a_stored_object_does_not_know_its_revision() -> None:
    stored = codec.decode(codec.encode(POD))
    assert stored["metadata"].pop("resourceVersion") == ""
    expected = json.loads(json.dumps(POD))
    del expected["metadata"]["resourceVersion"]
    assert stored == expected


def test_encoding_leaves_the_object_as_it_was() -> None:
    before = json.dumps(POD)
    codec.encode(POD)
    assert json.dumps(POD) == before


def test_a_revision_is_written_in_and_over() -> None:
    value = codec.with_revision(codec.encode(POD), 41)
    assert codec.decode(value)["metadata"]["resourceVersion"] == "41"
    assert codec.with_revision(codec.with_revision(value, 123456), 41) == value


@pytest.mark.parametrize(
    "foreign",
    [
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}\n',
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"9"}}',
        b'{"kind":"Pod","apiVersion":"v1","spec":{"metadata":{"resourceVersion":""}},"metadata":{"name":"a"}}',
        b'{"kind":"List","apiVersion":"v1"}',
    ],
)
def test_values_that_others_wrote_get_their_revision_too(foreign: bytes) -> None:
    expected = json.loads(foreign)
    expected.setdefault("metadata", {})["resourceVersion"] = "5"
    assert codec.decode(codec.with_revision(foreign, 5)) == expected


def test_what_is_no_object_is_refused() -> None:
    for value in (b"[]", b"k8s\x00\n\x0c", b'{"kind":'):
        with pytest.raises(msgspec.DecodeError):
            codec.with_revision(value, 1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["spec", "status", "metadata.x", "data"]), json_values),
    st.dictionaries(st.sampled_from(["name", "labels", "resourceVersion", "uid"]), st.text(max_size=5)),
    st.text(max_size=6),
    st.integers(1, 2**62),
)
def test_any_object_comes_back_with_exactly_its_revision_changed(
    body: dict[str, object], metadata: dict[str, object], kind: str, revision: int
) -> None:
    obj = {**body, "kind": kind, "apiVersion": "v1", "metadata": metadata}
    got = codec.decode(codec.with_revision(codec.encode(obj), revision))
    assert got == {**obj, "metadata": {**metadata, "resourceVersion": str(revision)}}


@pytest.mark.parametrize("levels", [DEEPEST + 1, 934, 100_000])
def test_values_that_nest_too_deep_are_read_without_their_deepest_levels(levels: int) -> None:
    value = codec.encode(POD)[:-1] + b',"data":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"
    found = codec.decode(codec.shallow(value))
    assert nesting.levels_of(found) == DEEPEST
    assert found["spec"] == POD["spec"]
    assert nesting.levels_of(codec.decode(value)) in (levels, DEEPEST)


def test_other_values_are_read_as_they_are() -> None:
    value = codec.encode({**POD, "data": nesting.nested(DEEPEST - 1)})
    assert codec.shallow(value) is value
