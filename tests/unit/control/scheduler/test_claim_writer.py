"""Writes of claims that fail, and the reservations of their devices."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from control.scheduler.devices import binding
from control.scheduler.devices.binding import Reserved
from control.scheduler.framework import BindingFailed
from control.scheduler.plugins.dynamic_resources import DynamicResources
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, meta_v1, resource_v1
from kube.errors import StatusError
from kube.informer import Change
from tests.support.clock import FakeClock, settle

ALLOCATION = resource_v1.AllocationResult(
    devices=resource_v1.DeviceAllocationResult(
        results=[resource_v1.DeviceRequestAllocationResult(request="r", driver="d", pool="p", device="gpu")]
    )
)
POD = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace="default", uid="pod"))


class Server:
    """Has one claim; statuses in `failures` are those of the next calls of a method, which has no effect then."""

    def __init__(self, stored: resource_v1.ResourceClaim | None = None) -> None:
        self.stored = stored
        self.failures: dict[str, list[int]] = {}
        self.lost = 0
        """Writes of the status that are carried out, but whose responses are lost."""
        self.deleted: list[str] = []

    def _fail(self, method: str) -> None:
        if codes := self.failures.get(method):
            raise StatusError(codes.pop(0), "Reason", f"{method} fails")

    def _store(self, claim: resource_v1.ResourceClaim, **metadata: Any) -> resource_v1.ResourceClaim:
        version = int(self.stored.metadata.resource_version or 0) if self.stored is not None else 0
        changed = msgspec.structs.replace(claim.metadata, resource_version=str(version + 1), **metadata)
        self.stored = msgspec.structs.replace(claim, metadata=changed)
        return self.stored

    async def create(self, claim: resource_v1.ResourceClaim) -> resource_v1.ResourceClaim:
        self._fail("create")
        return self._store(claim, name="p-x", uid="real")

    async def update(self, claim: resource_v1.ResourceClaim) -> resource_v1.ResourceClaim:
        self._fail("update")
        return self._store(claim)

    async def update_status(self, claim: resource_v1.ResourceClaim) -> resource_v1.ResourceClaim:
        self._fail("update_status")
        made = self._store(claim)
        if self.lost:
            self.lost -= 1
            raise StatusError(504, "Timeout", "the response is lost")
        return made

    async def get(self, *_: Any) -> resource_v1.ResourceClaim:
        self._fail("get")
        if self.stored is None:
            raise StatusError(404, "NotFound", "no such claim")
        return self.stored

    async def delete(self, kind: Any, name: str, namespace: str, *, uid: str) -> None:
        self.deleted.append(uid)


class Informer:
    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def subscribe(self, handler: Any) -> None:
        self.handlers.append(handler)


def claim(uid: str) -> resource_v1.ResourceClaim:
    return resource_v1.ResourceClaim(metadata=meta_v1.ObjectMeta(name="c", namespace="default", uid=uid))


class Site:
    """The plugin with one claim reserved, which is to be created first if `made`."""

    def __init__(self, *, made: bool = False) -> None:
        self.clock, self.server = FakeClock(), Server(None if made else claim("c"))
        client: Any = self.server
        none: Any = Informer()
        self.claims = Informer()
        claims: Any = self.claims
        self.tested = DynamicResources(client, claims, none, none, self.clock)
        self.pod = PodInfo(POD)
        reserved = Reserved(claim("temporary" if made else "c"), ALLOCATION, [] if made else None)
        self.tested.allocated.reserve(reserved.claim.metadata.uid or "", ALLOCATION)
        self.tested._reserved[POD.metadata.uid or ""] = [reserved]

    async def revert(self) -> None:
        """Do what the scheduler does after a failure."""
        self.tested.unreserve(self.pod)
        await self.tested.release(self.pod)


@pytest.mark.parametrize(
    ("failures", "deleted"),
    [
        ({"create": [403]}, []),
        ({"update": [403]}, ["real"]),
        ({"update_status": [404]}, ["real"]),
        ({"update_status": [504], "get": [404]}, ["real"]),
        ({"update_status": [409], "get": [403]}, ["real"]),
    ],
)
async def test_devices_of_a_created_claim_are_released_if_its_allocation_cannot_be_written(
    failures: dict[str, list[int]], deleted: list[str]
) -> None:
    site = Site(made=True)
    site.server.failures = failures
    with pytest.raises((StatusError, BindingFailed)):
        await site.tested.pre_bind(site.pod, "n")
    assert site.tested.allocated.in_use
    await site.revert()
    assert not site.tested.allocated.in_use and site.server.deleted == deleted


async def test_devices_of_a_created_claim_stay_allocated_when_it_is_written() -> None:
    site = Site(made=True)
    with pytest.raises(AttributeError):
        await site.tested.pre_bind(site.pod, "n")  # the pod cannot be patched here
    assert list(site.tested.allocated.in_use.values()) == [1]
    assert not site.tested.allocated.pending("temporary")


@pytest.mark.parametrize("code", [429, 503, 401, 500])
async def test_devices_stay_reserved_until_the_server_shows_whether_they_are_allocated(code: int) -> None:
    site = Site()
    site.server.lost, site.server.failures = 1, {"get": [code] * 300}
    task = asyncio.create_task(site.tested.pre_bind(site.pod, "n"))
    try:
        await site.clock.advance(1800)
        assert not task.done() and site.tested.allocated.pending("c")
        site.server.failures = {}
        await site.clock.advance(10)
        await task
        assert list(site.tested.allocated.in_use.values()) == [1] and not site.tested.allocated.pending("c")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def unready(name: str) -> resource_v1.ResourceClaim:
    result = resource_v1.DeviceRequestAllocationResult(
        request="r", driver="d", pool="p", device=name, binding_conditions=["prepared"]
    )
    allocation = resource_v1.AllocationResult(devices=resource_v1.DeviceAllocationResult(results=[result]))
    return resource_v1.ResourceClaim(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default", uid=name, resource_version="1"),
        status=resource_v1.ResourceClaimStatus(allocation=allocation),
    )


async def test_a_claim_that_changes_wakes_only_the_pods_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    site, checks = Site(), list[str]()
    ready = binding._ready

    def counted(found: resource_v1.ResourceClaim) -> bool:
        checks.append(found.metadata.name or "")
        return ready(found)

    monkeypatch.setattr(binding, "_ready", counted)
    site.tested.follow(lambda change: None, lambda: None, lambda: None)
    (report,) = site.claims.handlers
    pods = {name: PodInfo(core_v1.Pod(metadata=meta_v1.ObjectMeta(name=name, uid=name))) for name in ("a", "b")}
    tasks = []
    for name, pod in pods.items():
        reserved = Reserved(unready(name), written=True)
        reserved.claim.status.reserved_for = [
            resource_v1.ResourceClaimConsumerReference(resource="pods", name=name, uid=name)
        ]
        site.tested._reserved[name] = [reserved]
        tasks.append(asyncio.create_task(site.tested.pre_bind(pod, "n")))
    try:
        await settle()
        checks.clear()
        report(Change("MODIFIED", None, unready("a")))
        report(Change("ADDED", None, unready("another")))
        await settle()
        assert checks == ["a"]
        site.tested.abandon(pods["b"])
        with pytest.raises(BindingFailed, match="the pod was deleted in the meantime"):
            await tasks[1]
        assert not tasks[0].done() and checks == ["a"]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
