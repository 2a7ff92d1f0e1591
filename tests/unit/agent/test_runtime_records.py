"""The runtime's data about a container, as records and in the API's status."""

from __future__ import annotations

import pytest

from agent.images.manager import _user
from agent.runtime_messages import MOST_GROUPS, container_record, listed_container, listed_state
from agent.runtime_records import State
from agent.status.container import StatusInputs
from agent.status.pod import NodeFacts, pod_status
from cri.messages import (
    Container,
    ContainerMetadata,
    ContainerState,
    ContainerStatus,
    ContainerUser,
    Image,
    LinuxContainerUser,
    Signal,
)
from cri.texts import MESSAGE, NAME
from kube.api import core_v1
from tests.unit.agent.pods import pod, runtime


def shown(**fields: object) -> core_v1.ContainerStatus:
    status = ContainerStatus(id="c", state=ContainerState.CONTAINER_RUNNING, started_at=1, **fields)  # type: ignore[arg-type]
    status.labels["io.kubernetes.container.name"] = "main"
    given = runtime(container_record(status, "s0"))
    return pod_status(pod(), given, StatusInputs(), NodeFacts(), 100.0).container_statuses[0]


def test_the_stop_signal_and_the_user_are_shown_if_the_runtime_reports_them() -> None:
    user = ContainerUser(linux=LinuxContainerUser(uid=7, gid=8, supplemental_groups=[8, 9]))
    status = shown(stop_signal=Signal.SIGRTMINPLUS1, user=user)
    assert status.stop_signal == "SIGRTMIN+1"
    assert status.user is not None and status.user.linux is not None
    linux = status.user.linux
    assert (linux.uid, linux.gid, linux.supplemental_groups) == (7, 8, [8, 9])


def test_fields_that_an_older_runtime_does_not_report_are_omitted() -> None:
    status = shown()
    assert status.stop_signal is None and status.user is None


def test_long_texts_of_a_container_and_its_image_are_cut() -> None:
    exited = ContainerStatus(id="c", state=ContainerState.CONTAINER_EXITED, reason="r" * 10_000, message="m" * 10_000)
    found = container_record(exited)
    assert (len(found.reason), len(found.message)) == (NAME, MESSAGE)
    image = Image(username="u" * 1_000_000)
    assert len(_user(image).name) == NAME


def test_a_user_in_too_many_groups_is_not_kept() -> None:
    for groups, kept in ((MOST_GROUPS, True), (MOST_GROUPS + 1, False)):
        user = ContainerUser(linux=LinuxContainerUser(uid=7, gid=8, supplemental_groups=range(groups)))
        assert (container_record(ContainerStatus(id="c", user=user)).user is not None) == kept


def test_containers_with_the_same_groups_share_them() -> None:
    user = ContainerUser(linux=LinuxContainerUser(uid=7, gid=8, supplemental_groups=range(MOST_GROUPS)))
    one, two = (container_record(ContainerStatus(id=name, user=user)).user for name in "ab")
    assert one is not None and two is not None and one[2] is two[2]


GRACE, COUNT = "io.kubernetes.pod.deletionGracePeriod", "io.kubernetes.container.restartCount"


@pytest.mark.parametrize(
    "text", ["--3", "-", "", "3s", " 3", "1_0", "\u00b2", "\u0663", "9" * 19, "9" * 5000, "\n3", "3\n"]
)
def test_an_annotation_that_is_no_number_counts_as_none(text: str) -> None:
    """Whoever passes annotations to the runtime writes it, such as a device plugin: all containers are read with this one."""
    annotations = {GRACE: text, COUNT: text, "io.kubernetes.pod.terminationGracePeriod": "7"}
    meta = ContainerMetadata(name="main", attempt=4)
    status = ContainerStatus(id="c", metadata=meta, annotations=annotations)
    listed = Container(id="c", metadata=meta, annotations=annotations)
    for found in (container_record(status), listed_container(listed, "why")):
        assert (found.grace, found.restart_count) == (7, 4)


@pytest.mark.parametrize(("text", "grace"), [("0", None), ("3", 3), ("-3", -3), (str(2**63 - 1), 2**63 - 1)])
def test_an_annotation_that_is_a_number_is_read(text: str, grace: int | None) -> None:
    assert container_record(ContainerStatus(id="c", annotations={GRACE: text})).grace == grace


def test_no_restart_count_is_negative() -> None:
    meta = ContainerMetadata(name="main", attempt=4)
    assert container_record(ContainerStatus(id="c", metadata=meta, annotations={COUNT: "-1"})).restart_count == 4


def test_states_and_signals_of_a_newer_runtime_count_as_unknown() -> None:
    status, listed = ContainerStatus(id="c", state=99, stop_signal=999), Container(id="c", state=99)  # type: ignore[arg-type]
    found = container_record(status)
    assert (found.state, found.stop_signal) == (State.UNKNOWN, "")
    assert listed_state(listed) is listed_container(listed, "why").state is State.UNKNOWN
