from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from agent import threads
from agent.usage import machine
from agent.usage.exposition import Text
from agent.volumes import persistent
from agent.volumes.mounted import Mounted
from kube.api import core_v1, meta_v1


async def test_calls_with_one_key_run_one_after_another_and_others_side_by_side() -> None:
    release, order = threading.Event(), []
    first = asyncio.create_task(threads.call("a", lambda: (release.wait(), order.append("first"))))
    await asyncio.sleep(0)
    second = asyncio.create_task(threads.call("a", order.append, "second"))
    await threads.call("b", order.append, "other")
    assert order == ["other"]
    release.set()
    await asyncio.gather(first, second)
    assert order == ["other", "first", "second"]


async def test_errors_are_raised_and_the_number_of_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError):
        await threads.call("a", os.stat, "/nowhere")
    monkeypatch.setattr(threads, "LIMIT", 2)
    release = threading.Event()
    hung = [asyncio.create_task(threads.call(key, release.wait)) for key in "ab"]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="have not returned yet"):
        await threads.call("c", os.getpid)
    release.set()
    await asyncio.gather(*hung)
    assert await threads.call("c", os.getpid) == os.getpid()


async def test_a_hung_volume_costs_one_thread_however_often_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    hang, calls, real = threading.Event(), [], machine.filesystem

    def hung(now: float, path: Path, *sizes: int) -> machine.Filesystem:
        if path == Path("/nfs"):
            calls.append(path)
            hang.wait()
        return real(now, Path("/"), *sizes)

    monkeypatch.setattr(machine, "filesystem", hung)
    volumes = persistent.PersistentVolumes(Path("/pods"), None, None)  # type: ignore[arg-type]
    pod = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name="p", uid="u"), spec=core_v1.PodSpec(volumes=[core_v1.Volume(name="data")])
    )
    volumes._there = {"u": {"data": persistent._There(mounted=Mounted(Path("/nfs")))}}
    own = threads.Threads()
    own.install()
    for _ in range(40):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await volumes.figures(pod)
        async with asyncio.timeout(5):
            await asyncio.to_thread(os.getpid)
    assert calls == [Path("/nfs")]
    text = Text()
    own.write(text)
    assert "wherry_volume_calls 1" in str(text) and "wherry_file_pool_queued 0" in str(text)
    hang.set()
    async with asyncio.timeout(5):
        assert len(await volumes.figures(pod)) == 1
