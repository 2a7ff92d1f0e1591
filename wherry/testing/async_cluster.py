"""A cluster for asyncio's tests: `async with AsyncCluster(nodes=3) as cluster:`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from kube.client import Client
from kube.clock import Clock
from kube.collecting import count_as_old, uncollected
from kube.json_object import Object
from wherry.testing import conditions
from wherry.testing.async_objects import AsyncObjects
from wherry.testing.async_pods import AsyncNode, AsyncPods
from wherry.testing.async_states import AsyncStates
from wherry.testing.conditions import Condition
from wherry.testing.errors import ClusterError, WaitError
from wherry.testing.resources import Resources
from wherry.testing.timing.real import LOOK_SECONDS, RealTime
from wherry.testing.timing.virtual import REACTION_SECONDS, VirtualTime

if TYPE_CHECKING:
    from wherry.testing.saving.cluster_state import ClusterState

START_SECONDS = 60.0


class AsyncCluster(AsyncObjects, AsyncStates):
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
        self._state: ClusterState | None = None
        self._stack = contextlib.AsyncExitStack()
        self.pods = AsyncPods(lambda: self.engine)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        time: Literal["real", "virtual"] | None = None,
        reaction: float = REACTION_SECONDS,
        timeout: float | None = None,
        port: int = 0,
    ) -> Self:
        """Return a cluster with the state that `save` wrote to a file. Raise ClusterError.

        time: by default that of the saved cluster; virtual time begins when it was saved.
        """
        from wherry.testing.saving import cluster_state

        state = cluster_state.read(Path(path))
        time = time or state.time
        start = state.now if time == "virtual" else None
        cluster = cls(0, time=time, start=start, reaction=reaction, timeout=timeout, port=port)
        cluster._state = state
        return cluster

    async def __aenter__(self) -> Self:
        imported = "wherry.testing.engine" in sys.modules
        with uncollected():  # a thousand modules, none of which is garbage
            from wherry.testing import default_objects
            from wherry.testing.engine import engine, import_components

            import_components()
            if not imported:
                count_as_old()
        self._loop = asyncio.get_running_loop()
        start = self._start or datetime.now(UTC).replace(microsecond=0)
        self._time = VirtualTime(start, self._reaction) if self._virtual else RealTime()
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._time.installed())
            async with self._time.flowing():
                self.engine = await stack.enter_async_context(
                    engine(self._number, self._time.clock, port=self._port, state=self._state)
                )
                self._time.observe(self.engine.api)
                self._resources = Resources(self.engine.client)
                await self._started()
                if self._state is None:
                    default_objects.keep(self.engine.store)
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

    async def __aexit__(self, kind: type[BaseException] | None, *failure: Any) -> None:
        """End the cluster. Raise ClusterError if the block has not failed, but has an unused script."""
        try:
            if kind is None:
                self.pods.check_scripts()
        finally:
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

    def transport(self, user: str = "kubernetes-admin", groups: Sequence[str] | None = None) -> Any:
        """Return a transport into this process for clients of httpx and httpx2, blocking ones and those for asyncio.

        Requests act as a user in groups, by default as the administrator; those with a bearer token as its owner.
        """
        from wherry.testing.transport import Transport

        return Transport(self.engine.api, self._loop, user, groups)

    @property
    def nodes(self) -> Sequence[str]:
        """Names of the simulated nodes."""
        return self.engine.nodes.names()

    def node(self, name: str) -> AsyncNode:
        """Return a node by its name: node-1, node-2 and so on."""
        return AsyncNode(self.engine.nodes, name)

    async def add_node(
        self, name: str = "", *, labels: dict[str, str] | None = None, capacity: dict[str, str] | None = None
    ) -> AsyncNode:
        """Add a node."""
        node = await self.engine.nodes.add(name, labels=labels, capacity=capacity)
        return AsyncNode(self.engine.nodes, node.name)

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
        check = conditions.compiled(condition, resource.api_version, resource.kind)
        path = resource.path(namespace, name)
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
                wanted, state = conditions.named(condition), conditions.seen(obj, condition)
                raise WaitError(f"{reference}: not {wanted} within {limit:g} s; last seen: {state}")
