from datetime import UTC, datetime

import pytest

from agent.interfaces import PodView
from agent.runtime_records import ContainerRecord, State
from agent.server import log_request
from agent.server.log_lines import LogOptions
from kube.api import core_v1, meta_v1

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING = core_v1.ContainerState(running=core_v1.ContainerStateRunning())


def _terminated(container_id: str) -> core_v1.ContainerState:
    return core_v1.ContainerState(terminated=core_v1.ContainerStateTerminated(container_id=container_id))


def _waiting(reason: str) -> core_v1.ContainerState:
    return core_v1.ContainerState(waiting=core_v1.ContainerStateWaiting(reason=reason))


def _view(
    state: core_v1.ContainerState | None, last: core_v1.ContainerState | None = None, container_id: str = ""
) -> PodView:
    statuses = []
    if state is not None:
        statuses = [core_v1.ContainerStatus(name="main", state=state, last_state=last, container_id=container_id)]
    pod = core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name="pod", namespace="default", uid="uid"),
        spec=core_v1.PodSpec(containers=[core_v1.Container(name="main")]),
        status=core_v1.PodStatus(container_statuses=statuses),
    )
    records = (
        ContainerRecord(id="new", name="main", state=State.RUNNING, restart_count=1),
        ContainerRecord(id="old", name="main", state=State.EXITED),
    )
    return PodView(pod, records, None)


@pytest.mark.parametrize(
    ("view", "previous", "found"),
    [
        (_view(RUNNING, container_id="containerd://new"), False, "new"),
        (_view(RUNNING, _terminated("containerd://old"), "containerd://new"), True, "old"),
        (_view(_terminated("containerd://old")), False, "old"),
        (_view(_waiting("CrashLoopBackOff"), _terminated("containerd://old")), False, "old"),
        (_view(_waiting("CrashLoopBackOff"), _terminated("containerd://old")), True, "old"),
    ],
)
def test_the_container_instance_of_a_log_request_follows_the_status(view: PodView, previous: bool, found: str) -> None:
    assert log_request.instance(view, "pod", "main", previous=previous).id == found


@pytest.mark.parametrize(
    ("view", "container", "previous", "status", "message"),
    [
        (None, "main", False, 404, 'pod "pod" does not exist'),
        (_view(RUNNING), "other", False, 404, 'container "other" not found in pod "pod"'),
        (_view(None), "main", False, 400, 'container "main" in pod "pod" is not available'),
        (_view(RUNNING), "main", True, 400, 'previous terminated container "main" in pod "pod" not found'),
        (
            _view(_waiting("ContainerCreating")),
            "main",
            False,
            400,
            'container "main" in pod "pod" is waiting to start: ContainerCreating',
        ),
        (
            _view(_waiting("ErrImagePull")),
            "main",
            False,
            400,
            'container "main" in pod "pod" is waiting to start: image can\'t be pulled',
        ),
        (
            _view(_waiting("ImagePullBackOff")),
            "main",
            False,
            400,
            'container "main" in pod "pod" is waiting to start: trying and failing to pull image',
        ),
        (
            _view(core_v1.ContainerState()),
            "main",
            False,
            400,
            'container "main" in pod "pod" is waiting to start - no logs yet',
        ),
        (_view(_terminated("")), "main", False, 400, 'container "main" in pod "pod" is terminated'),
        (
            _view(_terminated("containerd://pruned")),
            "main",
            False,
            400,
            'container "main" in pod "pod" is not available',
        ),
    ],
)
def test_a_log_that_is_not_there_is_explained(
    view: PodView | None, container: str, previous: bool, status: int, message: str
) -> None:
    with pytest.raises(log_request.LogRequestError) as caught:
        log_request.instance(view, "pod", container, previous=previous)
    assert (caught.value.status, str(caught.value)) == (status, message)


def test_options_are_read_from_the_query() -> None:
    assert log_request.options({}, NOW) == LogOptions()
    query = {"follow": "true", "previous": "1", "timestamps": "true", "tailLines": "0", "limitBytes": "10"}
    expected = LogOptions(follow=True, previous=True, timestamps=True, tail_lines=0, limit_bytes=10)
    assert log_request.options(query, NOW) == expected
    ten_seconds_ago = int(NOW.timestamp() - 10) * 1_000_000_000
    assert log_request.options({"sinceSeconds": "10"}, NOW).since == ten_seconds_ago
    assert log_request.options({"sinceTime": "2025-12-31T23:59:50Z"}, NOW).since == ten_seconds_ago


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-1"},
        {"tailLines": "many"},
        {"limitBytes": "0"},
        {"sinceSeconds": "0"},
        {"sinceTime": "yesterday"},
        {"sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"},
        {"stream": "stdin"},
    ],
)
def test_options_that_make_no_sense_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(log_request.LogRequestError) as caught:
        log_request.options(query, NOW)
    assert caught.value.status in (400, 422)
