from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import thread_slots, threads
from agent.metrics.exposition import Text
from agent.usage import machine
from agent.volumes import formatting, nfs, persistent
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


async def test_reads_with_one_key_at_the_same_time_share_one_call() -> None:
    ready, begun = threading.Event(), list[int]()

    def read() -> int:
        begun.append(1)
        ready.wait()
        return 42

    reads = [asyncio.create_task(threads.call_shared("v", read)) for _ in range(3)]
    await asyncio.sleep(0.01)
    ready.set()
    assert await asyncio.gather(*reads) == [42, 42, 42]
    assert len(begun) == 1


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
    volumes = persistent.PersistentVolumes(Path("/pods"), None, None, None)  # type: ignore[arg-type]
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
    monkeypatch.setattr(thread_slots, "BLOCKED", 0.005)
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
    async with asyncio.timeout(20):
        while thread_slots.of_loop().waiting or sum(not task.done() for task in hung) > 16:
            await asyncio.sleep(0.01)
    refused = [task for task in hung if task.done() and isinstance(task.exception(), OSError)]
    assert len(hung) - len(refused) == 16
    alone = threads.Owner("alone", "crowd")
    with pytest.raises(OSError, match="in the namespace"):
        await threads.call(alone.pod, os.getpid, owner=alone)
    other = threads.Owner("other", "quiet", frozenset({"nfs a"}))
    assert await threads.call(other.pod, os.getpid, owner=other) == os.getpid()
    release.set()
    await asyncio.gather(*hung, return_exceptions=True)


async def test_calls_without_an_owner_have_the_slots_of_one_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_slots, "BLOCKED", 60.0)
    release = threading.Event()
    long = [asyncio.create_task(threads.call(f"pod {number}", release.wait)) for number in range(thread_slots.NODE)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(5):
            assert await threads.call("another", os.getpid, owner=threads.Owner("uid", "n")) == os.getpid()
    finally:
        release.set()
    await asyncio.gather(*long)


async def test_a_thread_that_cannot_be_started_fails_its_own_call_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_slots, "NODE", 1)
    release, start = threading.Event(), threading.Thread.start

    def start_unless_full(thread: threading.Thread) -> None:
        if thread.name == "volume full":
            raise MemoryError
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_unless_full)
    first = asyncio.create_task(threads.call("first", release.wait))
    await asyncio.sleep(0)
    full, last = (asyncio.create_task(threads.call(key, os.getpid)) for key in ("full", "last"))
    await asyncio.sleep(0)
    release.set()
    async with asyncio.timeout(5):
        assert await first
        with pytest.raises(OSError, match="MemoryError") as caught:
            await full
        assert await last == os.getpid()
    assert caught.value.errno == errno.EAGAIN
    assert not thread_slots.of_loop()._holding


async def test_a_call_returns_whatever_becomes_of_those_that_wait_for_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(slots: thread_slots.ThreadSlots, work: thread_slots.Work) -> None:
        raise RuntimeError

    monkeypatch.setattr(thread_slots.ThreadSlots, "leave", leave)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    async with asyncio.timeout(5):
        assert await threads.call("a", os.getpid) == os.getpid()


async def test_mounts_are_made_for_their_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = list[threads.Owner | None]()

    async def call(key: str, function: object, *args: object, owner: threads.Owner | None = None) -> bool:
        owners.append(owner)
        return True

    monkeypatch.setattr(threads, "call", call)
    owner = threads.Owner("uid", "n")
    await nfs.mount("server", "/export", tmp_path, (), read_only=True, owner=owner)
    await formatting.mount("/dev/disk", tmp_path, "", (), read_only=True, owner=owner)
    assert owners == [owner, owner]


async def test_a_pod_of_many_volumes_that_hang_takes_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "HUNG_SECONDS", 0.0)
    monkeypatch.setattr(thread_slots, "BLOCKED", 0.001)
    release = threading.Event()
    monkeypatch.setattr(persistent, "_filesystem", lambda now, path: release.wait() and None)
    volumes = persistent.PersistentVolumes(Path("/pods"), None, None, None)  # type: ignore[arg-type]
    names = [f"v{number}" for number in range(30)]
    pod = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name="p", uid="u", namespace="n"),
        spec=core_v1.PodSpec(volumes=[core_v1.Volume(name=name) for name in names]),
    )
    volumes._there = {"u": {name: persistent._There(mounted=MountedVolume(Path("/nfs") / name)) for name in names}}
    for _ in range(2 * threads.POD):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await volumes.volume_stats(pod)
    assert sum(threads.under_way(f"use of /nfs/{name}") for name in names) == threads.POD
    async with asyncio.timeout(5):
        assert await volumes.volume_stats(pod) == ()
    release.set()
