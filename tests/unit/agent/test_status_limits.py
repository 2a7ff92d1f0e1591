"""The limits of what images, runtimes and containers write into a pod's status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agent.lifecycle import End
from agent.podspec.environment import ContainerConfigError
from agent.podspec.security import ImageUser, verify_user
from agent.status.container import StatusInputs, Waiting
from agent.status.limits import GROUPS, TERMINATED_BYTES, WAITING_BYTES
from agent.status.pod import NodeFacts, pod_status, rejected_status
from cri.texts import MESSAGE
from kube import serialize
from kube.api import core_v1
from tests.unit.agent.pods import NOTHING, pod, record, runtime

MEGABYTE = 1_000_000


def written(given: core_v1.Pod, records: Any = NOTHING, **known: Any) -> core_v1.PodStatus:
    return pod_status(given, records, StatusInputs(**known), NodeFacts(("192.0.2.1",)), 1.0)


@pytest.mark.parametrize("count", [1, 8, 64, 4000])
def test_waiting_messages_have_a_limit_for_each_and_for_all(count: int) -> None:
    names = [f"c{number}" for number in range(count)]
    waiting = {name: Waiting("CreateContainerConfigError", "\u00fc" * MEGABYTE) for name in names}
    found = [s.state.waiting for s in written(pod(*names), waiting=waiting).container_statuses if s.state]
    sizes = [len((w.message or "").encode()) for w in found if w is not None]
    assert len(sizes) == count and sum(sizes) <= WAITING_BYTES and max(sizes) <= 2 * MESSAGE
    assert min(sizes) >= min(MESSAGE, WAITING_BYTES // count - 1)


def test_an_image_whose_user_is_long_makes_no_long_status() -> None:
    names = [f"c{number}" for number in range(20)]
    given, waiting = pod(*names, securityContext={"runAsNonRoot": True}), {}
    for container in given.spec.containers:
        with pytest.raises(ContainerConfigError) as raised:
            verify_user(given, container, ImageUser(None, "u" * MEGABYTE))
        waiting[container.name] = Waiting("CreateContainerConfigError", str(raised.value))
    body = serialize.encode(written(given, waiting=waiting))
    assert len(body) < WAITING_BYTES + 10_000 and b"non-numeric user (u" in body


def test_termination_messages_share_upstreams_12_kib() -> None:
    names = [f"c{number}" for number in range(12)]
    gone = [replace(record(name, "exited", 1), message="m" * 4096) for name in names]
    status = written(pod(*names, policy="Never"), runtime(*gone))
    ended = [s.state.terminated for s in status.container_statuses if s.state]
    assert [len(t.message or "") for t in ended if t is not None] == [TERMINATED_BYTES // 12] * 12


def test_what_was_reported_of_an_earlier_exit_is_not_changed_where_it_is_cut() -> None:
    before = core_v1.ContainerStateTerminated(exit_code=1, message="m" * MEGABYTE)
    given = pod()
    state = core_v1.ContainerState(terminated=before)
    given.status.container_statuses = [core_v1.ContainerStatus(name="main", state=state, container_id="x://gone")]
    shown = written(given, runtime(record("main"))).container_statuses[0]
    assert shown.last_state is not None and shown.last_state.terminated is not None
    assert len(shown.last_state.terminated.message or "") == TERMINATED_BYTES
    assert len(before.message or "") == MEGABYTE


def test_containers_in_more_groups_than_their_share_are_shown_without_their_user() -> None:
    def users(count: int, groups: int) -> list[bool]:
        names = [f"c{number}" for number in range(count)]
        records = [replace(record(name), user=(1, 1, tuple(range(groups)))) for name in names]
        return [s.user is not None for s in written(pod(*names), runtime(*records)).container_statuses]

    assert users(4, GROUPS // 4) == [True] * 4
    assert users(4, GROUPS // 4 + 1) == [False] * 4


def test_the_conditions_and_the_message_of_a_pod_have_limits() -> None:
    gates = [{"conditionType": f"example.com/{number:0>200}"} for number in range(1000)]
    given = pod(readinessGates=gates)
    status = written(given, runtime(record("main")))
    longest = max(len(condition.message or "") for condition in status.conditions)
    assert longest == 32 * 1024
    other = core_v1.PodCondition(type="example.com/other", status="True", message="m" * MEGABYTE)
    given.status.conditions = [other]
    rejected = rejected_status(given, End("Failed", "OutOfcpu", "m" * MEGABYTE), 1.0)
    assert len(rejected.message or "") == MESSAGE and len(other.message or "") == MEGABYTE


def test_a_usual_status_is_what_it_was() -> None:
    waiting = {"main": Waiting("ImagePullBackOff", 'Back-off pulling image "x"')}
    status = written(pod(), waiting=waiting)
    assert status.container_statuses[0].state == core_v1.ContainerState(
        waiting=core_v1.ContainerStateWaiting(reason="ImagePullBackOff", message='Back-off pulling image "x"')
    )
    assert msgspec.to_builtins(status)["phase"] == "Pending"
