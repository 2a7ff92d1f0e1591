"""The rules of watches, lists and reads: each reports what breaks it, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control.storage.memory import MemoryStore
from simulation.oracles import true_history
from simulation.oracles.true_history import Scope, TrueHistory
from simulation.oracles.watches import Broken, ListCheck, WatchCheck, check_get
from tests.support.clock import FakeClock

Object = dict[str, Any]
MAPS = "/registry/configmaps/"
ALL = Scope("/api/v1/configmaps", MAPS)
RED = Scope("/api/v1/configmaps", MAPS, label=("colour", "red"))


def config_map(name: str, colour: str = "", number: int = 0, revision: int = 0) -> Object:
    metadata: Object = {"name": name, "namespace": "shop", "labels": {"colour": colour} if colour else {}}
    if revision:
        metadata["resourceVersion"] = str(revision)
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"number": str(number)}}


async def history() -> TrueHistory:
    """Return a history: a (red) is created at 1, blue at 2, red at 3, b is created at 4 and deleted at 5."""
    store = MemoryStore(FakeClock())
    found = TrueHistory(store, (MAPS,))
    await write(store, "a", config_map("a", "red", 1))
    await write(store, "a", config_map("a", "blue", 2))
    await write(store, "a", config_map("a", "red", 3))
    await write(store, "b", config_map("b", "", 4))
    await store.delete(f"{MAPS}shop/b")
    return found


async def write(store: MemoryStore, name: str, obj: Object) -> None:
    key, value = f"{MAPS}shop/{name}", json.dumps(obj).encode()
    present = await store.get(key)
    await (store.create(key, value) if present is None else store.update(key, value, present.revision))


EVENTS: dict[Scope, list[tuple[str, Object]]] = {
    ALL: [
        ("ADDED", config_map("a", "red", 1, 1)),
        ("MODIFIED", config_map("a", "blue", 2, 2)),
        ("MODIFIED", config_map("a", "red", 3, 3)),
        ("ADDED", config_map("b", "", 4, 4)),
        ("DELETED", config_map("b", "", 4, 5)),
    ],
    RED: [
        ("ADDED", config_map("a", "red", 1, 1)),
        ("DELETED", config_map("a", "red", 1, 2)),
        ("ADDED", config_map("a", "red", 3, 3)),
    ],
}


def rules(broken: list[Broken]) -> list[str]:
    return [rule for rule, _ in broken]


@pytest.mark.parametrize("scope", [ALL, RED], ids=str)
@pytest.mark.parametrize("after", range(5))
async def test_a_watch_from_any_revision_that_sends_each_change_once_keeps_the_rules(scope: Scope, after: int) -> None:
    check, broken = WatchCheck(await history(), scope, after), list[Broken]()
    for kind, obj in EVENTS[scope]:
        if int(obj["metadata"]["resourceVersion"]) > after:
            broken += check.event(kind, obj)
    assert broken + check.bookmark(5) + check.overdue() == []


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param([0, 2], ["watch gap"], id="a change is missing"),
        pytest.param([0, 1, 1], ["watch order"], id="a change comes twice"),
        pytest.param([0, 2, 1], ["watch gap", "watch order"], id="two changes in the wrong order"),
    ],
)
async def test_events_that_are_missing_repeated_or_out_of_order_are_reported(
    order: list[int], expected: list[str]
) -> None:
    check, broken = WatchCheck(await history(), ALL, 0), list[Broken]()
    for index in order:
        broken += check.event(*EVENTS[ALL][index])
    assert rules(broken) == expected


@pytest.mark.parametrize(
    ("kind", "obj"),
    [
        ("MODIFIED", config_map("a", "red", 1, 1)),
        ("ADDED", config_map("a", "red", 9, 1)),
    ],
    ids=["type", "content"],
)
async def test_an_event_that_is_not_the_change_is_reported(kind: str, obj: Object) -> None:
    assert rules(WatchCheck(await history(), RED, 0).event(kind, obj)) == ["watch event"]


async def test_an_object_that_does_not_match_the_selector_is_reported() -> None:
    assert rules(WatchCheck(await history(), RED, 3).event("ADDED", config_map("b", "", 4, 4))) == ["watch event"]


async def test_a_bookmark_must_be_true() -> None:
    check = WatchCheck(await history(), RED, 1)
    assert rules(check.bookmark(3)) == ["watch gap", "watch gap"]
    assert rules(check.event(*EVENTS[RED][2])) == ["watch order"]
    assert rules(check.bookmark(2)) == ["bookmark"] and rules(check.bookmark(99)) == ["bookmark"]


async def test_events_that_never_come_are_reported_in_the_end() -> None:
    assert rules(WatchCheck(await history(), ALL, 3).overdue()) == ["watch gap", "watch gap"]
    assert WatchCheck(await history(), RED, 3).overdue() == []


A, B = config_map("a", "red", 3, 3), config_map("b", "", 4, 4)


@pytest.mark.parametrize(
    ("scope", "pages", "begun", "expected"),
    [
        pytest.param(ALL, [(4, [A, B], None)], 4, [], id="a whole list"),
        pytest.param(ALL, [(4, [A], 1), (4, [B], None)], 4, [], id="two pages"),
        pytest.param(RED, [(5, [A], None)], 5, [], id="a selector"),
        pytest.param(ALL, [(4, [A], 1), (5, [B], None)], 4, ["list", "list"], id="a page of another revision"),
        pytest.param(ALL, [(4, [A], 7), (4, [B], None)], 4, ["list"], id="a wrong number of remaining objects"),
        pytest.param(ALL, [(4, [A], None)], 4, ["list"], id="an object is missing"),
        pytest.param(ALL, [(4, [B, A], None)], 4, ["list"], id="another order"),
        pytest.param(ALL, [(3, [config_map("a", "blue", 2, 2)], None)], 3, ["list"], id="an old state"),
        pytest.param(ALL, [(4, [A, B], None)], 5, ["stale read"], id="a list of the past"),
        pytest.param(ALL, [(9, [A], None)], 5, ["list"], id="a list of the future"),
    ],
)
async def test_a_list_has_the_objects_of_one_revision(
    scope: Scope, pages: list[tuple[int, list[Object], int | None]], begun: int, expected: list[str]
) -> None:
    check, broken = ListCheck(await history(), scope, begun), list[Broken]()
    for index, (revision, items, remaining) in enumerate(pages):
        broken += check.page(revision, items, remaining, last=index == len(pages) - 1)
    assert rules(broken) == expected


@pytest.mark.parametrize(
    ("key", "obj", "begun", "expected"),
    [
        ("a", A, 3, []),
        ("a", config_map("a", "blue", 2, 2), 2, []),
        ("a", config_map("a", "blue", 2, 2), 3, ["stale read"]),
        ("a", None, 0, []),
        ("a", None, 1, ["stale read"]),
        ("b", B, 4, []),
        ("b", B, 5, ["stale read"]),
        ("b", None, 5, []),
    ],
)
async def test_a_read_returns_a_state_since_its_beginning(
    key: str, obj: Object | None, begun: int, expected: list[str]
) -> None:
    assert rules(check_get(await history(), ALL, f"{MAPS}shop/{key}", obj, begun)) == expected


async def test_the_history_is_bounded_and_what_it_dropped_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(true_history, "MOST_CHANGES", 2)
    found = await history()
    assert found.floor == 3 and [change.revision for change in found.after(MAPS, 0)] == [4, 5]
    assert not WatchCheck(found, ALL, 2).checkable and WatchCheck(found, ALL, 3).checkable
    assert list(found.listed(ALL, 4)) == [f"{MAPS}shop/a", f"{MAPS}shop/b"]
