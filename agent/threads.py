"""Threads of the agent: a pool for its own files, and a thread for each call to a file system that may never return.

A call to a file system whose server is gone (NFS, a hung driver's mount) blocks its thread for as long as that lasts. In a pool
a few such calls would block the files of all pods. So calls that touch a volume run in daemon threads of their own: calls with
the same key (a pod's, a volume's) one after another, reads with the same key shared, and no more than `LIMIT` in all. Calls
that have not returned for a while count against the same pod, server or namespace (`Owner`), so that a hung file system of one
leaves threads for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from agent.usage.exposition import Text
from kube.api import core_v1

T = TypeVar("T")
FILES = 16
"""Threads for the agent's own files: a disk answers, however slowly."""
LIMIT = 512
"""Most concurrent calls to volumes."""
HUNG_SECONDS = 2.0
"""A call that has not returned by then counts as one that hangs."""
POD, SERVER, NAMESPACE = 4, 64, 256
"""Calls of a pod, of the pods of a namespace that use one server, and of a namespace that may hang before no more are begun."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The pod of a call. `servers` are where its volumes come from: NFS servers, CSI drivers, claims."""

    pod: str
    namespace: str = ""
    servers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pod: core_v1.Pod) -> Owner:
        servers = set()
        for volume in pod.spec.volumes:
            if volume.nfs is not None:
                servers.add(f"nfs {volume.nfs.server}")
            if volume.csi is not None:
                servers.add(f"csi {volume.csi.driver}")
            if volume.persistent_volume_claim is not None:
                servers.add(f"claim {volume.persistent_volume_claim.claim_name}")
        return cls(pod.metadata.uid or "", pod.metadata.namespace or "", frozenset(servers))

    def refusal(self, hung: Sequence[Owner]) -> str:
        """Return why no call may be begun beside those that hang, "" where one may."""
        if sum(other.pod == self.pod for other in hung) >= POD:
            return f"{POD} calls of the pod to file systems have not returned yet"
        near = [other for other in hung if self.namespace and other.namespace == self.namespace]
        if len(near) >= NAMESPACE:
            return f"{NAMESPACE} calls to file systems in the namespace have not returned yet"
        for server in sorted(self.servers):
            if sum(server in other.servers for other in near) >= SERVER:
                return f"{SERVER} calls to file systems of {server} have not returned yet"
        return ""


@dataclass(frozen=True, slots=True)
class _Call:
    future: asyncio.Future[Any]
    owner: Owner
    began: float


_running: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Call]] = WeakKeyDictionary()


def _calls() -> dict[str, _Call]:
    return _running.setdefault(asyncio.get_running_loop(), {})


async def call(key: str, function: Callable[..., T], *args: Any, owner: Owner | None = None) -> T:
    """Return what a function returns that may block for ever, once earlier calls with the same key have returned.

    Cancelling the wait does not end the thread. Raise OSError (EAGAIN) where too many calls do not return. Without an owner
    the key is that of a pod.
    """
    running = _calls()
    while (earlier := running.get(key)) is not None:
        await asyncio.wait((earlier.future,))
    result: T = await asyncio.shield(_start(running, key, owner or Owner(key), function, *args))
    return result


async def call_shared(key: str, function: Callable[..., T], *args: Any, owner: Owner | None = None) -> T:
    """Return the result of a function that only reads; concurrent calls with the same key share one."""
    running = _calls()
    under_way = running.get(key)
    if under_way is not None:
        shared: T = await asyncio.shield(under_way.future)
        return shared
    result: T = await asyncio.shield(_start(running, key, owner or Owner(key), function, *args))
    return result


def under_way(key: str) -> bool:
    """Return whether a call with a key has not returned yet."""
    return key in _calls()


def _start(
    running: dict[str, _Call], key: str, owner: Owner, function: Callable[..., T], *args: Any
) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    if len(running) >= LIMIT:
        raise OSError(errno.EAGAIN, f"{LIMIT} calls to file systems have not returned yet")
    hung = [call.owner for call in running.values() if loop.time() - call.began > HUNG_SECONDS]
    if refusal := owner.refusal(hung):
        raise OSError(errno.EAGAIN, refusal)
    future = begin(f"volume {key}", function, *args, ended=lambda: running.pop(key, None))
    running[key] = _Call(future, owner, loop.time())
    return future


def begin(name: str, function: Callable[..., T], *args: Any, ended: Callable[[], object]) -> asyncio.Future[T]:
    """Run a function in a daemon thread of its own; `ended` is called on the loop when it has returned."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        ended()
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)
            future.exception()  # whoever waited may have gone

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


class Threads:
    """The pool of this process's loop, and how full it and the calls to volumes are, for /metrics."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._volumes: dict[str, _Call] = {}

    def install(self) -> None:
        """Make the pool the running loop's default executor."""
        self._pool = ThreadPoolExecutor(FILES, thread_name_prefix="files")
        asyncio.get_running_loop().set_default_executor(self._pool)
        self._volumes = _calls()

    def write(self, text: Text) -> None:
        """Add the families to a text."""
        queued = self._pool._work_queue.qsize() if self._pool is not None else 0
        text.family(
            "wherry_file_pool_queued",
            "gauge",
            f"Number of pieces of file work that wait for one of the agent's {FILES} threads",
            [({}, float(queued), 0.0)],
        )
        text.family(
            "wherry_volume_calls",
            "gauge",
            f"Number of calls to volumes under way, of at most {LIMIT}: one that stays belongs to a hung file system",
            [({}, float(len(self._volumes)), 0.0)],
        )
