"""Keeps the ConfigMaps and Secrets that this node's pods refer to up to date for as long as a pod needs them.

A node may read only what its pods name (the Node authorizer), so each object has a list and watch of its own, shared by all
pods that name it; a change starts a sync of those pods at once. The limits are `WATCHES` for the node and `WATCHES_OF_A_POD`
for a pod; other objects are fetched once a minute (referenced_objects.py, fetch_queue.py). Where all watches are in use, a
namespace that has fewer takes one over from the one that has most. An object that no pod names any more is watched for another
minute, so that a rolling update does not fetch it again for every pod.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from agent.pods.fetch_queue import FetchQueue
from agent.pods.referenced_objects import FetchedObject, Reference, WatchedObject
from kube.api import core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock

KEEP_SECONDS = 60.0
WATCHES, WATCHES_OF_A_POD = 256, 64
"""Watches at a time: each takes a connection to the API server."""
LARGEST, LARGEST_BYTES = 1024, 64 << 20
"""Objects that one pod may name, and bytes of JSON of those among them that are not watched."""
READ_SECONDS = 30.0
"""Time that a pod waits for its objects before it reports which of them cannot be read."""
LOOKS = 8
"""Watches of a namespace that are considered for being given up."""


class ReferencesError(Exception):
    """A pod names more objects or bytes than its limit, or one that cannot be read."""


@dataclass(slots=True)
class _Followed:
    source: WatchedObject | FetchedObject
    users: set[str] = field(default_factory=set)
    release: asyncio.Task[None] | None = None


class ReferenceStore:
    """Follows objects for pods. `changed` is called with the UIDs of the pods that an update concerns."""

    def __init__(self, client: Client, changed: Callable[[Iterable[str]], None], *, clock: Clock = SYSTEM) -> None:
        self._client, self._changed, self._clock = client, changed, clock
        self._followed: dict[Reference, _Followed] = {}
        self._by_pod: dict[str, frozenset[Reference]] = {}
        self._bytes: dict[str, int] = {}
        """Bytes of the fetched objects (those without a watch), by pod UID."""
        self._named: dict[str, int] = {}
        """Number of objects that a pod names, for pods over LARGEST, by pod UID."""
        self._watched: dict[Reference, None] = {}
        """Watched objects, the newest last."""
        self._polls = FetchQueue(clock)
        self._closing: set[asyncio.Task[None]] = set()

    def track(self, uid: str, references: frozenset[Reference]) -> None:
        """Follow exactly these objects for a pod; none where it names too many."""
        self._named.pop(uid, None)
        if len(references) > LARGEST:
            self._named[uid], references = len(references), frozenset()
        before = self._by_pod.get(uid, frozenset())
        if references == before:
            return
        own = sum(isinstance(self._followed[reference].source, WatchedObject) for reference in before & references)
        for reference in references - before:
            followed = self._follow(reference, uid, may_watch=own < WATCHES_OF_A_POD)
            followed.source.refetch()
            followed.users.add(uid)
            own += isinstance(followed.source, WatchedObject)
        for reference in before - references:
            self._leave(reference, uid)
        if references:
            self._by_pod[uid] = references
            self._bytes[uid] = sum(self._followed[reference].source.size for reference in references)
        else:
            self._by_pod.pop(uid, None)
            self._bytes.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Stop following for a pod."""
        self.track(uid, frozenset())

    async def ready(self, uid: str) -> None:
        """Wait until all objects that the pod names were read; one that does not exist counts as read.

        Raise ReferencesError if that is more than a pod may name, or if one could not be read within READ_SECONDS.
        """
        if uid in self._named:
            raise ReferencesError(f"pod names {self._named[uid]} ConfigMaps and Secrets, {LARGEST} are allowed")
        until = self._clock.monotonic() + READ_SECONDS
        for reference in self._by_pod.get(uid, ()):
            followed = self._followed.get(reference)
            if followed is not None and not followed.source.synced:
                await self._read(reference, followed, until)
            if self._bytes.get(uid, 0) > LARGEST_BYTES:
                raise ReferencesError(
                    f"the ConfigMaps and Secrets that the pod names are larger than {LARGEST_BYTES} bytes"
                )

    async def _read(self, reference: Reference, followed: _Followed, until: float) -> None:
        """Wait until an object was read. Raise ReferencesError with the last request's error, in upstream's words."""
        reading = asyncio.ensure_future(followed.source.ready())
        limit = asyncio.ensure_future(self._clock.sleep(max(until - self._clock.monotonic(), 0.0)))
        try:
            await asyncio.wait((reading, limit), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
        finally:
            for task in (reading, limit):
                task.cancel()
            await asyncio.gather(reading, limit, return_exceptions=True)
        reason = followed.source.problem or "timed out waiting for the condition"
        raise ReferencesError(f"failed to sync {reference.kind.__name__.lower()} cache: {reference.key}: {reason}")

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        found: core_v1.ConfigMap | None = self._get(Reference(core_v1.ConfigMap, namespace, name))
        return found

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        found: core_v1.Secret | None = self._get(Reference(core_v1.Secret, namespace, name))
        return found

    async def close(self) -> None:
        """Stop everything."""
        tasks = [f.release for f in self._followed.values() if f.release is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._polls.close()
        await asyncio.gather(*self._closing)
        for followed in self._followed.values():
            await followed.source.close()
        self._followed.clear()

    def _get(self, reference: Reference) -> Any:
        followed = self._followed.get(reference)
        return followed.source.get() if followed else None

    # -- one object ---------------------------------------------------------------------------------------------------
    def _follow(self, reference: Reference, uid: str, *, may_watch: bool) -> _Followed:
        followed = self._followed.get(reference)
        if followed is None:
            followed = self._begin(reference, uid, watch=may_watch and self._have_watch(reference.namespace))
        if followed.release is not None:
            followed.release.cancel()
            followed.release = None
        return followed

    def _begin(self, reference: Reference, uid: str, *, watch: bool) -> _Followed:
        users: set[str] = set()
        source: WatchedObject | FetchedObject
        if watch:
            self._watched[reference] = None
            source = WatchedObject(self._client, reference, lambda: self._changed(tuple(users)), self._clock)
        else:
            source = self._fetched(reference, users, uid)
        self._followed[reference] = _Followed(source, users)
        return self._followed[reference]

    def _fetched(self, reference: Reference, users: set[str], uid: str) -> FetchedObject:
        """Fetch an object for its users, in turn with the pod of this UID."""
        source = FetchedObject(
            self._client,
            reference,
            lambda: self._changed(tuple(users)),
            self._clock,
            partial(self._account, users),
        )
        self._polls.add(reference.namespace, uid, source)
        return source

    def _account(self, users: set[str], more: int) -> bool:
        """Add to what an object's users hold; False if that is too much for each of them."""
        for uid in users:
            self._bytes[uid] = self._bytes.get(uid, 0) + more
        return any(self._bytes[uid] <= LARGEST_BYTES for uid in users)

    def _leave(self, reference: Reference, uid: str) -> None:
        followed = self._followed[reference]
        followed.users.discard(uid)
        if not followed.users and followed.release is None:
            followed.release = asyncio.create_task(self._release(reference), name=f"release {reference.name}")

    async def _release(self, reference: Reference) -> None:
        if isinstance(self._followed[reference].source, WatchedObject):
            await self._clock.sleep(KEEP_SECONDS)
        followed = self._followed.pop(reference)
        self._watched.pop(reference, None)
        await followed.source.close()

    # -- the shares of the watches ----------------------------------------------------------------------------------------
    def _have_watch(self, namespace: str) -> bool:
        """Make room for another watch, if need be by ending one of the namespace that has most."""
        if len(self._watched) < WATCHES:
            return True
        watches = Counter(reference.namespace for reference in self._watched)
        most, number = watches.most_common(1)[0]
        if number <= watches[namespace] + 1:
            return False
        newest_first = [reference for reference in reversed(self._watched) if reference.namespace == most]
        return any(self._fetch_instead(reference) for reference in newest_first[:LOOKS])

    def _fetch_instead(self, reference: Reference) -> bool:
        """Fetch what is watched from now on; False if its pods do not know it yet or hold too much then."""
        followed = self._followed[reference]
        watched, users = followed.source, followed.users
        if not isinstance(watched, WatchedObject) or not watched.synced:
            return False
        current = watched.get()
        size = len(msgspec.json.encode(current)) if current is not None else 0
        if any(self._bytes.get(uid, 0) + size > LARGEST_BYTES for uid in users):
            return False
        del self._watched[reference]
        followed.source = fetched = self._fetched(reference, users, next(iter(users), ""))
        self._account(users, size)
        fetched.set(current, size)
        closing = asyncio.create_task(watched.close(), name=f"end the watch of {reference.name}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return True


def references_of(pod: core_v1.Pod) -> frozenset[Reference]:
    """Collect the ConfigMaps and Secrets that a pod's volumes, environment and image pulls name."""
    namespace = pod.metadata.namespace or ""
    names: set[tuple[type[Any], str | None]] = set()
    for pull in pod.spec.image_pull_secrets:
        names.add((core_v1.Secret, pull.name))
    containers: list[core_v1.Container | core_v1.EphemeralContainer] = [*pod.spec.init_containers, *pod.spec.containers]
    containers += pod.spec.ephemeral_containers
    for container in containers:
        for source in container.env_from:
            if source.config_map_ref is not None:
                names.add((core_v1.ConfigMap, source.config_map_ref.name))
            if source.secret_ref is not None:
                names.add((core_v1.Secret, source.secret_ref.name))
        for variable in container.env:
            if variable.value_from is not None and variable.value_from.config_map_key_ref is not None:
                names.add((core_v1.ConfigMap, variable.value_from.config_map_key_ref.name))
            if variable.value_from is not None and variable.value_from.secret_key_ref is not None:
                names.add((core_v1.Secret, variable.value_from.secret_key_ref.name))
    for volume in pod.spec.volumes:
        if volume.config_map is not None:
            names.add((core_v1.ConfigMap, volume.config_map.name))
        if volume.secret is not None:
            names.add((core_v1.Secret, volume.secret.secret_name))
        for projection in volume.projected.sources if volume.projected else ():
            if projection.config_map is not None:
                names.add((core_v1.ConfigMap, projection.config_map.name))
            if projection.secret is not None:
                names.add((core_v1.Secret, projection.secret.name))
    return frozenset(Reference(kind, namespace, name) for kind, name in names if name)
