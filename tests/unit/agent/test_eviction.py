"""Eviction for a shortage: the order of pods, one pod at a time, and images and leftovers first."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agent.eviction import local_storage, manager, signals
from agent.eviction.image_filesystem import ImageFilesystem
from agent.eviction.ranking import Usage, eviction, rank, usage_of
from agent.eviction.signals import Reading
from agent.eviction.thresholds import Threshold
from agent.interfaces import PodView
from agent.lifecycle import End
from agent.pods.manager import PodManager
from agent.pods.state import Termination
from agent.pods.worker import PodWorker
from agent.usage.model import Memory
from cri.client import Client
from cri.errors import MessageTooLargeError, UnavailableError
from kube.api import core_v1
from tests.support.clock import FakeClock, settle
from tests.support.evictions import Runtime, SlowToEnd, evictions, pod, signal, use
from tests.support.iterations import Iterations

GI = 1 << 30


# -- order ------------------------------------------------------------------------------------------------------------
def of(name: str, used: int, requested: int = 0, priority: int = 0) -> Usage:
    return Usage(PodView(pod(name, priority), (), None), used, requested)


def test_static_pods_are_never_evicted_and_no_annotation_makes_a_pod_static() -> None:
    forged = Usage(PodView(pod("forged"), (), None), 9, 0)
    forged.view.pod.metadata.annotations |= {"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "1"}
    static = Usage(PodView(pod("static"), (), None, static=True), 9, 0)
    assert [usage.view.pod.metadata.name for usage in rank([static, forged])] == ["forged"]


def test_who_exceeds_requests_goes_first_then_low_priority_then_the_largest_excess() -> None:
    usages = [of("entitled", 90, 100), of("large", 80, 10), of("important", 99, 0, 1000), of("larger", 95, 10)]
    assert [u.view.pod.metadata.name for u in rank(usages)] == ["larger", "large", "important", "entitled"]
    assert rank([of("critical", 99, 0, 2_000_001_000)]) == []


def test_the_eviction_message_names_the_resource_and_the_containers_over_their_requests() -> None:
    request = pod("p", requests={"memory": "1Mi"})
    usage = usage_of(PodView(request, (), None), use("p", memory=5 << 20), "memory")
    end = eviction(Threshold("memory.available", "100Mi"), Reading(50 << 20, GI), usage)
    assert (end.phase, end.reason) == ("Failed", "Evicted")
    assert end.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container c was using 5Mi, request is 1Mi, has larger consumption of memory. "
    )
    usage = usage_of(PodView(request, (), None), use("p"), "pids")
    end = eviction(Threshold("pid.available", "10%"), Reading(7, 100), usage)
    assert end.message == "The node was low on resource: pids. Threshold quantity: 10, available: 7. "


def test_disk_is_the_layers_the_logs_and_the_volumes_on_disk() -> None:
    volumes = [
        {"name": "d", "emptyDir": {}},
        {"name": "m", "emptyDir": {"medium": "Memory"}},
        {"name": "s", "secret": {}},
    ]
    view = PodView(pod("p", volumes=volumes), (), None)
    assert usage_of(view, use("p", rootfs=1, logs=2, d=4, m=8, s=16), "ephemeral-storage").used == 7


def test_files_in_memory_count_for_a_pod_of_which_nothing_runs_any_more() -> None:
    volumes = [{"name": "d", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}]
    view = PodView(pod("p", volumes=volumes), (), None)
    running = use("p", memory=3, d=4, m=8)
    assert usage_of(view, running, "memory").used == 3
    assert usage_of(view, dataclasses.replace(running, containers=()), "memory").used == 8


def test_the_memory_of_a_pod_for_whose_containers_the_runtime_does_not_answer_is_that_of_its_cgroup() -> None:
    """Otherwise it would be the last one to be evicted."""
    silent = dataclasses.replace(use("p"), containers=(), memory=Memory(0.0, 5 << 20))
    assert usage_of(PodView(pod("p"), (), None), silent, "memory").used == 5 << 20


async def test_an_evicted_pod_whose_volumes_are_being_removed_is_still_the_first() -> None:
    pods = SlowToEnd("large", "small")
    pods.found["large"] = msgspec.structs.replace(pods.found["large"], containers=(), terminating=True, shortened=True)
    large = dataclasses.replace(use("large", d=9), containers=())
    for uid in pods.found:
        pods.found[uid].pod.spec.volumes = [core_v1.Volume(name="d", empty_dir=core_v1.EmptyDirVolumeSource())]
    loop = evictions(
        pods, {"nodefs.available": "10"}, lambda: signal("nodefs.available", 5), use("small", d=1), ending=(large,)
    )
    await loop.check()
    assert pods.evicted == ["large"]


# -- one shortage, one pod --------------------------------------------------------------------------------------------
async def test_pods_of_many_volumes_are_compared_with_limits_and_ranked_in_iterations_of_the_loop_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"p{number}" for number in range(20)]
    pods, calls, iterations = SlowToEnd(*names), Counter[tuple[str, int]](), Iterations()
    limit = core_v1.EmptyDirVolumeSource(size_limit="5")
    for view in pods.found.values():
        view.pod.spec.volumes = [core_v1.Volume(name=f"v{number}", empty_dir=limit) for number in range(100)]

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            calls[name, iterations.number] += 1
            return function(*given, **options)

        return call

    for module, name in ((local_storage, "limited"), (local_storage, "excess"), (manager, "usage_of")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))

    with iterations:
        loop = evictions(pods, {"memory.available": "10"}, lambda: signal("memory.available", 5), *map(use, names))
        await loop.check()
    assert set(calls.values()) == {1} and len(calls) == 3 * len(names)


@pytest.mark.parametrize(
    ("short", "evicted", "freed"), [("nodefs.available", "logs", 0), ("imagefs.available", "layers", 1)]
)
async def test_a_separate_disk_of_images_concerns_images_and_layers_and_the_agents_disk_logs_and_volumes(
    short: str, evicted: str, freed: int
) -> None:
    pods, requests = SlowToEnd("logs", "layers"), list[int]()

    def free(wanted: int) -> int:
        requests.append(wanted)
        return 0

    images = ImageFilesystem(cast(Client, Runtime(Path("/proc"))), Path("/"))
    used = use("logs", logs=9, rootfs=1), use("layers", logs=1, rootfs=10)
    loop = evictions(pods, {short: "10"}, lambda: signal(short, 5), *used, free=free, images=images)
    await loop.check()
    assert (pods.evicted, len(requests)) == ([evicted], freed)


async def test_the_disk_of_images_is_the_one_that_the_runtime_reports_and_until_then_the_agents(tmp_path: Path) -> None:
    runtime = Runtime(None)
    images = ImageFilesystem(cast(Client, runtime), tmp_path)
    read = signals.reader(tmp_path, GI, lambda: None, lambda: images.folder)
    await images.locate()
    assert read()["imagefs.available"].capacity == read()["nodefs.available"].capacity
    runtime.folder = Path("/dev")
    await images.locate()
    assert read()["imagefs.available"].capacity == os.statvfs("/dev").f_blocks * os.statvfs("/dev").f_frsize
    assert images.has_images("imagefs.inodesFree") and not images.has_images("nodefs.inodesFree")


@pytest.mark.parametrize(
    ("large", "evicted"),
    [
        ({"terminating": True}, "large"),  # its author chose how long it goes on
        ({"containers": ()}, "large"),  # an init container has written, and the main one never starts
        ({"containers": (), "terminating": True}, "large"),
        ({"terminating": True, "shortened": True}, "large"),  # it has been evicted, and cannot be stopped
        ({"containers": (), "terminating": True, "shortened": True}, "large"),  # its volumes are being removed
        ({"containers": (), "terminating": True, "released": True}, "small"),
    ],
)
async def test_a_pod_that_holds_what_is_short_goes_whatever_its_author_did_with_it(
    large: dict[str, Any], evicted: str
) -> None:
    pods = SlowToEnd("large", "small")
    pods.found["large"] = msgspec.structs.replace(pods.found["large"], **large)
    loop = evictions(pods, {"memory.available": "10"}, lambda: signal("memory.available", 5), *BOTH)
    await loop.check()
    assert pods.evicted == [evicted]


BOTH = use("large", memory=9), use("small", memory=1)


@pytest.mark.parametrize(("short", "evicted"), [("nodefs.available", []), ("memory.available", ["large"])])
async def test_leftovers_of_ended_pods_go_before_a_pod_does_for_a_shortage_on_disk(
    short: str, evicted: list[str]
) -> None:
    pods, left = SlowToEnd("large"), [5]
    images = ImageFilesystem(cast(Client, Runtime(Path("/proc"))), Path("/"))
    loop = evictions(
        pods,
        {short: "10"},
        lambda: signal(short, left[-1]),
        use("large", memory=9, logs=9),
        remove_leftovers=lambda: left.append(50),
        images=images,
    )
    await loop.check()
    assert pods.evicted == evicted


@pytest.mark.parametrize("error", [MessageTooLargeError("larger than max"), OSError("Input/output error")])
@pytest.mark.parametrize("fails", ["images", "leftovers"])
@pytest.mark.parametrize("enough", [True, False])
async def test_a_pod_is_evicted_also_if_images_or_leftovers_cannot_be_removed(
    error: Exception, fails: str, *, enough: bool
) -> None:
    pods, left, removed = SlowToEnd("large"), [5], list[str]()

    def remove(what: str) -> int:
        removed.append(what)
        if what == fails:
            raise error
        left[0] = 50 if enough else 5
        return 1

    loop = evictions(
        pods,
        {"nodefs.available": "10"},
        lambda: signal("nodefs.available", left[0]),
        use("large", rootfs=9),
        free=lambda wanted: remove("images"),
        remove_leftovers=lambda: remove("leftovers"),
    )
    await loop.check()
    assert (removed, pods.evicted) == (["leftovers", "images"], [] if enough else ["large"])


async def test_leftovers_of_one_ended_pod_that_cannot_be_removed_keep_no_others() -> None:
    removed = list[str]()

    def worker(name: str) -> Any:
        async def remove_leftovers() -> None:
            removed.append(name)
            if name != "last":
                raise {"busy": UnavailableError("the sandbox is in use"), "damaged": OSError("Input/output error")}[
                    name
                ]

        state = SimpleNamespace(termination=Termination(finished=True))
        return SimpleNamespace(state=state, remove_leftovers=remove_leftovers)

    manager = PodManager(cast(Any, None))
    manager.workers |= {name: worker(name) for name in ("busy", "damaged", "last")}
    await manager.remove_leftovers_of_ended()
    assert removed == ["busy", "damaged", "last"]


@pytest.mark.parametrize("lets_go", [True, False])
async def test_nobody_else_goes_while_an_evicted_pod_still_holds_what_is_short(lets_go: bool) -> None:
    pods, clock, looks = SlowToEnd("larger", "large"), FakeClock(), list[float]()

    def read() -> Mapping[str, Reading]:
        looks.append(clock.monotonic())
        return signal("memory.available", 90 if pods.let_go.is_set() else 5)

    used = use("larger", memory=9), use("large", memory=8)
    task = asyncio.create_task(evictions(pods, {"memory.available": "10"}, read, *used, clock=clock).run())
    await clock.advance(10)
    while not pods.evicted:  # the signals are read in a thread
        await settle()
    await clock.advance(29)
    assert (pods.evicted, looks) == (["larger"], [10.0])
    if lets_go:
        pods.let_go.set()  # and the next look is at once
    else:
        await clock.advance(1)  # the next round
    async with asyncio.timeout(30):
        while len(looks) < 2:
            await settle()
        while len(looks) < 4:
            await clock.advance(1)
    # One that cannot be stopped is evicted again, and costs no others.
    assert set(pods.evicted) == {"larger"} and (len(pods.evicted) == 1) is lets_go
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("short", ["nodefs.available", "imagefs.available", "nodefs.inodesFree", "imagefs.inodesFree"])
@pytest.mark.parametrize("enough", [True, False])
async def test_for_a_shortage_on_disk_unused_images_go_first_and_a_pod_where_that_is_not_enough(
    short: str, enough: bool
) -> None:
    pods, left, request = SlowToEnd("small", "large"), [5], list[int]()

    def free(wanted: int) -> int:
        request.append(wanted)
        left[0] = 11 if enough else 9
        return 4

    used = use("small", rootfs=3), use("large", rootfs=1, logs=4)
    await evictions(pods, {short: "10"}, lambda: signal(short, left[0]), *used, free=free).check()
    assert len(request) == 1 and request[0] > 1 << 60  # all that nobody uses, not only what is missing
    if enough:
        assert pods.evicted == []
    elif short.endswith("available"):
        assert pods.evicted == ["large"] and pods.messages[0].startswith(
            "The node was low on resource: ephemeral-storage. Threshold quantity: "
        )
    else:
        assert pods.messages == ["The node was low on resource: inodes. Threshold quantity: 10, available: 5. "]


async def test_signals_that_cannot_be_read_are_read_again_in_the_next_round() -> None:
    clock, pods = FakeClock(), SlowToEnd("a")
    failures: list[Exception] = [OSError("Input/output error"), UnavailableError("containerd is not there")]

    def read() -> Mapping[str, Reading]:
        if failures:
            raise failures.pop()
        return signal("memory.available", 1)

    task = asyncio.create_task(evictions(pods, {"memory.available": "10"}, read, use("a"), clock=clock).run())
    async with asyncio.timeout(10):
        while not pods.evicted and not task.done():
            await clock.advance(10)
            await asyncio.sleep(0.001)  # the signals are read in a thread
    assert pods.evicted == ["a"] and not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_disk_of_images_that_cannot_be_found_now_is_looked_for_again(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path / "not mounted")
    images = ImageFilesystem(cast(Client, runtime), tmp_path)
    await images.locate()
    assert images.folder == tmp_path
    runtime.folder = Path("/proc")
    await images.locate()
    assert images.folder == Path("/proc")


@pytest.mark.parametrize(
    ("cause", "grace", "given", "expected"),
    [
        (None, None, 1, 1),
        (None, None, None, None),
        (End("Failed", "DeadlineExceeded"), None, 1, 1),
        (End("Failed", "DeadlineExceeded"), 30, 1, 1),
        (End("Failed", "Evicted"), 1, 30, 1),
        (End("Failed", "Evicted"), 1, None, 1),
    ],
)
def test_a_pod_that_ends_already_is_given_less_time_but_never_more(
    cause: End | None, grace: int | None, given: int | None, expected: int | None
) -> None:
    termination = Termination(cause=cause, grace=grace)
    worker: Any = SimpleNamespace(state=SimpleNamespace(termination=termination), request_sync=lambda: None)
    evicted = End("Failed", "Evicted")
    PodWorker.kill(worker, evicted, given)
    assert termination.grace == expected and termination.cause == (cause or evicted)
