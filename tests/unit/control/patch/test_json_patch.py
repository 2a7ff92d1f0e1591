from __future__ import annotations

import copy
from typing import Any

import pytest

from control.patch.json_patch import apply_json_patch
from control.patch.merge_patch import apply_merge_patch
from kube.errors import StatusError

APPLIED: list[tuple[str, Any, list[dict[str, Any]], Any]] = [
    ("adds a member", {"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ("add replaces a member", {"a": 1}, [{"op": "add", "path": "/a", "value": [1]}], {"a": [1]}),
    ("inserts into an array", {"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ("appends by index", {"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
    ("appends with a dash", {"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    ("counts negative indices from the end", {"a": [1, 2]}, [{"op": "remove", "path": "/a/-1"}], {"a": [1]}),
    ("removes a member", {"a": 1, "b": 2}, [{"op": "remove", "path": "/b"}], {"a": 1}),
    ("removes an item", {"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
    ("replaces", {"a": {"b": 1}}, [{"op": "replace", "path": "/a/b", "value": None}], {"a": {"b": None}}),
    ("replaces the whole", {"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ("moves", {"a": 1, "b": {}}, [{"op": "move", "from": "/a", "path": "/b/c"}], {"b": {"c": 1}}),
    ("moves within an array", {"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
    (
        "copies, and the copy is its own",
        {"a": {"x": 1}},
        [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/x", "value": 2}],
        {"a": {"x": 1}, "b": {"x": 2}},
    ),
    (
        "unescapes pointers",
        {"a/b": 1, "c~d": 2},
        [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}],
        {},
    ),
    (
        "a passed test changes nothing",
        {"a": {"b": [1]}},
        [{"op": "test", "path": "/a", "value": {"b": [1]}}],
        {"a": {"b": [1]}},
    ),
    ("what is missing equals null", {}, [{"op": "test", "path": "/a", "value": None}], {}),
    ("replaces what is missing", {"a": {}}, [{"op": "replace", "path": "/a/b", "value": 1}], {"a": {"b": 1}}),
    ("copies null from what is missing", {}, [{"op": "copy", "from": "/a", "path": "/b"}], {"b": None}),
    ("adds null if there is no value", {}, [{"op": "add", "path": "/a"}], {"a": None}),
    ("replaces with null if there is no value", {"a": 1}, [{"op": "replace", "path": "/a"}], {"a": None}),
    ("tests against null if there is no value", {"a": None}, [{"op": "test", "path": "/a"}], {"a": None}),
    ("ignores what precedes the first slash", {"a": 1}, [{"op": "remove", "path": "x/a"}], {}),
    ("tests the whole", {"a": 1}, [{"op": "test", "path": "", "value": {"a": 1}}], {"a": 1}),
    (
        "later operations see earlier ones",
        {},
        [{"op": "add", "path": "/a", "value": {}}, {"op": "add", "path": "/a/b", "value": 1}],
        {"a": {"b": 1}},
    ),
]


@pytest.mark.parametrize(
    ("document", "patch", "expected"), [row[1:] for row in APPLIED], ids=[row[0] for row in APPLIED]
)
def test_operations(document: Any, patch: list[dict[str, Any]], expected: Any) -> None:
    before, sent = copy.deepcopy(document), copy.deepcopy(patch)
    assert apply_json_patch(document, patch) == expected
    assert (document, patch) == (before, sent)


REJECTED: list[tuple[str, list[dict[str, Any]], str]] = [
    ("removing what is not there", [{"op": "remove", "path": "/x"}], "/x does not exist"),
    ("moving what is not there", [{"op": "move", "from": "/x", "path": "/y"}], "/x does not exist"),
    ("replacing below what is not there", [{"op": "replace", "path": "/x/y", "value": 1}], "/x/y does not exist"),
    ("replacing an item that is not there", [{"op": "replace", "path": "/list/2", "value": 1}], "out of bounds"),
    ("replacing after the last item", [{"op": "replace", "path": "/list/-", "value": 1}], "is no array index"),
    ("copying an item that is not there", [{"op": "copy", "from": "/list/2", "path": "/b"}], "out of bounds"),
    ("adding the whole document", [{"op": "add", "path": "", "value": {}}], "whole document"),
    ("copying the whole document", [{"op": "copy", "from": "", "path": "/b"}], "whole document"),
    ("copying over the whole document", [{"op": "copy", "from": "/deep", "path": ""}], "whole document"),
    ("moving the whole document", [{"op": "move", "from": "", "path": ""}], "whole document"),
    ("replacing the whole document with a scalar", [{"op": "replace", "path": "", "value": 1}], "whole document"),
    ("adding below what is not there", [{"op": "add", "path": "/x/y", "value": 1}], "/x/y does not exist"),
    ("an index past the end", [{"op": "add", "path": "/list/4", "value": 1}], "out of bounds"),
    ("an index that is none", [{"op": "add", "path": "/list/one", "value": 1}], "is no array index"),
    ("an index that Go does not read", [{"op": "add", "path": "/list/1_0", "value": 1}], "is no array index"),
    ("an index in other digits", [{"op": "add", "path": "/list/\u0661", "value": 1}], "is no array index"),
    ("an index with a blank", [{"op": "add", "path": "/list/ 1", "value": 1}], "is no array index"),
    ("a failed test", [{"op": "test", "path": "/a", "value": 2}], "testing value /a failed"),
    ("a test of true against 1", [{"op": "test", "path": "/a", "value": True}], "testing value /a failed"),
    ("an unknown operation", [{"op": "frobnicate", "path": "/a"}], "Unexpected kind: frobnicate"),
    ("an operation that is null", [None], "JSON pointer"),
    ("a path that is none", [{"op": "remove", "path": "a"}], "JSON pointer"),
    ("moving into itself", [{"op": "move", "from": "/deep", "path": "/deep/er"}], "into itself"),
    ("removing everything", [{"op": "remove", "path": ""}], "whole document"),
    ("a child of a scalar", [{"op": "add", "path": "/a/b", "value": 1}], "no object or array"),
]


@pytest.mark.parametrize(("patch", "why"), [row[1:] for row in REJECTED], ids=[row[0] for row in REJECTED])
def test_what_cannot_be_carried_out_is_unprocessable(patch: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(StatusError) as caught:
        apply_json_patch({"a": 1, "list": [1, 2], "deep": {}}, patch)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.message == "the server rejected our request due to an error in our request"
    assert not caught.value.details and any(why in note for note in caught.value.__notes__)


def test_a_patch_that_is_none_is_a_bad_request() -> None:
    for body in ({}, "x", [1]):
        with pytest.raises(StatusError) as caught:
            apply_json_patch({}, body)
        assert caught.value.code == 400


def test_ten_thousand_operations_are_the_limit() -> None:
    operations = [{"op": "add", "path": "/a", "value": 1}] * 10_000
    assert apply_json_patch({}, operations) == {"a": 1}
    with pytest.raises(StatusError) as caught:
        apply_json_patch({}, [*operations, operations[0]])
    assert caught.value.code == 413
    assert caught.value.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def test_copies_may_not_grow_an_object_without_bound() -> None:
    patch = [{"op": "copy", "from": "/a", "path": f"/a/c{i}"} for i in range(40)]
    with pytest.raises(StatusError) as caught:
        apply_json_patch({"a": {"x": "x" * 1000}}, patch)
    assert caught.value.code == 422


MERGED: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": 1}, {"a": {"b": None, "c": 2}}, {"a": {"c": 2}}),
]


@pytest.mark.parametrize(("document", "patch", "expected"), MERGED)
def test_merge_patches_follow_rfc_7386(document: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy(document)
    assert apply_merge_patch(document, patch) == expected
    assert document == before


def test_a_merge_patch_must_be_an_object() -> None:
    with pytest.raises(StatusError) as caught:
        apply_merge_patch({}, [])
    assert caught.value.code == 400 and caught.value.message == "Invalid JSON Patch"
