"""Bindings whose answer is lost: the scheduler finds out whether they took effect before it gives anything back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from control.components.embedded import SCHEDULER
from control.scheduler import binding_cycle, main
from control.scheduler.configuration import SchedulerConfig
from control.scheduler.devices import binding
from kube.api import core_v1, meta_v1, resource_v1
from kube.client import Client, Response, Transport
from kube.clock import SYSTEM
from kube.errors import StatusError
from kube.shared_informers import SharedInformers
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running

LOST = "cannot reach the API server: the connection was lost after the request was sent"


class Lossy:
    """A transport that loses the answer to bindings, or the bindings, and refuses reads of a pod meanwhile."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream, self.close = inner.stream, inner.close
        self.lost_answers = self.lost_requests = self.refused_reads = 0
        self.wait = 0.0
        """Seconds between the binding and the loss of its answer."""
        self.bindings: list[str] = []
        self.at_binding: Callable[[], None] = lambda: None

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if path.endswith("/binding"):
            self.bindings.append(path)
            self.at_binding()
            if self.lost_requests:
                self.lost_requests -= 1
                raise StatusError(503, "ServiceUnavailable", LOST)
            answer = await self._inner.request(method, path, **options)
            if self.lost_answers:
                self.lost_answers -= 1
                await asyncio.sleep(self.wait)
                raise StatusError(503, "ServiceUnavailable", LOST)
            return answer
        if method == "GET" and "/pods/" in path and self.refused_reads:
            self.refused_reads -= 1
            raise StatusError(503, "ServiceUnavailable", LOST)
        return await self._inner.request(method, path, **options)


class HeldWatches:
    """A transport whose watches say nothing while `passing` is not set, or only those of paths with `held` in them."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.request, self.close = inner.request, inner.close
        self.passing, self.held = asyncio.Event(), ""
        self.passing.set()

    @contextlib.asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._inner.stream(path, **options) as chunks:

            async def held() -> AsyncIterator[bytes]:
                async for chunk in chunks:
                    if self.held in path:
                        await self.passing.wait()
                    yield chunk

            yield held()


class Site:
    def __init__(self, server: ApiUnderTest, lossy: Lossy, watches: HeldWatches, scheduler: main.Scheduler) -> None:
        self.server, self.client, self.scheduler = server, server.client(), scheduler
        self.lossy, self.watches = lossy, watches

    async def bound(self, name: str) -> core_v1.Pod:
        """Create a pod and wait until it is bound and nothing is under way for it."""
        pod = core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
            spec=core_v1.PodSpec(containers=[core_v1.Container(name="c", image="i")]),
        )
        await self.client.create(pod)
        return await self.until_bound(name)

    async def until_bound(self, name: str) -> core_v1.Pod:
        async def look() -> core_v1.Pod | None:
            found = await self.client.get(core_v1.Pod, name, "default")
            message = await self.events(name)
            return found if found.spec.node_name and "Scheduled" in message else None

        found = await eventually(look)
        assert isinstance(found, core_v1.Pod)
        return found

    async def events(self, name: str) -> list[str]:
        listed = await self.client.list(core_v1.Event, "default")
        return [event.reason or "" for event in listed.items if event.involved_object.name == name]


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(binding_cycle, "FIRST_PAUSE", 0.05, raising=False)
    async with api_server(tmp_path) as server:
        client, nodes = server.client(), HollowNodes(server.client())
        await client.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name="default", namespace="default")))
        acting = server.api.client(SCHEDULER)
        lossy, watches = Lossy(acting.transport), HeldWatches(acting.transport)
        shared = SharedInformers(Client(watches), SYSTEM)
        scheduler = main.Scheduler(Client(lossy), shared, SchedulerConfig(), SYSTEM)
        async with running(shared.run(), scheduler.run(), nodes.run()):
            await nodes.register("n0")
            await nodes.register("n1")
            yield Site(server, lossy, watches, scheduler)


def scheduled(pod: core_v1.Pod) -> str | None:
    return next((c.status for c in pod.status.conditions if c.type == "PodScheduled"), None)


@pytest.mark.parametrize("wait", [0.0, 0.3], ids=["at once", "after the informer saw it"])
async def test_a_binding_that_took_effect_is_found_although_its_answer_is_lost(site: Site, wait: float) -> None:
    site.lossy.lost_answers, site.lossy.wait = 1, wait
    pod = await site.bound("p")
    await asyncio.sleep(1.5)  # longer than the first back-off
    assert len(site.lossy.bindings) == 1
    assert await site.events("p") == ["Scheduled"]
    assert scheduled(await site.client.get(core_v1.Pod, "p", "default")) != "False"
    node = site.scheduler.cluster.nodes[pod.spec.node_name or ""]
    assert list(node.pods) == ["default/p"]
    assert site.scheduler.queue.lengths() == (0, 0, 0)


async def test_a_binding_that_was_not_carried_out_is_tried_again(site: Site) -> None:
    site.lossy.lost_requests = 1
    await site.bound("p")
    assert len(site.lossy.bindings) == 2
    assert sorted(await site.events("p")) == ["FailedScheduling", "Scheduled"]


async def test_a_binding_is_settled_when_the_server_is_reachable_again(site: Site) -> None:
    site.lossy.lost_answers, site.lossy.refused_reads = 1, 3
    site.lossy.at_binding = site.watches.passing.clear
    await site.bound("p")
    assert len(site.lossy.bindings) == 1 and not site.lossy.refused_reads
    site.watches.passing.set()
    await asyncio.sleep(1.5)
    assert await site.events("p") == ["Scheduled"]


async def test_a_pod_that_somebody_else_bound_meanwhile_is_not_called_unschedulable(site: Site) -> None:
    acting = site.server.api.client(SCHEDULER)

    class Other(Lossy):
        """Binds the pod elsewhere before the scheduler's own binding arrives."""

        async def request(self, method: str, path: str, **options: Any) -> Response:
            if path.endswith("/binding"):
                target = core_v1.ObjectReference(kind="Node", name="n9")
                meta = meta_v1.ObjectMeta(name="p", namespace="default")
                binding = core_v1.Binding(api_version="v1", kind="Binding", metadata=meta, target=target)
                await acting.post(core_v1.Pod, "p", "default", "binding", binding)
            return await super().request(method, path, **options)

    site.lossy.__class__ = Other
    pod = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name="p", namespace="default"),
        spec=core_v1.PodSpec(containers=[core_v1.Container(name="c", image="i")]),
    )
    await site.client.create(pod)
    await eventually(lambda: site.lossy.bindings)
    await asyncio.sleep(1.5)
    found = await site.client.get(core_v1.Pod, "p", "default")
    assert found.spec.node_name == "n9" and scheduled(found) != "False"
    assert await site.events("p") == [] and len(site.lossy.bindings) == 1
    assert not any(node.pods for node in site.scheduler.cluster.nodes.values())


async def test_a_binding_that_fails_concerns_no_pod_that_was_made_anew_with_the_name(site: Site) -> None:
    def pod() -> core_v1.Pod:
        return core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name="p", namespace="default"),
            spec=core_v1.PodSpec(containers=[core_v1.Container(name="c", image="i")]),
        )

    failed, kept = asyncio.Event(), list[bool]()

    class Replaced(Lossy):
        """Replaces the pod during its binding, which fails while the new pod's binding is under way."""

        async def request(self, method: str, path: str, **options: Any) -> Response:
            if not path.endswith("/binding"):
                return await super().request(method, path, **options)
            self.bindings.append(path)
            if len(self.bindings) == 1:
                await site.client.delete(core_v1.Pod, "p", "default", grace_period_seconds=0)
                await site.client.create(pod())
                await eventually(lambda: len(self.bindings) > 1)
                asyncio.get_running_loop().call_later(0.5, failed.set)
                raise StatusError(409, "Conflict", "another pod")
            await failed.wait()
            kept.append(any(node.pods for node in site.scheduler.cluster.nodes.values()))
            return await self._inner.request(method, path, **options)

    site.lossy.__class__ = Replaced
    await site.client.create(pod())
    await eventually(lambda: kept)
    await site.until_bound("p")
    assert kept == [True] and len(site.lossy.bindings) == 2
    assert await site.events("p") == ["Scheduled"]


async def test_devices_of_a_pod_whose_binding_took_effect_stay_its_own(site: Site) -> None:
    await _devices(site.client)
    site.lossy.lost_answers, site.lossy.refused_reads = 1, 1
    site.lossy.at_binding = site.watches.passing.clear
    made = await site.client.create(with_claim("p", "card"))
    await site.until_bound("p")
    site.watches.passing.set()
    await asyncio.sleep(0.5)
    claim = await site.client.get(resource_v1.ResourceClaim, "card", "default")
    assert [consumer.uid for consumer in claim.status.reserved_for] == [made.metadata.uid]


def with_claim(name: str, claim: str) -> core_v1.Pod:
    resources = core_v1.ResourceRequirements(claims=[core_v1.ResourceClaim(name="card")])
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=core_v1.PodSpec(
            containers=[core_v1.Container(name="c", image="i", resources=resources)],
            resource_claims=[core_v1.PodResourceClaim(name="card", resource_claim_name=claim)],
        ),
    )


@pytest.mark.parametrize("took_effect", [True, False])
async def test_a_device_whose_allocation_may_have_taken_effect_is_given_to_no_other_claim(
    site: Site, monkeypatch: pytest.MonkeyPatch, took_effect: bool
) -> None:
    monkeypatch.setattr(binding, "FIRST_PAUSE", 0.05)
    await _devices(site.client)
    other = await site.client.get(resource_v1.ResourceClaim, "card", "default")
    metadata = meta_v1.ObjectMeta(name="other", namespace="default")
    await site.client.create(resource_v1.ResourceClaim(metadata=metadata, spec=other.spec))
    lost: list[str] = []

    class LossyClaims(Lossy):
        """Loses the first allocation or its answer, and the first reads after it; the watch of claims is behind then."""

        async def request(self, method: str, path: str, **options: Any) -> Response:
            if method == "PUT" and path.endswith("/resourceclaims/card/status") and not lost:
                lost.append(path)
                site.watches.passing.clear()
                if took_effect:
                    await self._inner.request(method, path, **options)
                raise StatusError(503, "ServiceUnavailable", LOST)
            if method == "GET" and path.endswith("/resourceclaims/card") and len(lost) < 3:
                lost.append(path)
                raise StatusError(503, "ServiceUnavailable", LOST)
            return await super().request(method, path, **options)

    site.lossy.__class__, site.watches.held = LossyClaims, "resourceclaims"
    await site.client.create(with_claim("a", "card"))
    await eventually(lambda: lost)
    await site.client.create(with_claim("b", "other"))
    await site.until_bound("a")
    site.watches.passing.set()

    async def refused() -> bool:
        return scheduled(await site.client.get(core_v1.Pod, "b", "default")) == "False"

    await eventually(refused)
    claim = await site.client.get(resource_v1.ResourceClaim, "other", "default")
    assert claim.status.allocation is None and len(lost) == 3


async def _devices(client: Client) -> None:
    with contextlib.suppress(StatusError):
        await client.create(resource_v1.DeviceClass(metadata=meta_v1.ObjectMeta(name="cards")))
    await client.create(
        resource_v1.ResourceSlice(
            metadata=meta_v1.ObjectMeta(name="cards"),
            spec=resource_v1.ResourceSliceSpec(
                driver="driver.example.com",
                all_nodes=True,
                pool=resource_v1.ResourcePool(name="cards", generation=1, resource_slice_count=1),
                devices=[resource_v1.Device(name="one")],
            ),
        )
    )
    exactly = resource_v1.ExactDeviceRequest(device_class_name="cards")
    await client.create(
        resource_v1.ResourceClaim(
            metadata=meta_v1.ObjectMeta(name="card", namespace="default"),
            spec=resource_v1.ResourceClaimSpec(
                devices=resource_v1.DeviceClaim(requests=[resource_v1.DeviceRequest(name="r", exactly=exactly)])
            ),
        )
    )
