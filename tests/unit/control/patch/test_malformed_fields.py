"""Entries of managedFields whose fields are no sets: they are dropped, and no write of the object fails because of them."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.patch.apply import apply, scaling, track_update
from control.patch.apply.managers import well_formed
from control.registry.managed import shape_of
from kube import resources
from kube.api import apps_v1

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHAPE = shape_of(resources.of(apps_v1.Deployment))
KEYS = st.sampled_from(
    ["f:spec", "f:status", "f:replicas", "f:metadata", "f:labels", "f:a", ".", "k:{", "v:1", "i:0", "x", ""]
)
FIELDS = st.recursive(
    st.none() | st.integers() | st.text(max_size=2) | st.booleans() | st.just({}),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
OWN = {
    "manager": "own",
    "operation": "Update",
    "apiVersion": "apps/v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {}},
}


def entry(fields: object, **more: str) -> Object:
    return {**OWN, "manager": "m", "fieldsV1": fields, **more}


def deployment(replicas: int, entries: list[Object], ready: int = 0) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "a", "managedFields": copy.deepcopy(entries)},
        "spec": {"replicas": replicas},
        "status": {"readyReplicas": ready},
    }


def is_set(fields: object) -> bool:
    return isinstance(fields, dict) and all(map(is_set, fields.values()))


@given(fields=FIELDS, operation=st.sampled_from(["Update", "Apply"]))
def test_no_write_fails_and_no_malformed_entry_remains(fields: object, operation: str) -> None:
    entries = [OWN, entry(fields, operation=operation)]
    created = track_update(None, deployment(1, entries), "c", "", SHAPE, NOW)
    updated = track_update(deployment(1, [OWN]), deployment(2, entries), "c", "", SHAPE, NOW)
    assert all(is_set(each["fieldsV1"]) for each in (*created, *updated))
    # Entries that an earlier version has stored.
    stored = deployment(1, entries)
    status = track_update(stored, deployment(1, entries, ready=1), "c", "status", SHAPE, NOW)
    assert not status or any(each["manager"] == "c" for each in status)
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}}
    assert apply(stored, applied, "c", force=True, schema=SHAPE, now=NOW)["spec"]["replicas"] == 3
    scale = scaling.to_scale(entries, ("spec", "replicas"))
    scaling.to_parent(entries, scale, ("spec", "replicas"), "apps/v1")


@pytest.mark.parametrize("fields", [5, "f:spec", [1], {"f:spec": 5}, {"f:spec": {"f:replicas": []}}, {"f:spec": ""}])
def test_only_the_malformed_entry_is_dropped(fields: object) -> None:
    assert well_formed([OWN, entry(fields)]) == [OWN]


def test_null_is_a_set_without_members() -> None:
    assert well_formed([entry({"f:spec": {"f:replicas": None}})]) == [entry({"f:spec": {"f:replicas": {}}})]


def test_well_formed_entries_are_not_copied() -> None:
    entries = [OWN, entry({"f:spec": {"f:replicas": {}}})]
    assert well_formed(entries) is entries
