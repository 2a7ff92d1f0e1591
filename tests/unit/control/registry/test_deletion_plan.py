"""Deletion of objects, as tables of (state, request) -> (action, remaining state)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from control.registry.deletion_plan import DeleteOptions, plan, read_options, ready_to_go
from kube.errors import StatusError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT_ONCE = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
MARKED = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}


@pytest.mark.parametrize(
    ("metadata", "options", "grace", "outcome", "left"),
    [
        ({}, DeleteOptions(), None, "delete", {}),
        ({}, DeleteOptions(), 0, "delete", {}),
        ({}, DeleteOptions(), 30, "mark", MARKED),
        ({"generation": 1}, DeleteOptions(), 30, "mark", {**MARKED, "generation": 2}),
        (MARKED, DeleteOptions(), 30, "pending", MARKED),
        (MARKED, DeleteOptions(grace_period=60), 60, "pending", MARKED),
        (
            MARKED,
            DeleteOptions(grace_period=10),
            10,
            "mark",
            {"deletionTimestamp": "2026-01-01T00:00:10Z", "deletionGracePeriodSeconds": 10},
        ),
        (MARKED, DeleteOptions(grace_period=0), 0, "delete", AT_ONCE),
        (
            {"finalizers": ["x"]},
            DeleteOptions(),
            None,
            "mark",
            {"finalizers": ["x"], "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0},
        ),
        ({"finalizers": ["x"], **MARKED, "deletionGracePeriodSeconds": 0}, DeleteOptions(), None, "pending", None),
        (
            {"finalizers": ["x"], **MARKED},
            DeleteOptions(grace_period=0),
            0,
            "mark",
            {"finalizers": ["x"], "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0},
        ),
        ({"finalizers": ["foregroundDeletion"]}, DeleteOptions(propagation="Background"), None, "delete", {}),
    ],
)
def test_a_deletion_is_planned(
    metadata: dict[str, Any], options: DeleteOptions, grace: int | None, outcome: str, left: dict[str, Any] | None
) -> None:
    found = dict(metadata)
    assert plan(found, options, grace, NOW) == outcome
    assert found == (metadata if left is None else left)


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        (DeleteOptions(propagation="Orphan"), ["orphan"]),
        (DeleteOptions(propagation="Foreground"), ["foregroundDeletion"]),
        (DeleteOptions(orphan_dependents=True), ["orphan"]),
    ],
)
def test_propagation_is_carried_by_a_finalizer(options: DeleteOptions, finalizers: list[str]) -> None:
    metadata: dict[str, Any] = {}
    assert plan(metadata, options, None, NOW) == "mark"
    assert metadata["finalizers"] == finalizers


@pytest.mark.parametrize(
    ("present", "options", "outcome", "finalizers"),
    [
        ([], DeleteOptions(), "mark", ["orphan"]),
        (["x"], DeleteOptions(), "mark", ["x", "orphan"]),
        (["foregroundDeletion"], DeleteOptions(), "mark", ["foregroundDeletion"]),
        ([], DeleteOptions(propagation="Background"), "delete", None),
        ([], DeleteOptions(propagation="Foreground"), "mark", ["foregroundDeletion"]),
        ([], DeleteOptions(orphan_dependents=False), "delete", None),
    ],
)
def test_a_kind_that_orphans_by_default_does_so_without_options_or_finalizers(
    present: list[str], options: DeleteOptions, outcome: str, finalizers: list[str] | None
) -> None:
    metadata: dict[str, Any] = {"finalizers": present} if present else {}
    assert plan(metadata, options, None, NOW, orphans=True) == outcome
    assert metadata.get("finalizers") == finalizers


@pytest.mark.parametrize("policy", ["Orphan", "Foreground", "Background", None])
def test_no_policy_holds_an_object_of_a_kind_without_dependents(policy: str | None) -> None:
    metadata: dict[str, Any] = {}
    assert plan(metadata, DeleteOptions(propagation=policy), None, NOW, has_dependents=False) == "delete"
    held: dict[str, Any] = {"finalizers": ["orphan", "x", "foregroundDeletion"]}
    assert plan(held, DeleteOptions(propagation=policy), None, NOW, has_dependents=False) == "mark"
    assert held["finalizers"] == ["x"]


def test_a_marked_object_goes_when_nothing_holds_it() -> None:
    assert ready_to_go({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0})
    assert not ready_to_go(MARKED)
    assert not ready_to_go({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]})
    assert not ready_to_go({})


def test_options_come_from_the_body_or_else_from_the_query() -> None:
    assert read_options({"gracePeriodSeconds": 5}, {"gracePeriodSeconds": ["9"]}).grace_period == 5
    found = read_options({}, {"gracePeriodSeconds": ["9"], "propagationPolicy": ["Orphan"], "dryRun": ["All"]})
    assert (found.grace_period, found.propagation, found.dry_run) == (9, "Orphan", True)
    assert read_options({"gracePeriodSeconds": -5}, {}).grace_period == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"propagationPolicy": "Sideways"}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": False}, 422),
        ({"dryRun": ["Some"]}, 422),
    ],
)
def test_options_that_mean_nothing_are_refused(body: dict[str, Any], code: int) -> None:
    with pytest.raises(StatusError) as refused:
        read_options(body, {})
    assert refused.value.code == code


def test_a_grace_beyond_the_calendar_ends_with_it_and_can_be_shortened() -> None:
    metadata: dict[str, Any] = {"name": "a"}
    assert plan(metadata, DeleteOptions(), 2**63 - 1, NOW) == "mark"
    assert metadata["deletionTimestamp"] == "9999-12-31T23:59:59Z"
    assert plan(metadata, DeleteOptions(grace_period=5), 5, NOW) == "mark"
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:05Z"
