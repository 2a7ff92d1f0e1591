"""Keeps one ConfigMap or Secret that pods name up to date: watched, or fetched again when it is a minute old.

A watch reports a change at once and takes a connection, 80 KiB of memory at either end. Fetching is upstream's "Cache" strategy
(configMapAndSecretChangeDetectionStrategy): an object is used for a minute, and fetched again for a pod that starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kube import cancellation, resources, serialize
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.json_object import UNREADABLE
from kube.object_names import metadata_of

log = logging.getLogger(__name__)

TTL_SECONDS = 60.0
FIRST_RETRY, LAST_RETRY = 1.0, 30.0
"""Seconds before a pod that waits for an object fetches it again, where the server did not answer."""
ERRORS = (StatusError, *UNREADABLE)
"""Errors of fetching an object."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One object that a pod names; `kind` is ConfigMap or Secret."""

    kind: type[Any]
    namespace: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class WatchedObject:
    """An object that is watched. `changed` is called at each change after the first list."""

    size = 0
    """Not counted: few objects are watched."""

    def __init__(self, client: Client, reference: Reference, changed: Callable[[], None], clock: Clock) -> None:
        self._key, self._changed = reference.key, changed
        self._informer: Informer[Any] = Informer(
            client, reference.kind, reference.namespace, field_selector=f"metadata.name={reference.name}", clock=clock
        )
        self._informer.subscribe(self._object_changed)
        name = f"follow {reference.kind.__name__} {reference.key}"
        self._clock = clock
        self._task = asyncio.create_task(self._follow(), name=name)

    async def _follow(self) -> None:
        """Run the informer until cancelled; pods would use an old object for good if an unexpected error ended it."""
        while True:
            try:
                await cancellation.as_error(self._informer.run())
            except Exception:
                log.exception("watching %s failed", self._key)
            await self._clock.sleep(LAST_RETRY)

    def get(self) -> Any:
        return self._informer.get(self._key)

    @property
    def synced(self) -> bool:
        """True if the first list is in."""
        return self._informer.synced

    @property
    def problem(self) -> str:
        """The error of the last request, "" if it succeeded."""
        return self._informer.problem

    async def ready(self) -> None:
        await self._informer.wait_synced()

    def refetch(self) -> None:
        """Another pod begins to use it: what is watched is current."""

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def _object_changed(self, change: Change[Any]) -> None:
        # The first list is what the pods wait for anyway.
        if self._informer.synced:
            self._changed()


class FetchedObject:
    """An object that is fetched. `account` is called with the growth of each answer, and returns whether it may be kept."""

    def __init__(
        self,
        client: Client,
        reference: Reference,
        changed: Callable[[], None],
        clock: Clock,
        account: Callable[[int], bool],
    ) -> None:
        self._client, self._reference, self._clock = client, reference, clock
        self._changed, self._account = changed, account
        self._object: Any = None
        self._fetched = self._current = False
        self._one = asyncio.Lock()
        self.size = 0
        """Bytes of the last answer's JSON, also where it may not be kept."""
        self.fetch_at = clock.monotonic() + TTL_SECONDS
        self.problem = ""
        """The error of the last request, "" if it succeeded."""
        self.closed = False

    def get(self) -> Any:
        return self._object

    @property
    def synced(self) -> bool:
        """True if it was fetched since a pod began to use it."""
        return self._current

    async def ready(self) -> None:
        """Fetch it unless that was done since a pod began to use it."""
        delay = FIRST_RETRY
        while not self._current:
            try:
                await self.fetch()
            except ERRORS:
                await self._clock.sleep(delay)
                delay = min(2 * delay, LAST_RETRY)

    def set(self, found: Any, size: int) -> None:
        """Take over what a watch has found last; bytes."""
        self._object, self.size = found, size
        self._fetched = self._current = True

    def refetch(self) -> None:
        self._current = False

    async def fetch(self) -> None:
        """Ask the server for the object, which need not exist. Raise ERRORS."""
        async with self._one:
            self.fetch_at = self._clock.monotonic() + TTL_SECONDS
            try:
                found, size = await self._read()
            except ERRORS as error:
                self._report(str(error))
                raise
            self.problem = ""
            if not self._account(size - self.size):
                found = None
            self._current, self.size = True, size
            before, self._object = self._object, found
            fetched_before, self._fetched = self._fetched, True
        if fetched_before and _version(before) != _version(found):
            self._changed()

    async def _read(self) -> tuple[Any, int]:
        kind, path = self._reference.kind, resources.of(self._reference.kind).path
        try:
            data = await self._client.call("GET", path(self._reference.namespace, self._reference.name))
        except StatusError as error:
            if error.code == 404:
                return None, 0
            raise
        found = serialize.decode(data, kind)
        metadata_of(found).managed_fields = []
        return found, len(data)

    def _report(self, problem: str) -> None:
        """Log a problem, once for as long as it stays the same."""
        if problem != self.problem:
            log.info("fetching %s %s: %s", self._reference.kind.__name__, self._reference.key, problem)
        self.problem = problem

    async def close(self) -> None:
        self.closed = True


def _version(found: Any) -> tuple[str | None, str | None]:
    return (metadata_of(found).uid, metadata_of(found).resource_version) if found is not None else (None, None)
