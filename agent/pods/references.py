"""The ConfigMaps and Secrets that this node's pods refer to: fetched once, watched as long as a pod needs them.

A node may read only what its pods name (the Node authorizer), so each object has a list and watch of its own, shared by all
pods that name it; a change is told at once to those pods. An object that no pod names any more is kept for a minute,
so that a rolling update does not fetch it again for every pod.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kube.api import core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.informer import Change, Informer

KEEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Reference:
    """One object that a pod names; `kind` is ConfigMap or Secret."""

    kind: type[Any]
    namespace: str
    name: str


@dataclass(slots=True)
class _Followed:
    informer: Informer[Any]
    task: asyncio.Task[None]
    users: set[str] = field(default_factory=set)
    release: asyncio.Task[None] | None = None


class ReferenceStore:
    """Follows objects for pods. `changed` is called with the UIDs of the pods that an update concerns."""

    def __init__(self, client: Client, changed: Callable[[Iterable[str]], None], *, clock: Clock = SYSTEM) -> None:
        self._client, self._changed, self._clock = client, changed, clock
        self._followed: dict[Reference, _Followed] = {}
        self._by_pod: dict[str, frozenset[Reference]] = {}

    def track(self, uid: str, references: frozenset[Reference]) -> None:
        """Follow exactly these objects for a pod."""
        before = self._by_pod.get(uid, frozenset())
        if references == before:
            return
        for reference in references - before:
            self._follow(reference).users.add(uid)
        for reference in before - references:
            self._leave(reference, uid)
        if references:
            self._by_pod[uid] = references
        else:
            self._by_pod.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Stop following for a pod."""
        self.track(uid, frozenset())

    async def ready(self, uid: str) -> None:
        """Wait until all that the pod names has been looked up; an object that does not exist counts as looked up."""
        for reference in self._by_pod.get(uid, ()):
            await self._followed[reference].informer.wait_synced()

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        found: core_v1.ConfigMap | None = self._get(Reference(core_v1.ConfigMap, namespace, name))
        return found

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        found: core_v1.Secret | None = self._get(Reference(core_v1.Secret, namespace, name))
        return found

    async def close(self) -> None:
        """Stop everything."""
        tasks = [t for f in self._followed.values() for t in (f.task, f.release) if t is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._followed.clear()

    def _get(self, reference: Reference) -> Any:
        followed = self._followed.get(reference)
        return followed.informer.get(f"{reference.namespace}/{reference.name}") if followed else None

    def _follow(self, reference: Reference) -> _Followed:
        followed = self._followed.get(reference)
        if followed is None:
            informer: Informer[Any] = Informer(
                self._client,
                reference.kind,
                reference.namespace,
                field_selector=f"metadata.name={reference.name}",
                clock=self._clock,
            )
            name = f"follow {reference.kind.__name__} {reference.namespace}/{reference.name}"
            followed = _Followed(informer, asyncio.create_task(informer.run(), name=name))
            self._followed[reference] = followed

            def tell(change: Change[Any], followed: _Followed = followed) -> None:
                # The first list is what the pods wait for anyway.
                if followed.informer.synced:
                    self._changed(tuple(followed.users))

            informer.subscribe(tell)
        if followed.release is not None:
            followed.release.cancel()
            followed.release = None
        return followed

    def _leave(self, reference: Reference, uid: str) -> None:
        followed = self._followed[reference]
        followed.users.discard(uid)
        if not followed.users and followed.release is None:
            followed.release = asyncio.create_task(self._release(reference), name=f"release {reference.name}")

    async def _release(self, reference: Reference) -> None:
        await self._clock.sleep(KEEP_SECONDS)
        followed = self._followed.pop(reference)
        followed.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await followed.task


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
