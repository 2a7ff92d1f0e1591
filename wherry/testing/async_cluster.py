"""A cluster for asyncio's tests: `async with AsyncCluster(nodes=3) as cluster:`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from kube.client import APPLY, JSON, MERGE, Client
from kube.clock import Clock
from kube.collecting import uncollected
from kube.errors import StatusError
from wherry.testing import conditions
from wherry.testing.async_pods import AsyncNode, AsyncPods
from wherry.testing.conditions import Condition
from wherry.testing.errors import ClusterError, WaitError
from wherry.testing.manifests import Object, Source, objects
from wherry.testing.resources import Resource, Resources
from wherry.testing.timing.real import LOOK_SECONDS, RealTime
from wherry.testing.timing.virtual import REACTION_SECONDS, VirtualTime

if TYPE_CHECKING:
    from wherry.testing.snapshots import AsyncSnapshot

MANAGER = "wherry-testing"
START_SECONDS = 60.0
SERVED_SECONDS = 10.0
"""Time that the kind of an object may take to be served after its definition was applied."""


class AsyncCluster:
    """A cluster that exists while the block runs.

    time: `real`, or `virtual`: it passes only in `advance`, `settle` and `wait`, and begins at `start` (by default now).
    reaction: real seconds that clients on sockets have to react to events and responses before virtual time passes.
    timeout: limit of each wait, in seconds, by default 30, and 3600 in virtual time. port 0 is a free one.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        time: Literal["real", "virtual"] = "real",
        start: datetime | None = None,
        reaction: float = REACTION_SECONDS,
        timeout: float | None = None,
        port: int = 0,
    ) -> None:
        if time not in ("real", "virtual"):
            raise ClusterError(f"time is {time!r}: it is real or virtual")
        if start is not None and (time == "real" or start.tzinfo is None):
            raise ClusterError("start is the beginning of virtual time, a datetime with a time zone")
        if nodes < 0:
            raise ClusterError(f"nodes is {nodes}: it is the number of simulated nodes")
        self._number, self._timeout, self._port = nodes, timeout, port
        self._virtual, self._start, self._reaction = time == "virtual", start, reaction
        self._stack = contextlib.AsyncExitStack()
        self.pods = AsyncPods(lambda: self.engine)

    async def __aenter__(self) -> Self:
        with uncollected():  # 1 300 modules, none of which is garbage
            from wherry.testing.engine import engine, load

            load()
        start = self._start or datetime.now(UTC).replace(microsecond=0)
        self._time = VirtualTime(start, self._reaction) if self._virtual else RealTime()
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._time.installed())
            async with self._time.flowing():
                self.engine = await stack.enter_async_context(engine(self._number, self._time.clock, port=self._port))
                self._time.observe(self.engine.api)
                self._resources = Resources(self.engine.client)
                await self._started()
            self._stack = stack.pop_all()
        return self

    async def _started(self) -> None:
        """Wait in real time until pods can be created."""
        resource, name = await self._reference("serviceaccount/default")
        path = resource.path("default", name)
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._find(path):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise ClusterError(f"the cluster has no service account default after {START_SECONDS:g} s") from None

    async def __aexit__(self, *failure: Any) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """The server's address, for clients that have `kubeconfig`'s credentials."""
        return self.engine.url

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig."""
        return self.engine.kubeconfig()

    @property
    def client(self) -> Client:
        """Wherry's typed client (kube.client), in this process."""
        return self.engine.client

    @property
    def nodes(self) -> Sequence[str]:
        """Names of the simulated nodes."""
        return self.engine.nodes.names()

    async def snapshot(self) -> AsyncSnapshot:
        """Return the present state, which its method `restore` returns to."""
        from wherry.testing.snapshots import AsyncSnapshot

        return await AsyncSnapshot.take(self.engine)

    def node(self, name: str) -> AsyncNode:
        """Return a node by its name: node-1, node-2 and so on."""
        return AsyncNode(self.engine.nodes, name)

    async def add_node(
        self, name: str = "", *, labels: dict[str, str] | None = None, capacity: dict[str, str] | None = None
    ) -> AsyncNode:
        """Add a node."""
        node = await self.engine.nodes.add(name, labels=labels, capacity=capacity)
        return AsyncNode(self.engine.nodes, node.name)

    # -- objects --------------------------------------------------------------------------------------------------
    async def apply(self, source: Source, *, namespace: str = "default") -> list[Object]:
        """Apply objects by server-side apply, in order; return them as the server has them. Raise ClusterError."""
        return [await self._apply(obj, namespace) for obj in objects(source)]

    async def _apply(self, obj: Object, namespace: str) -> Object:
        resource = await self._served(obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        where = (metadata.get("namespace") or namespace) if resource.namespaced else ""
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        body = msgspec.json.encode(obj)
        try:
            if metadata.get("name"):
                path = resource.path(where, metadata["name"])
                answer = await self.client.call("PATCH", path, query=query, body=body, content_type=APPLY)
            else:
                query.pop("force")
                answer = await self.client.call("POST", resource.path(where), query=query, body=body)
        except StatusError as error:
            name = metadata.get("name") or metadata.get("generateName")
            raise ClusterError(f"{obj['kind']} {name}: {error.message}") from error
        return _decoded(answer)

    async def create(self, obj: Mapping[str, Any], *, namespace: str = "default") -> Object:
        """Create an object, also of a kind that cannot be applied (SubjectAccessReview); return the answer."""
        resource = await self._served(str(obj.get("apiVersion")), str(obj.get("kind")))
        where = ((obj.get("metadata") or {}).get("namespace") or namespace) if resource.namespaced else ""
        return _decoded(await self._call("POST", resource.path(where), body=msgspec.json.encode(obj)))

    async def _served(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a kind whose definition may have been applied just now."""
        deadline = self._time.clock.monotonic() + SERVED_SECONDS
        resource = await self._resources.of_kind(api_version, kind)
        while True:
            revision = self._time.revision()
            try:
                await self.client.call("GET", resource.path(), query={"limit": "1"})
                return resource
            except StatusError as error:
                if error.code == 405:
                    return resource  # it cannot be listed
                if not error.not_found or not await self._time.changed(revision, deadline):
                    raise ClusterError(f"{kind} in {api_version} is not served: {error.message}") from error

    async def get(self, reference: str, *, namespace: str = "default") -> Object:
        """Return an object by its reference (`deployment/web`). Raise ClusterError if there is none."""
        resource, name = await self._reference(reference)
        return _decoded(await self._call("GET", resource.path(namespace, name)))

    async def list(self, resource: str, *, namespace: str = "default", selector: str = "") -> list[Object]:
        """Return the objects of a resource in a namespace ("" is all of them)."""
        found = await self._resources.named(resource)
        query = {"labelSelector": selector} if selector else {}
        answer = _decoded(await self._call("GET", found.path(namespace), query=query))
        return list(answer["items"])

    async def patch(
        self, reference: str, patch: Object, *, namespace: str = "default", subresource: str = ""
    ) -> Object:
        """Change an object by a merge patch; return it."""
        resource, name = await self._reference(reference)
        path = resource.path(namespace, name, subresource)
        return _decoded(await self._call("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE))

    async def delete(self, reference: str, *, namespace: str = "default") -> None:
        """Delete an object, as kubectl does (in the background)."""
        resource, name = await self._reference(reference)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        await self._call("DELETE", resource.path(namespace, name), body=msgspec.json.encode(options))

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> bytes:
        try:
            return await self.client.call(method, path, query=query, body=body, content_type=content_type)
        except StatusError as error:
            raise ClusterError(error.message) from error

    async def _reference(self, reference: str) -> tuple[Resource, str]:
        kind, slash, name = reference.partition("/")
        if not kind or not slash or not name:
            raise ClusterError(f"{reference!r} names no object: write resource/name, for example deployment/web")
        return await self._resources.named(kind), name

    # -- waiting --------------------------------------------------------------------------------------------------
    @property
    def clock(self) -> Clock:
        """The cluster's clock (kube.clock), for components of Wherry that a test runs."""
        return self._time.clock

    @property
    def now(self) -> datetime:
        """The cluster's time."""
        return self._time.clock.now()

    async def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let virtual time pass; everything that happens meanwhile happens at its time."""
        await self._time.advance(timedelta(days, seconds, 0, 0, minutes, hours).total_seconds())

    async def settle(self, *, quiet: float = 60.0, timeout: float | None = None) -> None:
        """Let virtual time pass until no object has changed for `quiet` seconds. Raise ClusterError after `timeout`."""
        await self._time.settle(quiet, self._limit(timeout))

    @contextlib.asynccontextmanager
    async def time_passing(self, *, speed: float = 60.0) -> AsyncIterator[None]:
        """Let virtual time pass while the block runs, at most so many times as fast as real time: for clients that wait."""
        async with self._time.passing(speed):
            yield

    def _limit(self, timeout: float | None) -> float:
        given = self._timeout if timeout is None else timeout
        return self._time.timeout if given is None else given

    async def wait(
        self, reference: str, condition: Condition, *, namespace: str = "default", timeout: float | None = None
    ) -> Object:
        """Wait until an object meets a condition; return it ({} if it was deleted). Raise WaitError.

        The condition is the type of a status condition (`Available`, `Ready=False`), `exists`, `deleted`, a field and its value
        (`status.phase=Running`), or a function of the object, which may be a coroutine function.
        """
        resource, name = await self._reference(reference)
        check, path = conditions.compiled(condition), resource.path(namespace, name)
        limit = self._limit(timeout)
        deadline = self._time.clock.monotonic() + limit
        while True:
            revision = self._time.revision()
            obj = await self._find(path)
            met = check(obj)
            if await met if inspect.isawaitable(met) else met:
                await self._time.rest()
                return obj
            if not await self._time.changed(revision, deadline):
                await self._time.rest()
                wanted = condition if isinstance(condition, str) else getattr(condition, "__name__", "the condition")
                raise WaitError(f"{reference}: not {wanted} within {limit:g} s; last seen: {conditions.described(obj)}")

    async def _find(self, path: str) -> Object:
        try:
            return _decoded(await self.client.call("GET", path))
        except StatusError as error:
            if error.not_found:
                return {}
            raise ClusterError(error.message) from error


def _decoded(data: bytes) -> Object:
    found: Object = msgspec.json.decode(data)
    return found
