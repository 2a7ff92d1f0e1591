"""Deleted objects are released: no informer, controller, scheduler, plugin or cache of the control plane keeps them.

Where an object's name or namespace is found afterwards, in whatever dict, set, list or tuple of the process, it must belong to
one of those that are known to have a bound.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from control.registry import deletion
from control.server.deleting import DELETE_WORKERS
from control.storage import entry, recent_changes
from control.storage.entry import Entry
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually, running

MARK = "kept-"
RING, VIEWS = 4, 4
BOUNDED = frozenset(
    {
        "EventRecorder",  # the last 4096 events, by whom they are about
        "_Similar",
        "Fairness",  # the last 8192 flows
        "GarbageCollector",  # the last 500 owners that were not there
        "Expiries",  # when stored events end
        "DelayedKeys",  # until a delay is over
        "Journal",  # 20 MiB of decisions
        "_Ring",
        "Requirement",  # of selectors that were asked for last
        "Permissions",  # the test's own
        "_Noting",
    }
)
CONTAINERS = [{"name": "c", "image": "i"}]


async def make(server: ApiUnderTest, number: int) -> None:
    """Create some of what controllers manage."""
    labels = {"app": f"kept-{number}"}
    namespace = "namespaces/kept-ns"
    hard = {"hard": {"pods": "1000"}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
    once = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
    for path, spec in (
        (f"/api/v1/{namespace}/configmaps", {}),
        (f"/api/v1/{namespace}/secrets", {}),
        (f"/api/v1/{namespace}/serviceaccounts", {}),
        (f"/api/v1/{namespace}/resourcequotas", hard),
        (f"/api/v1/{namespace}/services", {"selector": labels, "ports": [{"port": 80}]}),
        (f"/apis/policy/v1/{namespace}/poddisruptionbudgets", {"selector": {"matchLabels": labels}, "minAvailable": 1}),
        (f"/apis/apps/v1/{namespace}/deployments", {"selector": {"matchLabels": labels}, "template": template}),
        (f"/apis/apps/v1/{namespace}/statefulsets", {"selector": {"matchLabels": labels}, "template": template}),
        (f"/apis/apps/v1/{namespace}/daemonsets", {"selector": {"matchLabels": labels}, "template": template}),
        (f"/apis/batch/v1/{namespace}/jobs", {"template": once}),
        (
            f"/apis/batch/v1/{namespace}/cronjobs",
            {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": once}}},
        ),
    ):
        body = {"metadata": {"name": f"kept-{number}"}, **({"spec": spec} if spec else {})}
        answer = await server.request("POST", path, body)
        assert answer.status == 201, answer.body


def owners() -> Counter[str]:
    """Return the types of the objects that hold a marked name in a container of theirs, and how many such names."""
    gc.collect()
    everything = gc.get_objects()
    containers = (each for each in everything if isinstance(each, dict | set | frozenset | list | tuple))
    marked = {id(each): hits for each in containers if (hits := sum(map(_marked, list(each))))}
    found: Counter[str] = Counter()
    for each in everything:
        if type(each).__module__ in sys.modules and str(type(each).__module__).startswith(
            ("kube.", "control.", "tests.")
        ):
            held = gc.get_referents(each)  # a dict of dicts is looked into, too
            for inner in [*held, *(deeper for one in held if isinstance(one, dict) for deeper in one.values())]:
                found[type(each).__name__] += marked.get(id(inner), 0)
    return +found


def _marked(key: Any) -> bool:
    if isinstance(key, tuple):
        return any(isinstance(part, str) and MARK in part for part in key)
    return isinstance(key, str) and MARK in key


def typed() -> list[str]:
    """Return the marked objects that informers or others hold as structs."""
    structs = [each for each in gc.get_objects() if isinstance(each, msgspec.Struct) and hasattr(each, "metadata")]
    return [type(each).__name__ for each in structs if MARK in str(each.metadata) and type(each).__name__ != "Event"]


async def test_nothing_of_a_namespace_that_is_gone_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_changes, "MOST_CHANGES", RING)
    monkeypatch.setattr(recent_changes, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(entry, "KEPT_VIEWS", VIEWS)
    async with api_server(tmp_path) as server, running(server.controllers(), server.scheduler()):

        async def status(path: str) -> int:
            return (await server.request("GET", path)).status

        await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "kept-ns"}})
        account = "/api/v1/namespaces/kept-ns/serviceaccounts/default"

        async def has_account() -> bool:
            return await status(account) == 200

        await eventually(has_account)
        for number in range(5):
            await make(server, number)

        async def has_pods() -> bool:
            found = (await server.request("GET", "/api/v1/namespaces/kept-ns/pods")).json["items"]
            return len(found) >= 15

        await eventually(has_pods)
        await server.request("DELETE", "/api/v1/namespaces/kept-ns")

        async def gone() -> bool:
            return await status("/api/v1/namespaces/kept-ns") == 404

        await eventually(gone)
        for number in range(VIEWS + RING):  # what was looked at last is kept
            answer = await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": f"other-{number}"}})
            assert answer.status == 201

        async def forgotten() -> bool:
            return not (owners().keys() - BOUNDED) and not typed()

        try:
            await eventually(forgotten, within=20)
        except TimeoutError:
            raise AssertionError((owners(), Counter(typed()))) from None
        states = [each for each in gc.get_objects() if isinstance(each, Entry) and MARK in each.key]
        counts = Counter(state.key.split("/")[2] for state in states)
        counts.pop("events", None)
        assert max(counts.values(), default=0) <= 2 * RING + VIEWS, counts


async def test_a_collective_deletion_takes_as_many_tasks_as_workers_however_many_objects_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api_server(tmp_path) as server:
        path = "/api/v1/namespaces/default/configmaps"
        for number in range(10 * DELETE_WORKERS):
            answer = await server.request("POST", path, {"metadata": {"name": f"c-{number}"}})
            assert answer.status == 201
        before, most, delete = len(asyncio.all_tasks()), 0, deletion.delete

        async def counted(*arguments: Any) -> Any:
            nonlocal most
            most = max(most, len(asyncio.all_tasks()) - before)
            return await delete(*arguments)

        monkeypatch.setattr(deletion, "delete", counted)
        assert (await server.request("DELETE", path)).status == 200
        assert DELETE_WORKERS <= most < 2 * DELETE_WORKERS
        assert (await server.request("GET", path)).json["items"] == []
