from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from agent import threads
from agent.volumes.manager import VolumeManager


async def test_volumes_of_a_pod_of_an_earlier_agent_are_removed_for_its_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = cast(Any, SimpleNamespace(has_volumes_of=lambda uid: False, forget=lambda uid: None))
    manager = VolumeManager(tmp_path / "pods", nobody, nobody, nobody, nobody)
    owners: list[threads.Owner | None] = []

    async def call(key: str, function: Callable[..., Any], *args: Any, owner: threads.Owner | None = None) -> Any:
        owners.append(owner)
        return function(*args)

    monkeypatch.setattr(threads, "call", call)
    folder = manager.pod_dir("uid") / "volumes" / "kubernetes.io~csi"
    folder.mkdir(parents=True)
    nobody.release = AsyncMock()
    owner = threads.Owner("uid", "team")
    await manager.clean("uid", owner)
    owner = owner.for_purpose(threads.REMOVAL)
    assert owners == [owner, owner] and not manager.pod_dir("uid").exists()
    nobody.release.assert_awaited_once_with("uid", owner)


async def test_a_call_that_hangs_keeps_no_empty_dir_of_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subPath of an NFS volume whose server is gone: the pod's own files must not stay on the node's disk for that."""
    nobody = cast(Any, SimpleNamespace(has_volumes_of=lambda uid: False, forget=lambda uid: None))
    manager = VolumeManager(tmp_path / "pods", nobody, nobody, nobody, nobody)
    monkeypatch.setattr(threads, "HUNG_SECONDS", 0.05)
    folder = manager.pod_dir("uid")
    written, kept = folder / "volumes/kubernetes.io~empty-dir/d/x", folder / "volumes/kubernetes.io~nfs/v"
    for each in (written, kept):
        each.mkdir(parents=True)
    answered = threading.Event()
    hangs = asyncio.create_task(threads.call("uid", answered.wait))
    await asyncio.sleep(0)
    cleaning = asyncio.create_task(manager.clean("uid", threads.Owner("uid", "team")))
    try:
        async with asyncio.timeout(10):
            while written.parent.exists():
                await asyncio.sleep(0.01)
        assert kept.exists() and not cleaning.done()
    finally:
        answered.set()
        await asyncio.gather(hangs, cleaning)
    assert not folder.exists()


async def test_a_driver_that_does_not_respond_keeps_no_empty_dir_of_the_pod(tmp_path: Path) -> None:
    nobody = cast(Any, SimpleNamespace(has_volumes_of=lambda uid: False, forget=lambda uid: None))
    manager = VolumeManager(tmp_path / "pods", nobody, nobody, nobody, nobody)
    folder = manager.pod_dir("uid")
    written, kept = folder / "volumes/kubernetes.io~empty-dir/d/x", folder / "volumes/kubernetes.io~csi/v"
    for each in (written, kept):
        each.mkdir(parents=True)
    found = list[tuple[bool, bool]]()

    async def release(uid: str, owner: threads.Owner) -> None:
        found.append((written.parent.exists(), kept.exists()))

    nobody.release = release
    await manager.clean("uid", threads.Owner("uid", "team"))
    assert found == [(False, True)] and not folder.exists()
