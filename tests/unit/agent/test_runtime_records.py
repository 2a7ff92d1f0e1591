"""The runtime's data about a container, as records and in the API's status."""

from __future__ import annotations

from agent.images.manager import _user
from agent.runtime_messages import MOST_GROUPS, container_record
from agent.status.container import StatusInputs
from agent.status.pod import NodeFacts, pod_status
from cri.messages import ContainerState, ContainerStatus, ContainerUser, Image, LinuxContainerUser, Signal
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
