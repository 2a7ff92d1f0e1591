"""Spans of a pod's syncs: in the pod's trace until its containers have been started, then in traces of their own."""

from __future__ import annotations

from typing import Any

import pytest

from agent.pods.state import PodState
from agent.pods.sync_spans import SyncSpans
from agent.runtime_records import ContainerRecord, PodRuntime, State
from cri.errors import UnavailableError
from kube.api import core_v1, meta_v1
from kube.clock import SYSTEM
from kube.tracing import spans
from kube.tracing.tracer import MOST_ATTEMPTS
from tests.support.spans import tracer

UID = "8a3c2c0e-94a5-4a7a-9f0e-0d6a2f6c1b2d"


def state(**more: Any) -> PodState:
    container = core_v1.Container(name="main", image="a")
    metadata = meta_v1.ObjectMeta(name="web", namespace="default", uid=UID, resource_version="7")
    pod = core_v1.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=[container]))
    options = {"static": False, "rejection": None, "allocated": pod, "clock": SYSTEM, "back_off_max": 300.0} | more
    return PodState(pod, PodRuntime(), **options)


async def work() -> None:
    with spans.child("step"):
        pass


async def test_nothing_is_recorded_without_a_tracer() -> None:
    given = work()
    assert SyncSpans(None, state()).sync("create", given) is given
    await given


async def test_syncs_belong_to_the_start_until_all_containers_have_been_started() -> None:
    chosen, kept = tracer()
    pod = state()
    root = chosen.pod_root(UID)
    recorder = SyncSpans(chosen, pod)
    await recorder.sync("create", work())
    record = ContainerRecord(
        id="c", name="main", state=State.RUNNING, restart_count=0, sandbox_id="s", hash="", created_at=0.0
    )
    pod.runtime = pod.runtime.with_container(record)
    await recorder.sync("sync", work())
    await recorder.termination(work())
    first, step, second, _, last, _ = kept
    assert first.name == "syncPod" and first.parent == root and step.parent == first.context
    assert first.attributes["k8s.pod"] == "default/web" and first.attributes["k8s.pod.resource_version"] == "7"
    assert first.attributes["k8s.pod.update_type"] == "create" and first.attributes["k8s.pod.uid"] == UID
    assert second.parent is None and second.links == [root]
    assert last.name == "syncTerminatingPod" and last.parent is None and last.links == [root]


async def test_a_pod_that_never_starts_has_a_trace_that_ends() -> None:
    chosen, kept = tracer()
    recorder = SyncSpans(chosen, state())
    for _ in range(MOST_ATTEMPTS + 1):
        await recorder.sync("sync", work())
    syncs = [span for span in kept if span.name == "syncPod"]
    assert [span.parent is None for span in syncs] == [False] * MOST_ATTEMPTS + [True]


async def test_a_static_pods_root_is_recorded_by_the_agent() -> None:
    chosen, kept = tracer()
    recorder = SyncSpans(chosen, state(static=True))
    await recorder.sync("create", work())
    await recorder.sync("sync", work())
    assert [span.name for span in kept] == ["create pod", "syncPod", "step", "syncPod", "step"]
    assert kept[0].context == chosen.pod_root(UID) == kept[1].parent


async def test_a_failed_sync_has_the_runtimes_code() -> None:
    async def fail() -> None:
        raise UnavailableError("a long text", code="UNAVAILABLE")

    chosen, kept = tracer()
    with pytest.raises(UnavailableError):
        await SyncSpans(chosen, state()).sync("create", fail())
    assert kept[0].failure == "UNAVAILABLE" and kept[0].ended
