"""A cluster for tests without asyncio: its event loop runs in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from kube.json_object import Object
from wherry.testing.async_cluster import AsyncCluster
from wherry.testing.conditions import Condition
from wherry.testing.errors import ClusterError
from wherry.testing.objects import Objects
from wherry.testing.pods import Node, Pods
from wherry.testing.timing.virtual import REACTION_SECONDS

if TYPE_CHECKING:
    from wherry.testing.history.history import History
    from wherry.testing.snapshots import AsyncSnapshot

T = TypeVar("T")
STOP_SECONDS = 30.0


class Snapshot:
    """A state of a cluster that `restore` returns to, as often as wanted."""

    def __init__(self, cluster: Cluster, snapshot: AsyncSnapshot) -> None:
        self._cluster, self._snapshot = cluster, snapshot

    def restore(self) -> None:
        """Make objects, nodes and scripts what they were. Nodes that had failed run again."""
        self._cluster.run(self._snapshot.restore())


class Cluster(Objects):
    """A cluster that exists while the block runs.

    time: `real`, or `virtual`: it passes only in `advance`, `settle` and `wait`, and begins at `start` (by default now).
    reaction: real seconds that clients on sockets have to react to events and responses before virtual time passes.
    timeout: limit of each wait, in seconds, by default 30, and 3600 in virtual time.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        time: Literal["real", "virtual"] = "real",
        start: datetime | None = None,
        reaction: float = REACTION_SECONDS,
        timeout: float | None = None,
    ) -> None:
        self.running = AsyncCluster(nodes, time=time, start=start, reaction=reaction, timeout=timeout)
        self.pods = Pods(self.call, self.running.pods)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting: asyncio.Task[Any] | None = None

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        time: Literal["real", "virtual"] | None = None,
        reaction: float = REACTION_SECONDS,
        timeout: float | None = None,
    ) -> Self:
        """Return a cluster with the state that `save` wrote to a file. Raise ClusterError.

        time: by default that of the saved cluster; virtual time begins when it was saved.
        """
        cluster = cls()
        cluster.running = AsyncCluster.load(path, time=time, reaction=reaction, timeout=timeout)
        cluster.pods = Pods(cluster.call, cluster.running.pods)
        return cluster

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ClusterError("the cluster has been started already: make another one")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wherry.testing", daemon=True)
        self._thread.start()
        try:
            self.run(self._start())
        except BaseException:
            self._stop()
            raise
        return self

    async def _start(self) -> None:
        self._starting = asyncio.current_task()
        await self.running.__aenter__()

    def __exit__(self, kind: type[BaseException] | None, *failure: Any) -> None:
        try:
            self.run(self.running.__aexit__(kind, *failure))
        finally:
            self._stop()

    def _stop(self) -> None:
        assert self._loop is not None and self._thread is not None
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end_tasks(self._starting), self._loop).result(STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
        self._loop = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's event loop and return its result."""
        if threading.current_thread() is self._thread:
            work.close()
            raise ClusterError("a container's script cannot use the cluster, which waits for it")
        task = self.submit(work)
        try:
            return task.result()
        except BaseException:
            task.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine on the cluster's event loop."""
        if self._loop is None:
            work.close()
            raise ClusterError("the cluster does not run: use it in its with block")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the cluster's event loop and return its result."""

        async def called() -> T:
            return function()

        return self.run(called())

    @property
    def url(self) -> str:
        """The server's address, for clients that have `kubeconfig`'s credentials."""
        return self.running.url

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig."""
        return self.running.kubeconfig

    def transport(self, user: str = "kubernetes-admin", groups: Sequence[str] | None = None) -> Any:
        """Return a transport into this process for clients of httpx and httpx2, blocking ones and those for asyncio.

        Requests act as a user in groups, by default as the administrator; those with a bearer token as its owner.
        """
        return self.running.transport(user, groups)

    @property
    def nodes(self) -> Sequence[str]:
        """Names of the simulated nodes."""
        return self.running.nodes

    def snapshot(self) -> Snapshot:
        """Return the present state, which its method `restore` returns to."""
        return Snapshot(self, self.run(self.running.snapshot()))

    def record(self) -> None:
        """Record all changes of objects from now on, for `history`; forget those that were recorded before."""
        self.call(self.running.record)

    def history(self, test: str = "") -> History:
        """Return the changes since `record`, of a test with a name. Raise ClusterError if nothing is recorded."""
        return self.call(lambda: self.running.history(test))

    def save(self, path: str | Path) -> None:
        """Write the cluster's state to a file, with mode 0600, which `load` reads in another process. Raise ClusterError.

        It has all objects with Secrets, the cluster's keys, the nodes with their pods, and the scripts, but no functions.
        """
        self.run(self.running.save(path))

    def node(self, name: str) -> Node:
        """Return a node by its name: node-1, node-2 and so on."""
        return Node(self.call, self.run, self.running.node(name))

    def add_node(
        self, name: str = "", *, labels: dict[str, str] | None = None, capacity: dict[str, str] | None = None
    ) -> Node:
        """Add a node."""
        return Node(self.call, self.run, self.run(self.running.add_node(name, labels=labels, capacity=capacity)))

    @property
    def now(self) -> datetime:
        """The cluster's time."""
        return self.running.now

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let virtual time pass; everything that happens meanwhile happens at its time."""
        self.run(self.running.advance(seconds=seconds, minutes=minutes, hours=hours, days=days))

    def settle(self, *, quiet: float = 60.0, timeout: float | None = None) -> None:
        """Let virtual time pass until no object has changed for `quiet` seconds. Raise ClusterError after `timeout`."""
        self.run(self.running.settle(quiet=quiet, timeout=timeout))

    @contextlib.contextmanager
    def time_passing(self, *, speed: float = 60.0) -> Iterator[None]:
        """Let virtual time pass while the block runs, at most so many times as fast as real time: for clients that wait."""
        passing = self.running.time_passing(speed=speed)
        self.run(passing.__aenter__())
        try:
            yield
        finally:
            self.run(passing.__aexit__(None, None, None))

    def wait(
        self, reference: str, condition: Condition, *, namespace: str = "default", timeout: float | None = None
    ) -> Object:
        """Wait until an object meets a condition (`Available`, `deleted`, `status.phase=Running`, a function); return it."""
        if callable(condition):
            condition = _in_a_thread(condition)  # it may use the cluster
        return self.run(self.running.wait(reference, condition, namespace=namespace, timeout=timeout))


async def _end_tasks(starting: asyncio.Task[Any] | None) -> None:
    """Wait until a start that was interrupted has undone itself; end all other tasks, and the event loop's threads."""
    if starting is not None:
        await asyncio.wait((starting,))
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def _in_a_thread(check: Callable[[Object], Any]) -> Callable[[Object], Any]:
    @functools.wraps(check)
    def called(obj: Object) -> Coroutine[Any, Any, Any]:
        return asyncio.to_thread(check, obj)

    return called
