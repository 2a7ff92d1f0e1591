"""Finalizers and owners of objects; expected errors are those of upstream's server (v1.36.2)."""

from __future__ import annotations

from typing import Any

import pytest

from control.registry import metadata
from kube import resources
from kube.api import coordination_v1, core_v1, policy_v1, rbac_v1

STANDARD = "name is neither a standard finalizer name nor is it fully qualified"


def problems(type_: type[Any], **parts: Any) -> list[tuple[str, str]]:
    meta = {"name": "x", "namespace": "ns", **parts}
    return [(each.path, each.detail) for each in metadata.validate(resources.of(type_), meta, lambda name, prefix: [])]


@pytest.mark.parametrize(
    ("finalizers", "expected"),
    [
        (["kubernetes", "orphan", "example.com/x"], []),
        (
            ["foregroundDeletion", "keep", "x"],
            [("metadata.finalizers[1]", STANDARD), ("metadata.finalizers[2]", STANDARD)],
        ),
        (["orphan", "foregroundDeletion"], ["metadata.finalizers"]),
        (["example.com/x y"], ["metadata.finalizers"]),
        (["x y"], ["metadata.finalizers", ("metadata.finalizers[0]", STANDARD)]),
    ],
)
def test_finalizers_are_standard_or_qualified(finalizers: list[str], expected: list[Any]) -> None:
    found = problems(core_v1.ConfigMap, finalizers=finalizers)
    assert [each if each[1] == STANDARD else each[0] for each in found] == expected
    assert problems(rbac_v1.Role, finalizers=finalizers) == found


@pytest.mark.parametrize("kind", [coordination_v1.Lease, policy_v1.PodDisruptionBudget])
def test_some_kinds_may_have_other_finalizers(kind: type[Any]) -> None:
    assert problems(kind, finalizers=["keep"]) == []


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (
            {},
            [
                ("apiVersion", "version must not be empty"),
                *((part, "must not be empty") for part in ("kind", "name", "uid")),
            ],
        ),
        ({"apiVersion": "apps/", "kind": "A", "name": "a", "uid": "1"}, [("apiVersion", "version must not be empty")]),
        ({"apiVersion": "a/b/c", "kind": "A", "name": "a", "uid": "1"}, [("apiVersion", "version must not be empty")]),
        ({"apiVersion": "apps/v1", "kind": "A", "name": "a", "uid": "1"}, []),
        (
            {"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"},
            [("", "/v1, Kind=Event is disallowed from being an owner")],
        ),
    ],
)
def test_owners_are_complete(owner: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = problems(core_v1.ConfigMap, ownerReferences=[owner])
    assert found == [(f"metadata.ownerReferences.{part}".rstrip("."), detail) for part, detail in expected]
