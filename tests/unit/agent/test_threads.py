from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import threads
from agent.usage import machine
from agent.usage.exposition import Text
from agent.volumes import persistent
from agent.volumes.mounted_volume import MountedVolume
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
    volumes._there = {"u": {"data": persistent._There(mounted=MountedVolume(Path("/nfs")))}}
    own = threads.Threads()
    own.install()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await volumes.volume_stats(pod)
    for _ in range(40):
        async with asyncio.timeout(5):
            assert await volumes.volume_stats(pod) == ()
        async with asyncio.timeout(5):
            await asyncio.to_thread(os.getpid)
    assert calls == [Path("/nfs")]
    text = Text()
    own.write(text)
    assert "wherry_volume_calls 1" in str(text) and "wherry_file_pool_queued 0" in str(text)
    hang.set()
    async with asyncio.timeout(5):
        while not await volumes.volume_stats(pod):
            await asyncio.sleep(0)


OWNERS = st.builds(
    threads.Owner,
    st.sampled_from([f"pod-{number}" for number in range(40)]),
    st.sampled_from(["one", "two", "three"]),
    st.frozensets(st.sampled_from(["nfs a", "nfs b", "csi c"]), max_size=2),
)


@given(st.lists(OWNERS, max_size=700))
def test_whatever_hangs_others_have_places(wanted: list[threads.Owner]) -> None:
    hung: list[threads.Owner] = []
    for owner in wanted:
        if not owner.refusal(hung):
            hung.append(owner)
    by_pod = Counter(owner.pod for owner in hung)
    by_server = Counter((owner.namespace, server) for owner in hung for server in owner.servers)
    assert max(by_pod.values(), default=0) <= threads.POD
    assert max(by_server.values(), default=0) <= threads.SERVER
    assert not threads.Owner("new", "other", frozenset({"nfs a"})).refusal(hung)


async def test_the_calls_of_a_server_that_hangs_leave_places_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "HUNG_SECONDS", 0.0)
    monkeypatch.setattr(threads, "LIMIT", 40)
    monkeypatch.setattr(threads, "SERVER", 8)
    monkeypatch.setattr(threads, "NAMESPACE", 16)
    release = threading.Event()

    async def hang(number: int, server: str) -> None:
        owner = threads.Owner(f"{server}-{number}", "crowd", frozenset({server}))
        await threads.call(owner.pod, release.wait, owner=owner)

    hung = []
    for server in ("nfs a", "nfs b", "nfs c"):
        for number in range(20):
            hung.append(asyncio.create_task(hang(number, server)))
            await asyncio.sleep(0)
    refused = [task for task in hung if task.done() and isinstance(task.exception(), OSError)]
    assert len(hung) - len(refused) == 16
    alone = threads.Owner("alone", "crowd")
    with pytest.raises(OSError, match="in the namespace"):
        await threads.call(alone.pod, os.getpid, owner=alone)
    other = threads.Owner("other", "quiet", frozenset({"nfs a"}))
    assert await threads.call(other.pod, os.getpid, owner=other) == os.getpid()
    release.set()
    await asyncio.gather(*hung, return_exceptions=True)


async def test_a_pod_of_many_volumes_that_hang_takes_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "HUNG_SECONDS", 0.0)
    release = threading.Event()
    monkeypatch.setattr(persistent, "_filesystem", lambda now, path: release.wait() and None)
    volumes = persistent.PersistentVolumes(Path("/pods"), None, None)  # type: ignore[arg-type]
    names = [f"v{number}" for number in range(30)]
    pod = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name="p", uid="u", namespace="n"),
        spec=core_v1.PodSpec(volumes=[core_v1.Volume(name=name) for name in names]),
    )
    volumes._there = {"u": {name: persistent._There(mounted=MountedVolume(Path("/nfs") / name)) for name in names}}
    for _ in range(2 * threads.POD):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await volumes.volume_stats(pod)
    assert sum(threads.under_way(f"use of /nfs/{name}") for name in names) == threads.POD
    async with asyncio.timeout(5):
        assert await volumes.volume_stats(pod) == ()
    release.set()
