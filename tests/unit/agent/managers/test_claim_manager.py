"""A driver that does not answer blocks the pods of its claims, and no others; what is recorded is whole all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.claims import checkpoint
from agent.claims.checkpoint import ClaimDevice, ClaimInfo
from agent.claims.manager import ClaimManager
from agent.managers.errors import DynamicResourceError
from kube.api import core_v1, resource_v1
from tests.support.lagging_api import LaggingAPI


class DRAClient:
    """Answers once `answers` is set; notes the calls that it got."""

    def __init__(self) -> None:
        self.answers, self.called, self.calls = asyncio.Event(), asyncio.Event(), list[tuple[str, list[str]]]()
        self.answers.set()

    async def prepare(self, claims: Sequence[ClaimInfo]) -> dict[str, list[ClaimDevice]]:
        await self._call("prepare", claims)
        return {claim.uid: [ClaimDevice(pool, device)] for claim in claims for _, pool, device in claim.allocated or ()}

    async def unprepare(self, claims: Sequence[ClaimInfo]) -> None:
        await self._call("unprepare", claims)

    async def _call(self, what: str, claims: Sequence[ClaimInfo]) -> None:
        self.calls.append((what, [claim.name for claim in claims]))
        self.called.set()
        await self.answers.wait()


class Node:
    """A manager and its drivers "hung" and "well"; claims are named after their driver, with a number."""

    def __init__(self, root: Path) -> None:
        self.api, self.root, self.tasks = LaggingAPI(), root, list[asyncio.Task[None]]()
        self.drivers = {"hung": DRAClient(), "well": DRAClient()}
        drivers: Any = _Drivers(self.drivers)
        self.manager = ClaimManager(self.api.client(), drivers, root)

    def claim(self, name: str, *pods: str, device: str = "device") -> None:
        result = {"driver": name.partition("-")[0], "pool": "pool", "device": device, "request": "r"}
        reserved = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        body = {"metadata": {"name": name, "namespace": "ns"}, "spec": {}, "status": status}
        self.api.put(msgspec.convert(body, resource_v1.ResourceClaim))

    def prepare(self, pod: str, *claims: str) -> asyncio.Task[None]:
        listed = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        metadata = {"name": pod, "namespace": "ns", "uid": pod}
        body = {"metadata": metadata, "spec": {"containers": [], "resourceClaims": listed}}
        return self._begin(self.manager.prepare(msgspec.convert(body, core_v1.Pod)))

    def unprepare(self, pod: str) -> asyncio.Task[None]:
        return self._begin(self.manager.unprepare(pod))

    def _begin(self, work: Any) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    @property
    def written(self) -> dict[str, set[str]]:
        """The pods of each claim, as the note has them."""
        return {claim.name: claim.pods for claim in checkpoint.load(self.root)}


class _Drivers:
    def __init__(self, drivers: dict[str, DRAClient]) -> None:
        self._drivers = drivers

    def get(self, name: str) -> DRAClient:
        return self._drivers[name]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def hang(node: Node) -> asyncio.Task[None]:
    """Have the driver of a pod's claim not answer."""
    node.drivers["hung"].answers.clear()
    node.claim("hung-1", "first", "second")
    pending = node.prepare("first", "hung-1")
    await node.drivers["hung"].called.wait()
    return pending


async def test_a_claim_that_many_entries_name_is_read_and_prepared_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, get = list[str](), node.manager._client.get

    async def counted(kind: Any, name: str, namespace: str) -> Any:
        read.append(name)
        return await get(kind, name, namespace)

    monkeypatch.setattr(node.manager._client, "get", counted)
    node.claim("well-1", "first")
    node.claim("well-2", "first")
    await node.prepare("first", *["well-1"] * 100, "well-2", "well-1")
    assert sorted(read) == ["well-1", "well-2"]
    assert [(what, sorted(names)) for what, names in node.drivers["well"].calls] == [("prepare", ["well-1", "well-2"])]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_claim_that_is_allocated_again_waits_until_what_it_had_before_is_released(
    node: Node, restarted: bool
) -> None:
    """A pod that is deleted by force still runs here; meanwhile its claim's device may be somebody else's."""
    node.claim("well-1", "first")
    await node.prepare("first", "well-1")
    node.claim("well-1", "second", device="other")
    if restarted:
        drivers: Any = _Drivers(node.drivers)
        node.manager = ClaimManager(node.api.client(), drivers, node.root)
    with pytest.raises(
        DynamicResourceError, match="well-1 was allocated again, and what it had before is still in use"
    ):
        await node.prepare("second", "well-1")
    assert node.written == {"well-1": {"first"}} and len(node.drivers["well"].calls) == 1
    await node.unprepare("first")
    await node.prepare("second", "well-1")
    assert node.written == {"well-1": {"second"}}
    node.claim("well-1", "second", "third", device="other")
    await node.prepare("third", "well-1")


async def test_pods_of_other_claims_come_and_go_while_a_driver_does_not_answer(node: Node) -> None:
    pending = await hang(node)
    node.claim("well-1", "other")
    await node.prepare("other", "well-1")
    await node.unprepare("no claims")
    assert node.written == {"hung-1": {"first"}, "well-1": {"other"}}
    await node.unprepare("other")
    assert not pending.done() and node.written == {"hung-1": {"first"}}
    node.drivers["hung"].answers.set()
    await pending


async def test_pods_of_one_claim_wait_for_each_other(node: Node) -> None:
    pending = await hang(node)
    node.claim("well-1", "second")
    shares = node.prepare("second", "well-1", "hung-1")
    ends = node.unprepare("first")
    node.drivers["hung"].answers.set()
    await asyncio.gather(pending, shares, ends)
    assert node.drivers["hung"].calls == [("prepare", ["hung-1"])], "once for both, and the second has it still"
    await node.unprepare("second")
    assert node.drivers["hung"].calls[1:] == [("unprepare", ["hung-1"])] and node.written == {}


async def test_pods_that_name_the_same_claims_in_another_order_do_not_wait_for_ever(node: Node) -> None:
    for name in ("well-1", "well-2"):
        node.claim(name, "first", "second")
    await asyncio.gather(node.prepare("first", "well-1", "well-2"), node.prepare("second", "well-2", "well-1"))
    await asyncio.gather(node.unprepare("first"), node.unprepare("second"))
    assert node.written == {}
