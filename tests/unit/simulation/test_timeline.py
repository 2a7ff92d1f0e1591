"""The timeline of a simulated cluster names who changed what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control.storage.memory import MemoryStore
from control.storage.memory_rows import Row
from simulation.origin import ORIGIN, Origin
from simulation.timeline import Timeline, describe, differences
from tests.support.clock import FakeClock


async def rows(key: str, *values: dict[str, Any] | None) -> list[Row]:
    """Return the writes of an object; None deletes it."""
    store, found = MemoryStore(FakeClock()), list[Row]()
    store.subscribe(found.append)
    for value in values:
        present = await store.get(key)
        if value is None:
            await store.delete(key)
        elif present is None:
            await store.create(key, json.dumps(value).encode())
        else:
            await store.update(key, json.dumps(value).encode(), present.revision)
    return found


async def test_writes_are_told_as_creations_changes_and_deletions() -> None:
    owner = {"metadata": {"ownerReferences": [{"kind": "Job", "name": "j"}]}, "spec": {"n": 1}}
    found = await rows("/registry/pods/default/a", owner, {**owner, "spec": {"n": 2}}, None)
    assert [describe(row) for row in found] == [
        "creates pods/default/a for Job j",
        "changes pods/default/a: spec.n: 1 -> 2",
        "deletes pods/default/a",
    ]


async def test_events_give_their_reasons_and_heartbeats_are_left_out() -> None:
    event = {
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
        "reason": "Killing",
        "message": "m",
    }
    (row,) = await rows("/registry/events/default/e", event)
    assert describe(row) == "event about Pod default/a: Killing: m"
    (row,) = await rows("/registry/leases/kube-system/x", {})
    assert describe(row) == ""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1, "managedFields": []}, []),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": True}}, ["a.c: none -> true"]),
        ({"a": [{"type": "Ready", "n": 1}]}, {"a": [{"type": "Ready", "n": 2}]}, ["a[Ready].n: 1 -> 2"]),
        ({"a": ["x"]}, {"a": ["y"]}, ["a[0]: x -> y"]),
        ({"a": ["x"]}, {"a": []}, ['a: ["x"] -> []']),
    ],
)
def test_differences_name_the_field(before: Any, after: Any, expected: list[str]) -> None:
    assert list(differences(before, after)) == expected


async def test_a_line_has_the_actor_and_the_member_that_served_it() -> None:
    (row,) = await rows("/registry/pods/default/a", {"metadata": {}})
    timeline, agent = Timeline(), "kube-controller-manager/v1/system:serviceaccount:kube-system:job-controller"
    token = ORIGIN.set(Origin("POST", "/", agent, None, 0.0, "control-1"))
    timeline.written(1.5, row)
    ORIGIN.reset(token)
    (line,) = timeline.lines
    assert line.split(maxsplit=1)[0] == "1.500" and line.endswith("creates pods/default/a   [POST at control-1]")
    assert "job-controller" in line
