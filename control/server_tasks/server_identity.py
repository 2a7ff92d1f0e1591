"""This server's identity lease: `apiserver-<hash of the host's name>` in kube-system, by which clients count the servers.

As upstream (KEP-1965): the lease has a duration of an hour, is renewed every 10 s and remains when the server stops. Every hour
each server deletes expired leases. Another server on the same host takes over the existing lease.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import logging
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from control.registry import creation, deletion, updating
from control.registry.context import SERVER, Context
from control.registry.deletion_plan import DeleteOptions
from control.registry.registry import Registry
from control.storage.store import StoreError
from kube.clock import Clock, format_micro_time, parse_time
from kube.errors import StatusError
from kube.json_object import Object
from kube.loops import Loops
from kube.resources import by_path
from kube.uid import new_uid

log = logging.getLogger(__name__)
NAMESPACE, LABEL, COMPONENT = "kube-system", "apiserver.kubernetes.io/identity", "kube-apiserver"
SECONDS = 3600
RENEW_SECONDS = 10.0
COLLECT_SECONDS = 3600.0
_found = by_path("coordination.k8s.io", "v1", "leases")
assert _found is not None
LEASES = _found


def identity(host: str) -> str:
    """Return the lease's name: 16 bytes of the SHA-256 of the host's name in base 32."""
    digest = hashlib.sha256(host.encode()).digest()[:16]
    return "apiserver-" + base64.b32encode(digest).decode().rstrip("=").lower()


class ServerIdentity:
    """Keeps one server's lease, and collects those of servers that are gone."""

    def __init__(self, registry: Registry, clock: Clock, host: str = "") -> None:
        self._registry, self._clock = registry, clock
        self._host = host or socket.gethostname()
        self.name = identity(self._host)
        self._holder = f"{self.name}_{new_uid()}"
        self.loops = Loops(clock)

    async def run(self, renewed: Callable[[], None], collected: Callable[[], None]) -> None:
        """Work until cancelled; the two are called after each attempt: upstream's start does not wait for success either."""
        async with asyncio.TaskGroup() as group:
            for name, work, seconds, done in (
                ("identity lease", self.renew, RENEW_SECONDS, renewed),
                ("collection of identity leases", self.collect, COLLECT_SECONDS, collected),
            ):
                repeated = functools.partial(self._repeat, work, seconds, done)
                group.create_task(self.loops.run(name, repeated), name=name)

    async def _repeat(self, work: Callable[[], Any], seconds: float, tried: Callable[[], None]) -> None:
        while True:
            try:
                await work()
            except (StatusError, StoreError) as error:
                log.warning("updating identity leases failed and will be retried: %s", error)
            tried()
            await self._clock.sleep_deferrable(seconds)

    async def renew(self) -> None:
        """Renew the lease, or make it; raises StatusError."""
        if self._registry.peek(LEASES, NAMESPACE, self.name) is None:
            try:
                metadata = {"name": self.name, "namespace": NAMESPACE}
                made = self._renewed({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})
                await creation.create(self._registry, Context(SERVER, field_manager=COMPONENT), LEASES, NAMESPACE, made)
                return
            except StatusError as error:
                if not error.already_exists:
                    raise

        async def change(old: Object | None) -> Object:
            return self._renewed(old or {})

        await updating.update(
            self._registry, Context(SERVER, field_manager=COMPONENT), LEASES, NAMESPACE, self.name, change
        )

    def _renewed(self, lease: Object) -> Object:
        metadata = lease["metadata"]
        labels = {**(metadata.get("labels") or {}), LABEL: COMPONENT, "kubernetes.io/hostname": self._host}
        spec = {
            **(lease.get("spec") or {}),
            "holderIdentity": self._holder,
            "leaseDurationSeconds": SECONDS,
            "renewTime": format_micro_time(self._clock.now()),
        }
        return {**lease, "metadata": {**metadata, "labels": labels}, "spec": spec}

    async def collect(self) -> None:
        """Delete the identity leases that have run out; raises StatusError."""
        folder = f"{LEASES.storage_prefix}{NAMESPACE}/"
        for entry in self._registry.cached(LEASES).list(folder).entries:
            metadata, spec = entry.obj["metadata"], entry.obj.get("spec") or {}
            if (metadata.get("labels") or {}).get(LABEL) != COMPONENT or not self._over(spec):
                continue
            log.info("deleting the expired identity lease %s", metadata["name"])
            try:
                seen = {"resourceVersion": str(entry.revision)}
                options = DeleteOptions(grace_period=0, preconditions=seen)
                await deletion.delete(
                    self._registry,
                    Context(SERVER, field_manager=COMPONENT),
                    LEASES,
                    NAMESPACE,
                    metadata["name"],
                    options,
                )
            except StatusError as error:
                if not error.not_found and not error.conflict:
                    raise

    def _over(self, spec: Object) -> bool:
        renewed, seconds = spec.get("renewTime"), spec.get("leaseDurationSeconds")
        if not renewed or seconds is None:
            return True  # as upstream's: what does not say how long it lasts does not last
        return bool(parse_time(renewed) + timedelta(seconds=seconds) < self._clock.now())
