"""Errors of a pod's steps that are not the pod's: cancellations by a driver that registers anew or by others, and faults."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from agent.pods import child_task, worker
from agent.pods.context import PodContext
from agent.pods.steps.sync import sync
from agent.runtime import Runtime
from agent.runtime_records import ContainerRecord
from agent.threads import Owner
from agent.volumes.cleanup import CleanupError
from agent.volumes.manager import VolumeManager
from cri.client import Client
from kube.api import core_v1
from tests.support.claim_driver import ClaimDriver, allocated_claim
from tests.support.fake_node import container, create
from tests.support.node import NodeUnderTest, is_ready


class HeldDriver(ClaimDriver):
    """Holds the first call to make a claim ready for ever."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.held = asyncio.Event()

    async def _prepare(self, request: Any, context: Any) -> Any:
        if not self.held.is_set():
            self.held.set()
            await asyncio.Event().wait()
        return await super()._prepare(request, context)


async def with_claim(node: NodeUnderTest, driver: HeldDriver) -> None:
    """Create a pod whose claim the driver is at."""
    uses = container(resources={"claims": [{"name": "card"}]})
    pod = await create(node, "p", uses, resourceClaims=[{"name": "card", "resourceClaimName": "c"}])
    await allocated_claim(node.client, "c", pod)
    await driver.held.wait()


async def test_a_pod_starts_when_its_claims_driver_registers_anew_during_a_call(node: NodeUnderTest) -> None:
    driver = HeldDriver(node.config.root_dir)
    async with driver.serving():
        await with_claim(node, driver)
    driver.socket.unlink(missing_ok=True)
    async with driver.serving():
        await node.ready("p")


async def test_a_pods_step_that_others_cancelled_is_tried_again(node: NodeUnderTest) -> None:
    driver = HeldDriver(node.config.root_dir)
    async with driver.serving():
        await with_claim(node, driver)
        (step,) = (task for task in asyncio.all_tasks() if task.get_name() == "sync pod default/p")
        step.cancel()
        await node.ready("p")


async def test_a_pods_worker_whose_call_others_cancelled_goes_on(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(node, "p", container())
    pod = await node.ready("p")
    read, cancelled = Runtime.container, list[str]()

    async def cancelled_once(self: Runtime, container_id: str, sandbox_id: str = "") -> ContainerRecord | None:
        if not cancelled:
            cancelled.append(container_id)
            call = asyncio.get_running_loop().create_future()
            call.cancel()
            await call
        return await read(self, container_id, sandbox_id)

    monkeypatch.setattr(Runtime, "container", cancelled_once)
    container_id = (pod.status.container_statuses[0].container_id or "").partition("://")[2]
    async with Client(node.config.runtime_endpoint) as client:
        await client.runtime.stop_container(container_id, 0)
    await node.wait("p", lambda pod: is_ready(pod) and pod.status.container_statuses[0].restart_count == 1)
    assert cancelled == [container_id]


async def test_a_pods_sync_that_fails_unexpectedly_is_tried_again(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("unexpected"), OSError("Input/output error")]

    async def failing(context: PodContext) -> None:
        if failures:
            raise failures.pop()
        await sync(context)

    monkeypatch.setattr(child_task, "UNEXPECTED_SECONDS", 0.05)
    monkeypatch.setattr(worker, "sync", failing)
    await create(node, "p", container())
    await node.ready("p")
    assert not failures


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), CleanupError("it is still mounted")])
async def test_volumes_that_cannot_be_removed_are_tried_again_within_the_pods_termination(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    clean, failures = VolumeManager.clean, [error, error]

    async def failing(self: VolumeManager, uid: str, owner: Owner) -> None:
        if failures:
            raise failures.pop()
        await clean(self, uid, owner)

    monkeypatch.setattr(VolumeManager, "clean", failing)
    await create(node, "p", container())
    pod = await node.ready("p")
    await node.client.delete(core_v1.Pod, "p", "default")
    await node.gone("p")
    assert f"pod {pod.metadata.uid}: cleaning volumes: {error}" in caplog.text and not failures
    assert "end pod default/p failed" not in caplog.text
