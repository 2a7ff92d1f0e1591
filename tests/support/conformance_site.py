"""A control plane with controllers, a scheduler and hollow nodes, spoken to in plain JSON as upstream's conformance tests do.

Those tests patch, replace and watch through clients that hide nothing: a status is written as a merge patch, a change is
waited for in a watch that began before it. So requests here are paths and dicts, and a `Watch` keeps every event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kube.json_object import Object
from kube.resources import RESOURCES
from tests.support.control import ApiUnderTest
from tests.support.hollow import eventually
from tests.support.hollow_cluster import Cluster, hollow_cluster

MERGE, STRATEGIC, JSON_PATCH = (
    f"application/{name}+json" for name in ("merge-patch", "strategic-merge-patch", "json-patch")
)
APPLY = "application/apply-patch+yaml"
_ROOTS = {}
for _resource in reversed(RESOURCES):
    _ROOTS[_resource.plural] = _resource


def place(plural: str, namespace: str = "", name: str = "", subresource: str = "", **query: str) -> str:
    """Return the path of a built-in resource in its first version; `query` becomes the query, `_` in its names left as is."""
    path = _ROOTS[plural].path(namespace)
    path += "".join(f"/{part}" for part in (name, subresource) if part)
    return path + ("?" + "&".join(f"{k}={quote(v)}" for k, v in query.items()) if query else "")


class Watch:
    """The events of a watch so far."""

    def __init__(self) -> None:
        self.events: list[Object] = []
        self._more = asyncio.Event()

    def note(self, event: Object) -> None:
        self.events.append(event)
        self._more.set()

    async def until(self, type: str, holds: Callable[[Object], Any] = lambda obj: True, within: float = 30) -> Object:
        """Wait for an event of a type whose object is as wanted, and return the object."""
        seen = 0
        async with asyncio.timeout(within):
            while True:
                for event in self.events[seen:]:
                    seen += 1
                    if event["type"] == type and holds(event["object"]):
                        found: Object = event["object"]
                        return found
                self._more.clear()
                await self._more.wait()


class Site:
    """One control plane; each test takes a namespace of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.server: ApiUnderTest = cluster.server
        self.nodes, self.client = cluster.nodes, cluster.client
        self._count = 0

    async def namespace(self, **labels: str) -> str:
        """Make a namespace with its service account, and return its name."""
        self._count += 1
        name = f"t{self._count}"
        await self.post(place("namespaces"), {"metadata": {"name": name, "labels": labels}})
        await eventually(lambda: self.get(place("serviceaccounts", name, "default")))
        return name

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        sent = {"Accept-Encoding": "identity"} | {key.replace("_", "-"): value for key, value in headers.items()}
        answer = await self.server.request(method, path, body, headers=sent)
        return answer.status, answer.json if answer.body else None

    async def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        code, answer = await self.send(method, path, body, **headers)
        assert 200 <= code < 300, (method, path, code, answer)
        return answer

    async def refused(self, code: int, method: str, path: str, body: Any = None, **headers: str) -> str:
        """Send what must be refused with a code, and return the message."""
        found, answer = await self.send(method, path, body, **headers)
        assert found == code, (method, path, found, answer)
        return str(answer["message"])

    async def get(self, path: str) -> Object | None:
        """Return an object, or nothing where there is none."""
        code, answer = await self.send("GET", path)
        assert code in (200, 404), (path, code, answer)
        return answer if code == 200 else None

    async def read(self, path: str) -> Object:
        found: Object = await self.ok("GET", path)
        return found

    async def items(self, path: str) -> list[Object]:
        found: list[Object] = (await self.ok("GET", path))["items"]
        return found

    async def post(self, path: str, body: Object) -> Object:
        found: Object = await self.ok("POST", path, body)
        return found

    async def patch(self, path: str, body: Any, type: str = STRATEGIC) -> Object:
        found: Object = await self.ok("PATCH", path, json.dumps(body).encode(), Content_Type=type)
        return found

    async def change(self, path: str, change: Callable[[Object], object], subresource: str = "") -> Object:
        """Read an object, change it and put it back; once more where somebody else was quicker."""
        async with asyncio.timeout(30):
            while True:
                obj = await self.read(path)
                change(obj)
                code, answer = await self.send("PUT", path + (f"/{subresource}" if subresource else ""), obj)
                if code != 409:
                    assert code == 200, answer
                    found: Object = answer
                    return found

    async def delete(self, path: str, **options: Any) -> Object:
        found: Object = await self.ok("DELETE", path, options or None)
        return found

    async def gone(self, path: str, within: float = 30) -> None:
        """Wait until an object, or the last of a collection, is gone."""

        async def absent() -> bool:
            found = await self.get(path)
            return found is None or found.get("items") == []

        await eventually(absent, within=within)

    async def settles(self, path: str, holds: Callable[[Object], Any], within: float = 30) -> Object:
        """Wait until an object (or list) is as wanted, and return it."""
        found: Object = {}

        async def settled() -> Any:
            nonlocal found
            found = await self.get(path) or {}
            return found and holds(found)

        try:
            await eventually(settled, within=within)
        except TimeoutError as error:
            raise AssertionError(f"{path} stayed {json.dumps(found)[:3000]}") from error
        return found

    async def kubectl(self, *arguments: str, **options: Any) -> str:
        return await self.cluster.kubectl(*arguments, **options)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        """Watch a collection from where it stands now (or from `resourceVersion`)."""
        query.setdefault("resourceVersion", (await self.read(path))["metadata"]["resourceVersion"])
        watch, session = Watch(), self.server.session()

        async def follow(answer: Any) -> None:
            async for line in answer.content:
                watch.note(json.loads(line))

        async with session.get(path, params={"watch": "1", **query}) as answer:
            assert answer.status == 200, await answer.text()
            task = asyncio.create_task(follow(answer), name="watch")
            try:
                yield watch
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def site(folder: Path, nodes: int = 2) -> AsyncIterator[Site]:
    """Run a control plane with hollow nodes n0, n1, ..."""
    async with hollow_cluster(folder) as cluster:
        for number in range(nodes):
            await cluster.nodes.register(f"n{number}")
        yield Site(cluster)


def template(labels: dict[str, str], image: str = "httpd", **spec: Any) -> Object:
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": image}], **spec},
    }


def condition(kind: str) -> Object:
    """Return a condition as upstream's tests lay it into a status."""
    return {"type": kind, "status": "True", "reason": "E2E", "message": "Set by a test"}


def has(kind: str) -> Callable[[Object], bool]:
    return lambda obj: any(c["type"] == kind for c in obj.get("status", {}).get("conditions", []))
