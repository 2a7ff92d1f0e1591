"""Controllers ask for few things at once, however many objects there are: a task for each floods the server that they share."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest

from control.controllers import concurrent_requests
from control.controllers.concurrent_requests import CONCURRENCY, for_each
from control.controllers.context import Context
from control.controllers.discovery import DiscoveredResource
from control.controllers.garbage import GarbageCollector
from control.controllers.garbage.graph import ORPHAN, Item
from control.controllers.garbage.metadata import Owner
from kube.errors import StatusError, conflict
from tests.support.clock import FakeClock, settle
from tests.support.product_world import World

FOLDER = Path(concurrent_requests.__file__).parent
MAPS = DiscoveredResource("", "v1", "configmaps", "ConfigMap", True, frozenset())
ALLOWED = {
    "concurrent_requests.py": "16 workers",
    "gateway/listening_nodes.py": "connections to nodes in batches of MOST_CONNECTIONS",
    "local_path/removals.py": "awaits tasks that it has cancelled; their requests have 4 places",
    "namespace.py": "one for each kind of objects that the server has",
}


def starred(source: str) -> list[int]:
    """Return the lines that gather as many awaitables as there are of something."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "gather"
        and any(isinstance(argument, ast.Starred) for argument in node.args)
    ]


def in_loops(source: str) -> list[int]:
    """Return the lines that make tasks in a loop over objects of an informer, or of what was planned."""
    return [
        call.lineno
        for loop in ast.walk(ast.parse(source))
        if isinstance(loop, ast.For) and "list()" in ast.unparse(loop.iter)
        for call in ast.walk(loop)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "create_task"
    ]


def test_no_controller_makes_a_task_for_each_object() -> None:
    files = sorted(FOLDER.rglob("*.py"))
    found = {
        str(file.relative_to(FOLDER)): lines
        for file in files
        if (lines := starred(file.read_text()) + in_loops(file.read_text()))
    }
    assert found.keys() == ALLOWED.keys()


def test_a_task_for_each_object_is_seen() -> None:
    assert starred("await asyncio.gather(*(f(x) for x in y))\nawait asyncio.gather(a, b)") == [1]
    assert in_loops("for x in self._pods.list():\n    if x:\n        group.create_task(f(x))") == [3]


class Slow(World):
    """Counts the requests that are under way."""

    under_way = most = 0

    async def request(self, method: str, path: str, **options: Any) -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await settle(3)
        self.under_way -= 1
        return await super().request(method, path, **options)


async def test_dependents_are_orphaned_a_few_at_a_time() -> None:
    api = Slow()
    collector = GarbageCollector(Context(api.client(), FakeClock()))
    collector.graph.put(Item(MAPS, "default", "o", "o", "1", (), (ORPHAN,), True))
    for number in range(20 * CONCURRENCY):
        owner = Owner("v1", "ConfigMap", "o", "o", True)
        collector.graph.put(Item(MAPS, "default", f"d{number}", f"d{number}", "1", (owner,), (), False))
    task, tasks = asyncio.create_task(collector.reconcile("o")), list[int]()
    before = len(asyncio.all_tasks())
    while not task.done():
        await settle(1)
        tasks.append(len(asyncio.all_tasks()))
    await task
    assert (api.most, max(tasks) - before) == (CONCURRENCY, CONCURRENCY)


async def test_all_are_tried_and_the_first_failure_is_reported() -> None:
    tried = list[int]()

    async def act(number: int) -> None:
        tried.append(number)
        await asyncio.sleep(0)
        if number in (5, 30):
            raise conflict("", "pods", str(number), "changed")

    failure = await for_each(range(100), act)
    assert isinstance(failure, StatusError) and "5" in str(failure)
    assert sorted(tried) == list(range(100))
    assert await for_each((), act) is None


async def test_a_fault_is_raised_when_all_are_done() -> None:
    tried = list[int]()

    async def act(number: int) -> None:
        tried.append(number)
        if number == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await for_each(range(50), act)
    assert len(tried) == 50


async def test_a_cancelled_caller_sends_no_more_requests() -> None:
    tried = list[int]()

    async def act(number: int) -> None:
        tried.append(number)
        await asyncio.sleep(3600)

    task = asyncio.create_task(for_each(range(50), act))
    await settle(5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await settle(5)
    assert len(tried) == CONCURRENCY
