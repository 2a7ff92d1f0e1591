"""A local, indexed copy of one kind of object, kept current by list and watch.

Handlers get every change in order, on the loop, without waiting: they put keys into queues. A broken watch is
resumed from the last revision seen (bookmarks move it on); an expired one lists again, and the difference is reported as
changes, so a handler never misses the end state. Objects handed out are shared: they are read-only by convention.

An object that does not fit its type stops the informer, which keeps what it knew: one that is left out would count as
deleted, and who follows pods, nodes, Services or policies deletes or allows what then seems to belong to nothing.
`skip_unreadable` leaves such objects out, for kinds of which absence only means that nothing is done for them.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

import msgspec

from kube.api import meta_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.indexer import Indexer, IndexFunction
from kube.json_object import UNREADABLE
from kube.object_names import key_of, metadata_of

log = logging.getLogger(__name__)
T = TypeVar("T", bound=msgspec.Struct)

FIRST_RETRY, LAST_RETRY = 0.1, 5.0
"""Seconds before the first and the later tries to reach a server that is away."""
REFUSED_RETRY = 30.0
"""Seconds between tries of what the server refuses (401, 403), in the end; as upstream's reflectors wait."""

MOST_SKIPPED = 1000
"""Objects that do not fit their type and of which it is known that they were logged."""


class Change(msgspec.Struct, Generic[T], frozen=True):
    """`type` is ADDED (old is None), MODIFIED or DELETED (new is the last state seen)."""

    type: str
    old: T | None
    new: T

    @property
    def key(self) -> str:
        return key_of(self.new)


Handler = Callable[[Change[Any]], None]

_subscriptions: ContextVar[list[tuple[Informer[Any], Handler]] | None] = ContextVar("subscriptions", default=None)


@contextlib.contextmanager
def temporary_subscriptions() -> Iterator[None]:
    """Take back, at the end of the block, what it (and the tasks it started) subscribed to.

    For work that comes and goes while informers that it shares with others stay: a leader that lost its lease.
    """
    made: list[tuple[Informer[Any], Handler]] = []
    token = _subscriptions.set(made)
    try:
        yield
    finally:
        _subscriptions.reset(token)
        for informer, handler in made:
            informer.unsubscribe(handler)


class Informer(Indexer[T]):
    """Follow the objects of a kind that match the selectors. `indexes` maps a name to object -> keys.

    `granted_by` is the ClusterRole of docs/install.md that permits it (kube/daemon_roles.py), for the log of a denial.
    """

    def __init__(
        self,
        client: Client,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        indexes: dict[str, IndexFunction] | None = None,
        keep_managed_fields: bool = False,
        skip_unreadable: bool = False,
        granted_by: str = "",
        clock: Clock = SYSTEM,
    ) -> None:
        super().__init__(indexes or {})
        self._granted_by = granted_by
        self._client, self._kind, self._namespace = client, kind, namespace
        self._labels, self._fields = label_selector, field_selector
        self._keep_managed_fields = keep_managed_fields
        self._clock = clock
        self._options: dict[str, Any] = {"unreadable": self._skip} if skip_unreadable else {}
        self._skipped: dict[str, str] = {}
        """Resource versions of the objects that were left out, by their keys."""
        self._handlers: builtins.list[Handler] = []
        self._synced = asyncio.Event()
        self._revision = ""
        self._delay, self._problem = FIRST_RETRY, ""
        self._expired = 0
        """Watches that were refused as too old since the last event of one."""

    # -- reading --------------------------------------------------------------------------------------------------
    @property
    def synced(self) -> bool:
        """True once the first list is stored; from then on the copy is only ever a little behind."""
        return self._synced.is_set()

    @property
    def problem(self) -> str:
        """The error of the last request, "" if it succeeded."""
        return self._problem

    async def wait_synced(self) -> None:
        await self._synced.wait()

    @property
    def kind(self) -> type[T]:
        """The kind of the objects."""
        return self._kind

    def subscribe(self, handler: Handler) -> None:
        """Call `handler` with every change from now on, and at once with what is already there as ADDED."""
        self._handlers.append(handler)
        made = _subscriptions.get()
        if made is not None:
            made.append((self, handler))
        for obj in self.list():
            _tell(handler, Change("ADDED", None, obj))

    def unsubscribe(self, handler: Handler) -> None:
        """Tell a handler nothing more."""
        self._handlers.remove(handler)

    # -- following ------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if not self._revision:
                    await self._list()
                await self._watch()
            except StatusError as error:
                if error.expired or error.code == 410:
                    self._revision = ""
                    self._expired += 1
                    if self._expired > 1:  # each list may be too old again by the time that its watch begins
                        await self._clock.sleep(
                            min(FIRST_RETRY * 2**self._expired, LAST_RETRY) * random.uniform(0.8, 1.2)
                        )
                    continue
                if error.revision_too_large:
                    # The server's store is older than what it once showed (a restored disk): what is known is no past of it.
                    self._revision = ""
                self._report(logging.WARNING if error.code != 503 else logging.INFO, self._explained(error))
                most = REFUSED_RETRY if error.code in (401, 403) else LAST_RETRY
            except UNREADABLE as error:
                self._report(logging.WARNING, f"cannot read what the server sent: {error}")
                self._revision, most = "", LAST_RETRY
            else:
                most = LAST_RETRY
            await self._clock.sleep(self._delay * random.uniform(0.8, 1.2))
            self._delay = min(self._delay * 2, most)

    def _explained(self, error: StatusError) -> str:
        if error.code == 403 and self._granted_by:
            return f"{error}; the ClusterRole {self._granted_by} in docs/install.md grants it"
        return str(error)

    def _report(self, level: int, problem: str) -> None:
        """Log a problem, once for as long as it stays the same."""
        if problem != self._problem:
            log.log(level, "watching %s: %s", self._kind.__name__, problem)
        self._problem = problem

    def _recovered(self) -> None:
        if self._problem:
            log.info("watching %s again", self._kind.__name__)
        self._problem, self._delay = "", FIRST_RETRY

    async def _list(self) -> None:
        result = await self._client.list(
            self._kind, self._namespace, label_selector=self._labels, field_selector=self._fields, **self._options
        )
        fresh = {key_of(obj): obj for obj in result.items}
        for key in self._objects.keys() - fresh.keys():
            self._remove(key, self._objects[key])
        for key, obj in fresh.items():
            self._set(key, obj)
        self._revision = result.resource_version
        self._synced.set()
        self._recovered()

    async def _watch(self) -> None:
        """Process one watch until it ends."""
        watch = self._client.watch(
            self._kind,
            self._namespace,
            resource_version=self._revision,
            label_selector=self._labels,
            field_selector=self._fields,
            **self._options,
        )
        async for event in watch:
            self._recovered()
            self._expired = 0
            if event.type == "DELETED":
                self._remove(key_of(event.object), event.object)
            elif event.type != "BOOKMARK":
                self._set(key_of(event.object), event.object)
            self._revision = metadata_of(event.object).resource_version or self._revision

    def _skip(self, metadata: meta_v1.ObjectMeta, problem: str) -> None:
        """Log an object that is left out, once for each of its versions."""
        key = f"{metadata.namespace or ''}/{metadata.name}"
        version = metadata.resource_version or ""
        if self._skipped.get(key) == version:
            return
        if len(self._skipped) >= MOST_SKIPPED:
            self._skipped.clear()
        self._skipped[key] = version
        log.warning("skipping %s %s, which cannot be read: %s", self._kind.__name__, key, problem)

    def _set(self, key: str, obj: T) -> None:
        old = self._objects.get(key)
        if old is not None and metadata_of(old).resource_version == metadata_of(obj).resource_version:
            return
        if not self._keep_managed_fields:
            metadata_of(obj).managed_fields = []
        if old is not None and metadata_of(old).uid != metadata_of(obj).uid:
            self._remove(key, old)  # deleted and recreated between two observations
            old = None
        self._put(key, obj)
        self._publish(Change("ADDED" if old is None else "MODIFIED", old, obj))

    def _remove(self, key: str, last: T) -> None:
        old = self._drop(key)
        if old is None:
            return
        self._publish(Change("DELETED", old, last))

    def _publish(self, change: Change[T]) -> None:
        for handler in tuple(self._handlers):
            _tell(handler, change)


def _tell(handler: Handler, change: Change[Any]) -> None:
    try:
        handler(change)
    except Exception:
        # One handler's bug must not keep the copy, or the other handlers, from following.
        log.exception("handler of a %s %s failed", change.type, change.key)


async def wait_listed(informers: Iterable[Informer[Any]], clock: Clock, seconds: float) -> builtins.list[Informer[Any]]:
    """Wait until informers have their first list, no longer than so many seconds; return those that have none then."""
    missing = [informer for informer in informers if not informer.synced]
    if not missing:
        return []
    everything = asyncio.gather(*(informer.wait_synced() for informer in missing))
    limit = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((everything, limit), return_when=asyncio.FIRST_COMPLETED)
    finally:
        limit.cancel()
        everything.cancel()
        await asyncio.gather(everything, return_exceptions=True)
    return [informer for informer in missing if not informer.synced]
