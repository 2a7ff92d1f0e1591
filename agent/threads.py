"""Threads of the agent: a pool for its own files, and a thread for each call to a file system that may never return.

A call to a file system whose server is gone (NFS, a hung driver's mount) blocks its thread for as long as that lasts. In a pool
a few such calls would block the files of all pods. So calls that touch a volume run in daemon threads of their own: calls with
the same key (a pod's, a volume's) one after another, reads with the same key shared, and no more than `LIMIT` in all. Few run
at a time (thread_slots.py): the others wait without a thread. Calls that have not returned for a while count against the same
pod, server or namespace (`Owner`), so that a hung file system of one leaves threads for others. Calls of different purposes are
counted apart: volumes that hang do not stop the measurement of their pod's disk usage, or its removal.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from agent import null_bytes, thread_slots
from agent.metrics.exposition import Text
from agent.thread_slots import Work
from kube.api import core_v1

T = TypeVar("T")
FILES = 16
"""Threads for the agent's own files: a disk answers, however slowly."""
LIMIT = 512
"""Most concurrent calls of one purpose, those that wait for a slot not counted."""
WAIT_SECONDS = 30.0
"""Most time that a call with a time limit waits for its slot."""
HUNG_SECONDS = 2.0
"""A call that has neither returned nor paused by then counts as one that hangs."""
POD, SERVER, NAMESPACE = 4, 64, 256
"""Calls of a pod, of the pods of a namespace that use one server, and of a namespace that may hang before no more are begun."""


VOLUMES, MEASUREMENT, REMOVAL = "volumes", "measurement", "removal"
"""Purposes of calls. A pod has few for measurement and removal, and those wait for no server of a volume."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The pod of a call, and its purpose. `servers` are where its volumes come from: NFS servers, CSI drivers, claims."""

    pod: str
    namespace: str = ""
    servers: frozenset[str] = frozenset()
    purpose: str = VOLUMES

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

    def for_purpose(self, purpose: str) -> Owner:
        """Return the owner of calls of another purpose."""
        return replace(self, purpose=purpose)

    def refusal(self, hung: Sequence[Owner]) -> str:
        """Return why no call may be begun beside those that hang, "" where one may."""
        hung = [other for other in hung if other.purpose == self.purpose]
        if sum(other.pod == self.pod for other in hung) >= POD:
            return f"{POD} calls of the pod to file systems have not returned yet"
        near = [other for other in hung if self.namespace and other.namespace == self.namespace]
        if len(near) >= NAMESPACE:
            return f"{NAMESPACE} calls to file systems in the namespace have not returned yet"
        for server in sorted(self.servers):
            if sum(server in other.servers for other in near) >= SERVER:
                return f"{SERVER} calls to file systems of {server} have not returned yet"
        return ""


class _Call:
    """A call under a key, from its wait for a slot to its result."""

    def __init__(
        self, running: dict[str, _Call], key: str, owner: Owner, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._running, self._key, self.owner = running, key, owner
        self._thread: _Thread[Any] = _Thread(f"volume {key}", function, args, self._ended)
        self._begun = asyncio.Event()
        self.work = Work(thread_slots.of_loop(), owner.namespace, self._start)
        self.future = self._thread.future

    def enter(self) -> _Call:
        """Start the call, at once or when it has a slot."""
        self._running[self._key] = self
        self.work.slots.enter(self.work)
        return self

    def _start(self) -> None:
        self._begun.set()
        # Calls may have begun to hang while this one waited.
        if refusal := _refusal(self._running, self.owner, self):
            self._thread.loop.call_soon(self._thread.settle, None, OSError(errno.EAGAIN, refusal))
        else:
            self._thread.start(self.work.enter_thread)

    def _ended(self) -> None:
        self._running.pop(self._key, None)
        self.work.slots.leave(self.work)

    async def result(self, seconds: float | None) -> Any:
        """Wait for the result, for so many seconds from the call's begin. Raise TimeoutError."""
        if seconds is not None:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._begun.wait()
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self.future)


_running: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Call]] = WeakKeyDictionary()


def _calls() -> dict[str, _Call]:
    return _running.setdefault(asyncio.get_running_loop(), {})


async def call(key: str, function: Callable[..., T], *args: Any, owner: Owner | None = None) -> T:
    """Return what a function returns that may block for ever, once earlier calls with the same key have returned.

    Cancelling the wait does not end the thread. Raise OSError: EAGAIN where too many calls do not return, EINVAL where a path
    contains a NUL. All calls without an owner, whose namespace is not known, have the slots of one namespace together.
    """
    await _wait_for_earlier(key)
    result: T = await _start(_calls(), key, owner or Owner(key), function, *args).result(None)
    return result


async def call_shared(
    key: str, function: Callable[..., T], *args: Any, owner: Owner | None = None, seconds: float | None = None
) -> T:
    """Return the result of a function that only reads; concurrent calls with the same key share one.

    Raise TimeoutError where it takes more than `seconds`, the wait for a slot not counted, which is limited by itself.
    """
    running = _calls()
    under_way = running.get(key) or _start(running, key, owner or Owner(key), function, *args)
    result: T = await under_way.result(seconds)
    return result


async def returned(key: str, seconds: float) -> bool:
    """Wait until no call with a key is under way; return False if one is after so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _wait_for_earlier(key)
    return not under_way(key)


async def _wait_for_earlier(key: str) -> None:
    while (earlier := _calls().get(key)) is not None:
        await asyncio.wait((earlier.future,))


def under_way(key: str) -> bool:
    """Return whether a call with a key has not returned yet."""
    return key in _calls()


def _start(running: dict[str, _Call], key: str, owner: Owner, function: Callable[..., T], *args: Any) -> _Call:
    if refusal := _refusal(running, owner):
        raise OSError(errno.EAGAIN, refusal)
    return _Call(running, key, owner, function, args).enter()


def _refusal(running: dict[str, _Call], owner: Owner, apart: _Call | None = None) -> str:
    """Return why a call of an owner may not begin now, "" where it may."""
    calls = (call for call in running.values() if call.owner.purpose == owner.purpose and call is not apart)
    begun = [call for call in calls if call.work.begun]
    if len(begun) >= LIMIT:
        return f"{LIMIT} calls to file systems have not returned yet"
    return owner.refusal([call.owner for call in begun if call.work.hangs(HUNG_SECONDS)])


def begin(name: str, function: Callable[..., T], *args: Any, ended: Callable[[], object]) -> asyncio.Future[T]:
    """Run a function in a daemon thread of its own; `ended` is called on the loop when it has returned."""
    thread = _Thread(name, function, args, ended)
    thread.start()
    return thread.future


class _Thread(Generic[T]):
    """A function that runs in a daemon thread of its own, and its result."""

    def __init__(
        self, name: str, function: Callable[..., T], args: tuple[Any, ...], ended: Callable[[], object]
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self._name, self._function, self._args, self._ended = name, function, args, ended

    def start(self, first: Callable[[], None] = lambda: None) -> None:
        """Start the thread, which calls `first` before the function."""
        try:
            threading.Thread(target=self._work, args=(first,), name=self._name, daemon=True).start()
        except Exception as error:  # RuntimeError where the process may have no more threads, MemoryError
            self.loop.call_soon(self.settle, None, OSError(errno.EAGAIN, str(error) or type(error).__name__))

    def settle(self, result: T | None, error: BaseException | None) -> None:
        """Record the result or the error."""
        try:
            self._ended()
        finally:
            self._record(result, error)

    def _record(self, result: T | None, error: BaseException | None) -> None:
        if self.future.cancelled():
            return
        if error is None:
            self.future.set_result(result)  # type: ignore[arg-type]
        else:
            self.future.set_exception(error)
            self.future.exception()  # whoever waited may have gone

    def _work(self, first: Callable[[], None]) -> None:
        result, error = None, None
        try:
            first()
            with null_bytes.as_os_error():
                result = self._function(*self._args)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter any more
            self.loop.call_soon_threadsafe(self.settle, result, error)


class Threads:
    """The pool of this process's loop, and how full it and the calls to volumes are, for /metrics."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._volumes: dict[str, _Call] = {}
        self._slots: thread_slots.ThreadSlots | None = None

    def install(self) -> None:
        """Make the pool the running loop's default executor."""
        self._pool = ThreadPoolExecutor(FILES, thread_name_prefix="files")
        asyncio.get_running_loop().set_default_executor(self._pool)
        self._volumes, self._slots = _calls(), thread_slots.of_loop()

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
            f"Number of calls to volumes under way, at most {LIMIT} a purpose: one that stays belongs to a hung file system",
            [({}, float(sum(call.work.begun for call in self._volumes.values())), 0.0)],
        )
        text.family(
            "wherry_volume_calls_waiting",
            "gauge",
            f"Number of calls to volumes that wait for one of the {thread_slots.NODE} slots of those that run",
            [({}, float(self._slots.waiting if self._slots is not None else 0), 0.0)],
        )
