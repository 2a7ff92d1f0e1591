"""Prepares the claims of pods before the sandbox, and unprepares them after the last container.

The scheduler has allocated a claim and reserved it for the pod; the node checks both, calls the drivers named in the
allocation, and keeps the CDI devices that they return. A claim that several pods share is prepared once and unprepared after
the last. A lock for each claim keeps that in order, so a driver that does not answer delays only the pods of its claims. The
checkpoint is written before each call, so that no claim stays prepared that is not in it (pkg/kubelet/cm/dra/manager.go).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

from agent.claims import checkpoint
from agent.claims.checkpoint import ClaimInfo
from agent.claims.drivers import DRADrivers
from agent.claims.health import ClaimHealth
from agent.claims.pod_claims import PodClaims, names_of
from agent.managers.checkpoint_writer import CheckpointWriter
from agent.managers.errors import DynamicResourceError
from kube.api import core_v1, resource_v1
from kube.client import Client
from kube.errors import StatusError
from kube.locks import Locks
from kube.pod_claims import ClaimError, check_owner, is_reserved_for

log = logging.getLogger(__name__)


class ClaimManager:
    """The claims on one node, by namespace and name."""

    def __init__(self, client: Client, drivers: DRADrivers, root: Path) -> None:
        """Take over what the last agent wrote below `root`. Raise StateError."""
        self._client, self._drivers, self._root = client, drivers, root
        self._claims = {(claim.namespace, claim.name): claim for claim in checkpoint.load(root)}
        self._locks = Locks()
        self.checkpoint = CheckpointWriter(checkpoint.FILE, self._prepared)

    @property
    def owners(self) -> set[str]:
        """The UIDs of the pods that have claims here."""
        return {uid for claim in self._claims.values() for uid in claim.pods}

    def drivers_of(self, uids: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the drivers of pods' claims, by UID."""
        found = {uid: set[str]() for uid in uids}
        for claim in self._claims.values():
            for uid in claim.pods & found.keys():
                found[uid].update(claim.drivers)
        return {uid: tuple(sorted(drivers)) for uid, drivers in found.items()}

    async def prepare(self, pod: core_v1.Pod) -> None:
        """Have all claims of a pod made ready. Raise DynamicResourceError."""
        if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
            return
        try:
            names = names_of(pod)
            async with self._locked((pod.metadata.namespace or "", name) for name in names):
                # First all that can go wrong without anything having been done: a pod that fails here can be deleted at once.
                await self._prepare(pod, [await self._read(pod, name, owned=owned) for name, owned in names.items()])
        except (ClaimError, DynamicResourceError) as error:
            raise DynamicResourceError(f"prepare dynamic resources: {error}") from error

    @contextlib.asynccontextmanager
    async def _locked(self, keys: Iterable[tuple[str, str]]) -> AsyncIterator[None]:
        """Hold the locks of claims, acquired in one order: a slow driver delays only pods with the same claims."""
        async with contextlib.AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                await stack.enter_async_context(self._locks.of(key))
            yield

    async def _prepare(self, pod: core_v1.Pod, found: Sequence[ClaimInfo]) -> None:
        batches: dict[str, list[ClaimInfo]] = {}
        for wanted in found:
            key = (wanted.namespace, wanted.name)
            claim = self._claims.setdefault(key, wanted)
            if claim.uid != wanted.uid:
                raise DynamicResourceError(
                    f"old ResourceClaim with same name {claim.name} and different UID {claim.uid} still exists "
                    "(previous pod force-deleted?!)"
                )
            if not _has(claim, wanted.allocated or frozenset()):
                raise DynamicResourceError(
                    f"ResourceClaim {claim.name} was allocated again, and what it had before is still in use here "
                    "(previous pod force-deleted?!)"
                )
            claim.pods.add(pod.metadata.uid or "")
            if not claim.prepared:
                for driver in claim.drivers:
                    batches.setdefault(driver, []).append(claim)
        await self._save()
        for name, claims in batches.items():
            devices = await self._drivers.get(name).prepare(claims)
            for claim in claims:
                claim.drivers[name] = devices[claim.uid]
        for claim in (claim for claims in batches.values() for claim in claims):
            claim.prepared = True
        if batches:
            await self._save()

    async def _read(self, pod: core_v1.Pod, name: str, *, owned: bool) -> ClaimInfo:
        """Read a claim and check that the pod may have it here and now. Raise DynamicResourceError."""
        try:
            claim = await self._client.get(resource_v1.ResourceClaim, name, pod.metadata.namespace or "")
        except StatusError as error:
            raise DynamicResourceError(f"fetch ResourceClaim {name}: {error}") from error
        if owned:
            check_owner(pod, claim)
        if not is_reserved_for(claim, pod):
            raise DynamicResourceError(
                f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim {name} "
                f"({claim.metadata.uid})"
            )
        if claim.status.allocation is None:
            raise DynamicResourceError(f"ResourceClaim {name}: not allocated")
        devices = claim.status.allocation.devices
        drivers = {result.driver for result in (devices.results if devices else ())}
        for driver in drivers:
            self._drivers.get(driver)
        return ClaimInfo(
            claim.metadata.uid or "",
            name,
            pod.metadata.namespace or "",
            drivers={driver: [] for driver in sorted(drivers)},
            allocated=frozenset(
                (result.driver, result.pool, result.device) for result in (devices.results if devices else ())
            ),
        )

    def of_pod(self, pod: core_v1.Pod, containers: Iterable[core_v1.Container]) -> PodClaims:
        """Return which claims these containers of a pod use, for `devices`."""
        return PodClaims(pod, containers)

    def devices(self, pod_claims: PodClaims, container: core_v1.Container) -> list[tuple[ClaimInfo, set[str]]]:
        """Return a container's claims with the requests of each that are for it; "" is all. Raise DynamicResourceError."""
        found = []
        for name, requests in pod_claims.used_by(container).items():
            claim = self._claims.get((pod_claims.namespace, name))
            if claim is None:
                raise DynamicResourceError(
                    f"unable to get claim info for ResourceClaim {name} in namespace {pod_claims.namespace}"
                )
            found.append((claim, requests))
        return found

    def cdi_devices(self, pod: core_v1.Pod, container: core_v1.Container) -> list[str]:
        """Return the CDI names of what a container's claims made ready for it. Raise DynamicResourceError."""
        names = [
            name
            for claim, requests in self.devices(PodClaims(pod, [container]), container)
            for devices in claim.drivers.values()
            for device in devices
            if "" in requests or not device.requests or requests & _bases(device.requests)
            for name in device.cdi
        ]
        return list(dict.fromkeys(names))

    def health(self, pod: core_v1.Pod, now: float) -> ClaimHealth:
        """Return the health of a pod's claimed devices for its main containers' statuses."""
        return ClaimHealth(self._claims, self._drivers.health, PodClaims(pod, pod.spec.containers), now)

    async def unprepare(self, uid: str) -> None:
        """Release a pod's claims that no other pod here uses. Raise DynamicResourceError."""
        if uid not in self.owners:
            return
        async with self._locked(key for key, claim in self._claims.items() if uid in claim.pods):
            await self._unprepare(uid)

    async def _unprepare(self, uid: str) -> None:
        mine = [claim for claim in self._claims.values() if uid in claim.pods]
        last = [claim for claim in mine if claim.pods == {uid}]
        try:
            for driver in sorted({name for claim in last for name in claim.drivers}):
                await self._drivers.get(driver).unprepare([c for c in last if driver in c.drivers])
        except DynamicResourceError as error:
            raise DynamicResourceError(f"unprepare dynamic resources: {error}") from error
        for claim in mine:
            claim.pods.discard(uid)
            if not claim.pods:
                del self._claims[(claim.namespace, claim.name)]
        await self._save()

    async def _save(self) -> None:
        """Write all claims as they are. Raise DynamicResourceError."""
        try:
            await self.checkpoint.save()
        except OSError as error:
            raise DynamicResourceError(f"failed to checkpoint claimInfo state: {error}") from error

    def _prepared(self) -> Callable[[], None]:
        return partial(checkpoint.write, self._root, checkpoint.encode(self._claims.values()))


def _has(claim: ClaimInfo, allocated: frozenset[tuple[str, str, str]]) -> bool:
    """Return whether what is here of a claim is what it is allocated now: other pods may have got what it had before."""
    made = {(name, device.pool, device.device) for name, devices in claim.drivers.items() for device in devices}
    return made <= allocated and claim.allocated in (None, allocated)


def _bases(requests: Iterable[str]) -> set[str]:
    """Return the requests that devices name, for a subrequest also the request above it."""
    return {text for request in requests for text in (request, request.partition("/")[0])}
