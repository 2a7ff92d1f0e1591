"""Status updates of pods if others write them too."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from agent.status.writer import DELETIONS, STATUSES, StatusWriter
from agent.usage.kubelet_metrics import KubeletMetrics
from kube.api import core_v1, meta_v1
from kube.clock import settle
from kube.connections import REQUESTS


class Api:
    """One pod whose status is patched, as the server does it for conditions."""

    def __init__(self) -> None:
        self.revision = 1
        self.ready = "False"
        self.patches: list[dict[str, Any]] = []

    async def patch(self, kind: type, name: str, namespace: str, body: dict[str, Any], **_: Any) -> core_v1.Pod:
        self.patches.append(body["status"])
        self.revision += 1
        for condition in body["status"].get("conditions", ()):
            self.ready = condition["status"]
        answer = self.pod()
        await asyncio.sleep(0)
        return answer

    def pod(self) -> core_v1.Pod:
        return core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name="p", namespace="n", uid="u", resource_version=str(self.revision)),
            status=status(self.ready),
        )

    def others_write(self, ready: str) -> core_v1.Pod:
        self.revision += 1
        self.ready = ready
        return self.pod()


def status(ready: str) -> core_v1.PodStatus:
    return core_v1.PodStatus(phase="Running", conditions=[core_v1.PodCondition(type="Ready", status=ready)])


def ended(code: int) -> core_v1.PodStatus:
    state = core_v1.ContainerState(terminated=core_v1.ContainerStateTerminated(exit_code=code, reason="Error"))
    return core_v1.PodStatus(phase="Running", container_statuses=[core_v1.ContainerStatus(name="c", state=state)])


async def test_the_end_of_a_container_is_counted_once_and_not_again_after_a_restart_of_the_agent() -> None:
    api, metrics = Api(), KubeletMetrics()
    writer = StatusWriter(api, metrics=metrics)  # type: ignore[arg-type]
    for _ in range(3):
        writer.set(api.pod(), ended(3))
    assert metrics.terminated_containers.value("container", "3", "Error") == 1
    writer.set(api.pod(), status("True"))
    writer.set(api.pod(), ended(3))
    assert metrics.terminated_containers.value("container", "3", "Error") == 2
    await writer.flushed("u")
    told = api.pod()
    told.status = ended(3)
    again = KubeletMetrics()
    StatusWriter(api, metrics=again).set(told, ended(3))  # type: ignore[arg-type]
    assert again.terminated_containers.value("container", "3", "Error") == 0


async def test_what_others_write_over_ours_is_written_again() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    first = api.pod()
    writer.set(first, status("True"))
    await writer.flushed("u")
    assert (api.ready, len(api.patches)) == ("True", 1)
    writer.set(api.pod(), status("True"))
    await writer.flushed("u")
    assert len(api.patches) == 1, "nothing differs"
    writer.set(api.others_write("False"), status("True"))
    await writer.flushed("u")
    assert (api.ready, len(api.patches)) == ("True", 2)


async def test_an_old_version_of_the_pod_is_no_news() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    old = api.pod()
    writer.set(old, status("True"))
    await writer.flushed("u")
    writer.set(old, status("True"))
    await writer.flushed("u")
    assert len(api.patches) == 1


async def test_what_others_write_while_ours_is_on_its_way_is_seen_after() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    before = api.pod()
    writer.set(before, status("True"))
    await asyncio.sleep(0)  # the patch is under way
    assert len(api.patches) == 1
    writer.set(api.others_write("False"), status("True"))
    await writer.flushed("u")
    assert api.ready == "True"


async def test_others_conditions_are_left_alone() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    writer.set(api.pod(), status("True"))
    await writer.flushed("u")
    gate = core_v1.PodCondition(type="example.com/gate", status="True")
    api.revision += 1
    seen = api.pod()
    seen = msgspec.structs.replace(
        seen, status=msgspec.structs.replace(seen.status, conditions=[*seen.status.conditions, gate])
    )
    writer.set(seen, status("True"))
    await writer.flushed("u")
    assert len(api.patches) == 1


class SlowApi(Api):
    """Answers no request before `answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()
        self.deleted = 0

    async def patch(self, *args: Any, **options: Any) -> core_v1.Pod:
        answer = await super().patch(*args, **options)
        await self.answer.wait()
        return answer

    async def delete(self, *args: Any, **_: Any) -> None:
        self.deleted += 1
        await self.answer.wait()


def numbered(count: int) -> list[core_v1.Pod]:
    return [core_v1.Pod(metadata=meta_v1.ObjectMeta(name=f"p{n}", namespace="n", uid=f"u{n}")) for n in range(count)]


async def test_statuses_that_the_api_does_not_answer_take_a_part_of_the_clients_requests() -> None:
    api = SlowApi()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    for pod in numbered(40):
        writer.set(pod, status("False"))
    await settle()
    assert len(api.patches) == STATUSES < REQUESTS - DELETIONS
    for pod in numbered(40):
        writer.set(pod, status("True"))  # waiting ones are sent once
    api.answer.set()
    await settle(200)
    assert len(api.patches) == 40 + STATUSES
    await writer.close()


async def test_deletions_that_the_api_does_not_answer_take_a_part_of_the_clients_requests() -> None:
    api = SlowApi()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    deletions = [asyncio.create_task(writer.delete(pod)) for pod in numbered(40)]
    await settle()
    assert api.deleted == DELETIONS
    api.answer.set()
    await asyncio.gather(*deletions)
    assert api.deleted == 40


def disrupted(pod: core_v1.Pod, reason: str) -> core_v1.Pod:
    condition = core_v1.PodCondition(type="DisruptionTarget", status="True", reason=reason)
    conditions = [*pod.status.conditions, condition]
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=conditions))


async def test_the_mark_of_a_disruption_is_kept_whoever_made_it() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    writer.set(api.pod(), status("True"))
    await writer.flushed("u")
    seen = disrupted(api.others_write("True"), "PreemptionByScheduler")
    for ready in ("True", "False"):  # made of a version before the mark
        writer.set(seen, status(ready))
        await writer.flushed("u")
    assert [patch["conditions"] for patch in api.patches[1:]] == [[{"type": "Ready", "status": "False"}]]


async def test_the_agents_own_mark_of_a_disruption_is_told_and_never_taken_back() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    ours = disrupted(api.pod(), "TerminationByKubelet")
    writer.set(api.pod(), ours.status)
    await writer.flushed("u")
    writer.set(disrupted(api.others_write("True"), "EvictionByEvictionAPI"), status("True"))
    await writer.flushed("u")
    told = [{c["type"]: c.get("reason") for c in patch.get("conditions", ())} for patch in api.patches]
    assert told[0]["DisruptionTarget"] == "TerminationByKubelet"
    assert all("DisruptionTarget" not in conditions for conditions in told[1:])
