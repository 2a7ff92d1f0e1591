"""Records of containers and sandboxes whose status cannot be read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agent import runtime_messages
from agent.record_reads import RecordReads
from agent.runtime import Runtime
from agent.runtime_records import ContainerRecord, SandboxRecord, State
from cri.client import Client
from cri.errors import (
    CRIError,
    DeadlineExceededError,
    IncompleteAnswerError,
    MessageTooLargeError,
    UnavailableError,
)
from cri.messages import Container, ContainerMetadata, ContainerState, ContainerStatus, PodSandbox, PodSandboxState
from cri.runtime_service import RuntimeService

TOO_LARGE = MessageTooLargeError("trying to send message larger than max", code="RESOURCE_EXHAUSTED")
NO_UTF8 = CRIError("string field contains invalid UTF-8", code="INTERNAL")
UNKNOWN = CRIError("input/output error")
INCOMPLETE = IncompleteAnswerError("did not finish within 10 s", code="INTERNAL")
LABELS = {"io.kubernetes.pod.uid": "u", "io.kubernetes.container.name": "main"}
ANNOTATIONS = {"io.kubernetes.container.restartCount": "3", "io.kubernetes.container.hash": "abc"}


def listed(state: ContainerState = ContainerState.CONTAINER_EXITED) -> Container:
    return Container(
        id="c",
        pod_sandbox_id="s",
        metadata=ContainerMetadata(name="main", attempt=3),
        state=state,
        created_at=5 * 10**9,
        labels=LABELS,
        annotations=ANNOTATIONS,
    )


class Unreadable:
    """A runtime whose statuses cannot be read; its calls are counted."""

    def __init__(self, error: CRIError, state: ContainerState = ContainerState.CONTAINER_EXITED) -> None:
        self.error, self.state, self.reads = error, state, 0

    async def container_status(self, _: str, **__: Any) -> Any:
        self.reads += 1
        raise self.error

    pod_sandbox_status = container_status

    async def list_containers(self, **_: Any) -> list[Container]:
        return [listed(self.state)]

    async def list_pod_sandboxes(self, **_: Any) -> list[PodSandbox]:
        return [PodSandbox(id="s", state=PodSandboxState.SANDBOX_READY, labels=LABELS)]


def reads(error: CRIError) -> RecordReads:
    return RecordReads(cast(RuntimeService, Unreadable(error)))


def runtime_of(service: Unreadable) -> Runtime:
    class Served:
        runtime = service

    return Runtime(cast(Client, Served()))


@pytest.mark.parametrize("error", [TOO_LARGE, NO_UTF8])
async def test_of_a_status_that_makes_no_message_the_lists_entry_is_used(error: CRIError) -> None:
    found = await reads(error).container("c", "s")
    assert found is not None and not found.unread
    assert (found.state, found.exit_code, found.reason) == (State.EXITED, 137, "ContainerStatusUnknown")
    assert (found.name, found.restart_count, found.hash, found.sandbox_id) == ("main", 3, "abc", "s")
    assert error.message in found.message


@pytest.mark.parametrize("error", [UNKNOWN, UnavailableError("away"), DeadlineExceededError("late"), INCOMPLETE])
async def test_other_failures_of_one_read_are_raised(error: CRIError) -> None:
    with pytest.raises(CRIError):
        await reads(error).container("c", "s")


@pytest.mark.parametrize("error", [TOO_LARGE, NO_UTF8, UNKNOWN])
async def test_one_status_that_cannot_be_read_keeps_no_list_from_being_read(error: CRIError) -> None:
    """The node would become NotReady, and an agent would not start."""
    found = await runtime_of(Unreadable(error)).pods()
    assert [record.id for record in found["u"].runtime.containers] == ["c"]
    assert [record.id for record in found["u"].runtime.sandboxes] == ["s"]


@pytest.mark.parametrize("error", [UnavailableError("away"), DeadlineExceededError("late"), INCOMPLETE])
async def test_a_runtime_that_does_not_answer_is_reported(error: CRIError) -> None:
    with pytest.raises(type(error)):
        await runtime_of(Unreadable(error)).pods()


async def test_what_is_known_of_a_container_is_kept_and_read_again_if_only_the_read_failed() -> None:
    service = Unreadable(UNKNOWN)
    runtime = runtime_of(service)
    known = ContainerRecord(id="c", name="main", state=State.RUNNING)
    sandbox = SandboxRecord(id="s", ready=True, ips=("10.244.0.5",))
    assert await RecordReads(cast(RuntimeService, service)).listed_container(listed(), known) is known
    assert await RecordReads(cast(RuntimeService, service)).listed_sandbox(PodSandbox(id="s"), sandbox) is sandbox
    before = service.reads
    first = await runtime.pods()
    second = await runtime.pods({"u": first["u"].runtime})
    assert service.reads == before + 4, "the sandbox and the container, each twice"
    assert second["u"].runtime == first["u"].runtime


async def test_a_status_that_is_too_large_is_not_read_again_until_the_state_changes() -> None:
    service = Unreadable(TOO_LARGE, ContainerState.CONTAINER_RUNNING)
    runtime = runtime_of(service)
    runtime_before = (await runtime.pods())["u"].runtime
    reads_before = service.reads
    await runtime.pods({"u": runtime_before})
    assert service.reads == reads_before + 1, "the sandbox alone, which has no addresses yet"
    service.state = ContainerState.CONTAINER_EXITED
    found = (await runtime.pods({"u": runtime_before}))["u"].runtime.containers[0]
    assert (found.state, found.exit_code) == (State.EXITED, 137)


async def test_a_status_that_cannot_be_converted_keeps_no_other_from_being_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Readable(Unreadable):
        async def container_status(self, _: str, **__: Any) -> Any:
            return ContainerStatus(id=_, labels=LABELS)

        async def list_containers(self, container_id: str = "", **_: Any) -> list[Container]:
            return [Container(id=name, labels=LABELS) for name in ("a", "b") if container_id in ("", name)]

    def convert(status: ContainerStatus, sandbox_id: str = "") -> ContainerRecord:
        if status.id == "a":
            raise ValueError("a bug")
        return container_record(status, sandbox_id)

    container_record = runtime_messages.container_record
    monkeypatch.setattr(runtime_messages, "container_record", convert)
    found = await runtime_of(Readable(UNKNOWN)).pods()
    assert sorted(record.id for record in found["u"].runtime.containers) == ["a", "b"]
    assert "a bug" in caplog.text
