"""The ConfigMaps and Secrets that this node's pods refer to: kept current for as long as a pod needs them.

A node may read only what its pods name (the Node authorizer), so each object has a list and watch of its own, shared by all
pods that name it; a change starts a sync of those pods at once. The limits are `WATCHES` for the node and `WATCHES_OF_A_POD`
for a pod; other objects are fetched once a minute (sources.py). An object that no pod names any more is watched for another
minute, so that a rolling update does not fetch it again for every pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from agent.pods.sources import ERRORS, Fetched, Reference, Watched
from kube.api import core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock

log = logging.getLogger(__name__)

KEEP_SECONDS = 60.0
WATCHES, WATCHES_OF_A_POD = 256, 64
"""Watches at a time: each takes a connection to the API server."""
LARGEST, LARGEST_BYTES = 1024, 64 << 20
"""Objects that one pod may name, and bytes of JSON of those among them that are not watched."""
PACE_SECONDS = 1 / 32
"""Time from one fetch to the next: with more than 1920 objects, each is fetched less often than once a minute."""


class ReferencesError(Exception):
    """A pod names more than the node holds for it; the message says what."""


@dataclass(slots=True)
class _Followed:
    source: Watched | Fetched
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
        self._watches = 0
        self._due: list[tuple[float, int, Fetched]] = []
        self._count = itertools.count()
        self._poller: asyncio.Task[None] | None = None

    def track(self, uid: str, references: frozenset[Reference]) -> None:
        """Follow exactly these objects for a pod; none where it names too many."""
        self._named.pop(uid, None)
        if len(references) > LARGEST:
            self._named[uid], references = len(references), frozenset()
        before = self._by_pod.get(uid, frozenset())
        if references == before:
            return
        own = sum(isinstance(self._followed[reference].source, Watched) for reference in before & references)
        for reference in references - before:
            followed = self._follow(reference, may_watch=own < WATCHES_OF_A_POD)
            followed.source.stale()
            followed.users.add(uid)
            own += isinstance(followed.source, Watched)
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
        """Wait until all that the pod names has been looked up; an object that does not exist counts as looked up.

        Raise ReferencesError where that is more than a pod may name.
        """
        if uid in self._named:
            raise ReferencesError(f"pod names {self._named[uid]} ConfigMaps and Secrets, {LARGEST} are allowed")
        for reference in self._by_pod.get(uid, ()):
            followed = self._followed.get(reference)
            if followed is not None:
                await followed.source.ready()
            if self._bytes.get(uid, 0) > LARGEST_BYTES:
                raise ReferencesError(
                    f"the ConfigMaps and Secrets that the pod names are larger than {LARGEST_BYTES} bytes"
                )

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        found: core_v1.ConfigMap | None = self._get(Reference(core_v1.ConfigMap, namespace, name))
        return found

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        found: core_v1.Secret | None = self._get(Reference(core_v1.Secret, namespace, name))
        return found

    async def close(self) -> None:
        """Stop everything."""
        tasks = [f.release for f in self._followed.values() if f.release is not None]
        tasks += [self._poller] if self._poller is not None else []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for followed in self._followed.values():
            await followed.source.close()
        self._followed.clear()

    def _get(self, reference: Reference) -> Any:
        followed = self._followed.get(reference)
        return followed.source.get() if followed else None

    # -- one object ---------------------------------------------------------------------------------------------------
    def _follow(self, reference: Reference, *, may_watch: bool) -> _Followed:
        followed = self._followed.get(reference)
        if followed is None:
            followed = self._begin(reference, watch=may_watch and self._watches < WATCHES)
        if followed.release is not None:
            followed.release.cancel()
            followed.release = None
        return followed

    def _begin(self, reference: Reference, *, watch: bool) -> _Followed:
        users: set[str] = set()

        def changed() -> None:
            self._changed(tuple(users))

        source: Watched | Fetched
        if watch:
            self._watches += 1
            source = Watched(self._client, reference, changed, self._clock)
        else:
            source = Fetched(
                self._client, reference, changed, self._clock, lambda size: self._account(users, size - source.size)
            )
            self._push(source)
        self._followed[reference] = _Followed(source, users)
        return self._followed[reference]

    def _account(self, users: set[str], more: int) -> bool:
        """Add to what an object's users hold; False where that is too much for each of them."""
        for uid in users:
            self._bytes[uid] = self._bytes.get(uid, 0) + more
        return any(self._bytes[uid] <= LARGEST_BYTES for uid in users)

    def _leave(self, reference: Reference, uid: str) -> None:
        followed = self._followed[reference]
        followed.users.discard(uid)
        if not followed.users and followed.release is None:
            followed.release = asyncio.create_task(self._release(reference), name=f"release {reference.name}")

    async def _release(self, reference: Reference) -> None:
        if isinstance(self._followed[reference].source, Watched):
            await self._clock.sleep(KEEP_SECONDS)
        followed = self._followed.pop(reference)
        self._watches -= isinstance(followed.source, Watched)
        await followed.source.close()

    # -- what is fetched ----------------------------------------------------------------------------------------------
    def _push(self, source: Fetched) -> None:
        heapq.heappush(self._due, (source.due, next(self._count), source))
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name="fetch ConfigMaps and Secrets")

    async def _poll(self) -> None:
        """Fetch objects as they become due, one at a time, while there are any."""
        while self._due:
            await self._clock.sleep(max(PACE_SECONDS, self._due[0][0] - self._clock.monotonic()))
            source = heapq.heappop(self._due)[2]
            if source.closed:
                continue
            if source.due <= self._clock.monotonic():
                try:
                    await source.fetch()
                except ERRORS:
                    pass  # it is logged, and the pods keep what they have
                except Exception:
                    log.exception("fetching a ConfigMap or Secret")
            self._push(source)
        self._poller = None


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
