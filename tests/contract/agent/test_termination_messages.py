"""Termination messages in a file of a volume, which may never answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import threads
from kube.api import core_v1
from tests.support.fake_node import container, create
from tests.support.node import NodeUnderTest, eventually

HANGS_FOR = 30.0
"""Seconds after which the file answers after all, so that a test that fails ends."""


class Volume:
    """A file of which no thread hears anything until it answers."""

    def __init__(self, file: Path) -> None:
        self.file, self.answers, self.calls = file, threading.Event(), 0
        self._real = os.open

    def open(self, path: Any, *args: Any, **named: Any) -> int:
        if path == str(self.file):
            self.calls += 1
            self.answers.wait(HANGS_FOR)
        return self._real(path, *args, **named)


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Volume]:
    file = tmp_path / "message"
    file.write_text("of the volume")
    volume = Volume(file)
    monkeypatch.setattr(os, "open", volume.open)
    yield volume
    volume.answers.set()


def _spec(volume: Volume) -> dict[str, Any]:
    return {"restartPolicy": "Never", "volumes": [{"name": "data", "hostPath": {"path": str(volume.file)}}]}


def _main() -> dict[str, Any]:
    return container("exit 3", terminationMessagePath="/m", volumeMounts=[{"name": "data", "mountPath": "/m"}])


def _ended(pod: core_v1.Pod) -> bool:
    return pod.status.phase == "Failed"


def _message(pod: core_v1.Pod) -> str | None:
    state = pod.status.container_statuses[0].state
    assert state is not None and state.terminated is not None
    return state.terminated.message


async def test_a_message_in_a_file_of_a_volume_is_read(node: NodeUnderTest, volume: Volume) -> None:
    volume.answers.set()
    await create(node, "tells", _main(), **_spec(volume))
    assert _message(await node.wait("tells", _ended)) == "of the volume"


async def test_a_volume_that_hangs_has_no_message_and_holds_up_no_other_pod(
    node: NodeUnderTest, volume: Volume
) -> None:
    await create(node, "silent", _main(), **_spec(volume))

    async def requested() -> bool:
        return volume.calls > 0

    await eventually(requested, "nobody reads the message")
    assert not volume.answers.is_set() and threads.under_way(f"message {volume.file}")
    await create(node, "other")
    await node.ready("other")
    assert _message(await node.wait("silent", _ended)) is None
    assert volume.calls == 1, "the message was asked for only once while it hung"
