"""Status updates of pods if others write them too."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.status.writer import DELETIONS, STATUSES, StatusWriter
from kube import errors
from kube.api import core_v1, meta_v1
from kube.connections import REQUESTS
from kube.errors import StatusError
from tests.support.clock import FakeClock, settle


class Api:
    """One pod whose status is patched, as the server does it for conditions."""

    def __init__(self) -> None:
        self.revision = 1
        self.status: dict[str, Any] = msgspec.to_builtins(status("False"))
        self.patches: list[dict[str, Any]] = []

    @property
    def ready(self) -> str:
        return next(c["status"] for c in self.status["conditions"] if c["type"] == "Ready")

    async def patch(self, kind: type, name: str, namespace: str, body: dict[str, Any], **_: Any) -> core_v1.Pod:
        self.patches.append(body["status"])
        before, self.status = self.status, self.merged(body["status"])
        self.revision += self.status != before
        answer = self.pod()
        await asyncio.sleep(0)
        return answer

    def merged(self, patch: dict[str, Any]) -> dict[str, Any]:
        conditions = {c["type"]: c for c in self.status["conditions"]}
        for condition in patch.get("conditions", ()):
            conditions[condition["type"]] = condition
        found = {**self.status, **patch, "conditions": list(conditions.values())}
        return {name: value for name, value in found.items() if value is not None}

    def pod(self) -> core_v1.Pod:
        return core_v1.Pod(
            metadata=meta_v1.ObjectMeta(name="p", namespace="n", uid="u", resource_version=str(self.revision)),
            status=msgspec.convert(self.status, core_v1.PodStatus),
        )

    def others_write(self, ready: str, **more: Any) -> core_v1.Pod:
        self.revision += 1
        self.status = self.merged({"conditions": [{"type": "Ready", "status": ready}], **more})
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
    reported = api.pod()
    reported.status = ended(3)
    again = KubeletMetrics()
    StatusWriter(api, metrics=again).set(reported, ended(3))  # type: ignore[arg-type]
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


async def test_what_a_second_agent_reports_of_containers_is_overwritten_again_and_again_but_not_all_the_time() -> None:
    api, clock = Api(), FakeClock()
    writer = StatusWriter(api, clock=clock)  # type: ignore[arg-type]
    ours = core_v1.PodStatus(
        phase="Running",
        conditions=[core_v1.PodCondition(type="Ready", status="True")],
        pod_ip="10.244.0.2",
        container_statuses=[core_v1.ContainerStatus(name="c", container_id="containerd://ours", restart_count=0)],
    )
    writer.set(api.pod(), ours)
    await writer.flushed("u")
    theirs = {"containerStatuses": [{"name": "c", "containerID": "containerd://theirs", "restartCount": 1}]}
    for number in range(25):
        claims = [{"name": "gpu", "resourceClaimName": f"gpu-{number}"}]
        writer.set(api.others_write("False", podIP="10.9.9.9", resourceClaimStatuses=claims, **theirs), ours)
        assert writer.reported("u") == ours
        await clock.advance(1)
    assert len(api.patches) == 4, "at first, at once, and every ten seconds"
    await clock.advance(10)
    assert (api.ready, len(api.patches)) == ("True", 5)
    now = api.pod().status
    assert (now.pod_ip, now.container_statuses) == (ours.pod_ip, ours.container_statuses)
    assert now.resource_claim_statuses[0].resource_claim_name == "gpu-24", "that is not the agent's"
    await clock.advance(100)
    assert len(api.patches) == 5
    await writer.close()


async def test_what_others_wrote_before_a_status_of_the_agents_own_is_seen_in_the_response_to_it() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    seen = api.pod()
    writer.set(seen, status("True"))
    await writer.flushed("u")
    api.others_write("True", podIP="10.9.9.9")
    writer.set(seen, status("False"))
    await writer.flushed("u")
    assert (api.ready, api.pod().status.pod_ip) == ("False", None)


class StrictApi(Api):
    """Refuses a second address of one family, as the server does, with addresses merged by their keys."""

    async def patch(self, kind: type, name: str, namespace: str, body: dict[str, Any], **_: Any) -> core_v1.Pod:
        addresses = {item["ip"]: item for item in self.status.get("podIPs", ())}
        for item in body["status"].get("podIPs", ()):
            if item.get("$patch") == "delete":
                addresses.pop(item["ip"], None)
            else:
                addresses[item["ip"]] = item
        if len(addresses) > 1:
            raise StatusError(422, "Invalid", "may specify no more than one IP for each IP family")
        body["status"]["podIPs"] = list(addresses.values())
        return await super().patch(kind, name, namespace, body)

    async def get(self, *arguments: Any) -> core_v1.Pod:
        return self.pod()


async def test_a_status_that_is_invalid_beside_what_others_wrote_replaces_it() -> None:
    api, clock = StrictApi(), FakeClock()
    writer = StatusWriter(api, clock=clock)  # type: ignore[arg-type]
    seen = api.pod()
    api.others_write("True", podIP="10.9.9.9", podIPs=[{"ip": "10.9.9.9"}])
    writer.set(seen, core_v1.PodStatus(phase="Running", pod_ip="10.0.0.2", pod_ips=[core_v1.PodIP(ip="10.0.0.2")]))
    await clock.advance(5)
    await writer.flushed("u")
    assert api.status["podIPs"] == [{"ip": "10.0.0.2"}]


class NormalizingApi(Api):
    """Writes a field of its own into every status."""

    def merged(self, patch: dict[str, Any]) -> dict[str, Any]:
        return {**super().merged(patch), "qosClass": "BestEffort"}


async def test_what_the_server_writes_in_its_own_way_is_not_written_again_and_again() -> None:
    api, clock = NormalizingApi(), FakeClock()
    writer = StatusWriter(api, clock=clock)  # type: ignore[arg-type]
    for _ in range(10):
        writer.set(api.pod(), status("True"))
        await clock.advance(20)
    assert len(api.patches) == 2
    writer.set(api.others_write("False"), status("True"))
    await clock.advance(20)
    assert api.ready == "True"


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


class ConflictingApi(SlowApi):
    """Answers each deletion with a conflict, and none of the questions whether the pod is there."""

    under_way = 0

    async def delete(self, *args: Any, **_: Any) -> None:
        self.deleted += 1
        raise StatusError(409, "Conflict", "a webhook refuses")

    async def get(self, kind: type, name: str, namespace: str) -> core_v1.Pod:
        self.under_way += 1
        await self.answer.wait()
        raise StatusError(404, "NotFound", "no such pod")


async def test_deletions_that_conflict_take_a_part_of_the_clients_requests_while_their_pods_are_read() -> None:
    api = ConflictingApi()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    deletions = [asyncio.create_task(writer.delete(pod)) for pod in numbered(40)]
    await settle(200)
    assert api.under_way == api.deleted == DELETIONS
    api.answer.set()
    await asyncio.gather(*deletions)


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


async def test_the_agents_disruption_condition_is_written_and_never_removed() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    ours = disrupted(api.pod(), "TerminationByKubelet")
    writer.set(api.pod(), ours.status)
    await writer.flushed("u")
    writer.set(disrupted(api.others_write("True"), "EvictionByEvictionAPI"), status("True"))
    await writer.flushed("u")
    reported = [{c["type"]: c.get("reason") for c in patch.get("conditions", ())} for patch in api.patches]
    assert reported[0]["DisruptionTarget"] == "TerminationByKubelet"
    assert all("DisruptionTarget" not in conditions for conditions in reported[1:])


async def test_the_status_of_a_pod_that_another_one_replaced_is_given_up() -> None:
    """The server answers a patch with another UID as invalid, and a deletion as a conflict."""
    api = Api()

    async def refused(*_: object, **__: object) -> None:
        api.patches.append({})
        raise errors.invalid("", "Pod", "p", [errors.invalid_value("metadata.uid", "u", "field is immutable")])

    api.patch = refused  # type: ignore[method-assign, assignment]
    writer = StatusWriter(api)  # type: ignore[arg-type]
    writer.set(api.pod(), status("True"))
    async with asyncio.timeout(10):
        await writer.flushed("u")
    assert len(api.patches) == 1


class BusyApi(Api):
    """Fails once for each of the errors, before it changes anything."""

    def __init__(self, *failures: Exception, uid: str = "u") -> None:
        super().__init__()
        self.errors, self.uid, self.deleted = list(failures), uid, 0

    async def patch(self, *args: Any, **options: Any) -> core_v1.Pod:
        if self.errors:
            raise self.errors.pop(0)
        return await super().patch(*args, **options)

    async def delete(self, *_: Any, **__: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.deleted += 1

    async def get(self, kind: type, name: str, namespace: str) -> core_v1.Pod:
        found = self.pod()
        found.metadata.uid = self.uid
        return found


BUSY = StatusError(
    409, "Conflict", "Operation cannot be fulfilled on pods: please apply your changes to the latest version"
)


@pytest.mark.parametrize("error", [BUSY, msgspec.DecodeError("JSON is malformed"), StatusError(503, "", "away")])
async def test_a_status_is_sent_again_after_any_error(error: Exception) -> None:
    clock, api = FakeClock(), BusyApi(error, error)
    writer = StatusWriter(api, clock=clock)  # type: ignore[arg-type]
    writer.set(api.pod(), status("True"))
    await clock.advance(10)
    assert api.ready == "True"
    await writer.close()


@pytest.mark.parametrize("error", [BUSY, msgspec.DecodeError("JSON is malformed"), StatusError(503, "", "away")])
async def test_a_pod_is_deleted_after_any_error(error: Exception) -> None:
    clock, api = FakeClock(), BusyApi(error, error)
    deletion = asyncio.create_task(StatusWriter(api, clock=clock).delete(api.pod()))  # type: ignore[arg-type]
    await clock.advance(10)
    assert deletion.done() and api.deleted == 1


async def test_another_pod_of_the_name_is_left_alone() -> None:
    clock, api = FakeClock(), BusyApi(BUSY, BUSY, uid="another")
    writer = StatusWriter(api, clock=clock)  # type: ignore[arg-type]
    writer.set(api.pod(), status("True"))
    deletion = asyncio.create_task(writer.delete(api.pod()))
    await clock.advance(10)
    assert deletion.done() and not api.deleted and not api.patches and not api.errors
    await writer.close()


class SmallApi(Api):
    """Refuses patches, by their number of bytes."""

    def __init__(self, limit: int, refusal: StatusError) -> None:
        super().__init__()
        self.limit, self.refusal = limit, refusal
        self.refused: list[dict[str, Any]] = []

    async def patch(self, kind: type, name: str, namespace: str, body: dict[str, Any], **more: Any) -> core_v1.Pod:
        if len(msgspec.json.encode(body)) > self.limit:
            self.refused.append(body["status"])
            raise self.refusal
        return await super().patch(kind, name, namespace, body, **more)


def large(ready: str, message: str = "m") -> core_v1.PodStatus:
    state = core_v1.ContainerState(waiting=core_v1.ContainerStateWaiting(reason="Error", message=message * 10_000))
    return msgspec.structs.replace(
        status(ready), container_statuses=[core_v1.ContainerStatus(name="c", state=state)], pod_ip="10.244.0.2"
    )


ETCD = StatusError(500, "", "etcdserver: request is too large")


@pytest.mark.parametrize("refusal", [errors.too_large(3 << 20), StatusError(413, "", "HTTP status 413"), ETCD])
async def test_of_a_status_that_is_too_large_the_rest_is_written_and_nothing_is_sent_twice(
    refusal: StatusError,
) -> None:
    api, clock = SmallApi(1000, refusal), FakeClock()
    writer = StatusWriter(api, clock=clock)  # type: ignore[arg-type]
    writer.set(api.pod(), large("True"))
    await writer.flushed("u")
    assert (api.ready, api.status["podIP"], len(api.refused), len(api.patches)) == ("True", "10.244.0.2", 1, 1)
    assert writer.reported("u") == large("True")
    for _ in range(30):
        writer.set(api.pod(), large("True"))
        await clock.advance(10)
    await writer.flushed("u")
    assert (len(api.refused), len(api.patches)) == (1, 1), "the same status is not sent again"
    writer.set(api.pod(), large("False"))
    await writer.flushed("u")
    assert (api.ready, len(api.refused), len(api.patches)) == ("False", 2, 2)
    writer.set(api.pod(), ended(1))
    await writer.flushed("u")
    assert api.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


async def test_a_pod_whose_status_cannot_be_written_at_all_can_be_deleted() -> None:
    api, clock = SmallApi(0, errors.too_large(0)), FakeClock()
    deleted: list[str] = []

    async def delete(kind: type, name: str, namespace: str, **_: Any) -> None:
        deleted.append(name)

    api.delete = delete  # type: ignore[attr-defined]
    writer = StatusWriter(api, clock=clock)  # type: ignore[arg-type]
    writer.set(api.pod(), large("True"))
    await writer.delete(api.pod())
    for _ in range(30):
        writer.set(api.pod(), large("True"))
        await clock.advance(10)
    assert (len(api.refused), api.patches, deleted) == (2, [], ["p"])
