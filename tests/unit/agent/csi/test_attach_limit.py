"""Attaching a volume beyond a driver's number ends in an error of its own, where that number is kept up to date."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from agent.csi.attachments import WAIT_SECONDS, Attachments
from agent.volumes.csi_volume import Volume
from agent.volumes.payload import AttachLimitError, VolumeError
from kube.api import core_v1, storage_v1
from kube.csi import attachment_name
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI

VOLUME = Volume(name="pv", driver="d", handle="h", pod_volume="data")


class Limits:
    def __init__(self, *, followed: bool) -> None:
        self.followed, self.calls = followed, list[str]()

    async def corrected(self, name: str) -> bool:
        self.calls.append(name)
        return self.followed


@pytest.mark.parametrize(
    ("code", "followed", "wanted"), [(8, True, AttachLimitError), (8, False, VolumeError), (13, True, VolumeError)]
)
async def test_a_number_that_is_reached_is_told_apart(code: int, followed: bool, wanted: type[Exception]) -> None:
    api, clock = LaggingAPI(), FakeClock()
    in_use = {"volumesInUse": [VOLUME.unique_name]}
    api.put(msgspec.convert({"metadata": {"name": "node"}, "status": in_use}, core_v1.Node))
    found = {
        "metadata": {"name": attachment_name("d", "h", "node")},
        "spec": {"attacher": "d", "nodeName": "node", "source": {}},
        "status": {"attached": False, "attachError": {"message": "full", "errorCode": code}},
    }
    api.put(msgspec.convert(found, storage_v1.VolumeAttachment))
    limits: Any = Limits(followed=followed)
    attachments = Attachments(api.client(), "node", request_report=lambda: None, clock=clock, limits=limits)
    waiting = asyncio.create_task(attachments.wait(VOLUME))
    await clock.advance(WAIT_SECONDS + 2)
    with pytest.raises(wanted):
        await waiting
    assert limits.calls == (["d"] if code == 8 else [])
