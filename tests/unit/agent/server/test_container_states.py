"""Readers that follow logs share the requests for the state of their container, however many they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.requests import Request

from agent.interfaces import PodView
from agent.runtime_records import ContainerRecord, State
from agent.server import log_files
from agent.server.container_logs import ContainerLogs
from agent.server.container_states import REQUESTS, ContainerStates
from agent.server.log_file_source import LogFiles
from cri.errors import CRIError, UnavailableError
from cri.messages import Container, ContainerState
from cri.runtime_service import RuntimeService
from kube.api import core_v1
from kube.clock import SYSTEM
from tests.support.clock import settle

LINE = b"2026-01-01T00:00:00.000000000Z stdout F x\n"
READERS = 512


class Runtime:
    """Lists one container for each ID, when it may answer; it has no statuses."""

    def __init__(self) -> None:
        self.asked = list[str]()
        self.in_progress = self.most = 0
        self.may_answer = asyncio.Event()
        self.state: Any = ContainerState.CONTAINER_RUNNING
        self.error: CRIError | None = None

    async def list_containers(self, *, container_id: str) -> list[Container]:
        self.asked.append(container_id)
        self.in_progress += 1
        self.most = max(self.most, self.in_progress)
        try:
            await self.may_answer.wait()
        finally:
            self.in_progress -= 1
        if self.error is not None:
            raise self.error
        return [Container(id=container_id, state=self.state)] if self.state is not None else []


def states_of(runtime: Runtime) -> ContainerStates:
    return ContainerStates(cast(RuntimeService, runtime))


async def test_all_readers_of_a_container_share_a_request() -> None:
    runtime = Runtime()
    states = states_of(runtime)
    readers = [asyncio.create_task(states.running("team", "c")) for _ in range(READERS)]
    await settle()
    readers[0].cancel()
    await settle()
    assert readers[0].cancelled() and runtime.asked == ["c"]
    runtime.may_answer.set()
    assert await asyncio.gather(*readers[1:]) == [True] * (READERS - 1)
    runtime.state = ContainerState.CONTAINER_EXITED
    assert not await states.running("team", "c") and runtime.asked == ["c", "c"], "no answer is kept"


async def test_few_requests_are_in_progress_and_another_namespace_waits_for_two_of_them_at_most() -> None:
    runtime = Runtime()
    states = states_of(runtime)
    readers = [asyncio.create_task(states.running("team", f"c{number}")) for number in range(READERS)]
    await settle()
    other = asyncio.create_task(states.running("other", "d"))
    await settle()
    runtime.may_answer.set()
    assert await other and all(await asyncio.gather(*readers))
    assert runtime.most == REQUESTS and len(runtime.asked) == READERS + 1
    assert "d" in runtime.asked[: 2 * REQUESTS + 1]


@pytest.mark.parametrize("state", [ContainerState.CONTAINER_CREATED, ContainerState.CONTAINER_EXITED, None])
async def test_a_container_that_has_ended_or_is_gone_does_not_run(state: Any) -> None:
    runtime = Runtime()
    runtime.state = state
    runtime.may_answer.set()
    assert not await states_of(runtime).running("team", "c")


async def test_readers_end_with_a_runtime_that_does_not_answer() -> None:
    runtime = Runtime()
    runtime.error = UnavailableError("away", code="UNAVAILABLE")
    runtime.may_answer.set()
    assert not await states_of(runtime).running("team", "c")


async def test_followed_logs_read_no_status_of_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_STATE_CHECK_SECONDS", 0.01)
    path = tmp_path / "0.log"
    path.write_bytes(LINE)
    running = core_v1.ContainerState(running=core_v1.ContainerStateRunning())
    status = core_v1.ContainerStatus(name="c", container_id="containerd://id", state=running)
    pod = core_v1.Pod(
        spec=core_v1.PodSpec(containers=[core_v1.Container(name="c")]),
        status=core_v1.PodStatus(container_statuses=[status]),
    )
    view = PodView(pod, (ContainerRecord(id="id", name="c", state=State.RUNNING, log_path=str(path)),), None)
    runtime, pods = Runtime(), cast(Any, type("Pods", (), {"view": lambda *_: view})())
    logs = ContainerLogs(pods, LogFiles(cast(RuntimeService, runtime), tmp_path), SYSTEM)
    sent: list[list[bytes]] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def follow() -> None:
        scope: dict[str, Any] = {"type": "http", "query_string": b"follow=true", "headers": []}
        scope |= {"path_params": {"namespace": "team", "pod": "p", "container": "c"}, "extensions": {}}
        mine: list[bytes] = []
        sent.append(mine)

        async def send(message: Any) -> None:
            mine.append(message.get("body", b""))

        await (await logs.read(Request(scope)))(scope, receive, send)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(follow())
        while not runtime.asked:
            await asyncio.sleep(0.001)
        runtime.state = ContainerState.CONTAINER_EXITED
        runtime.may_answer.set()
    assert [b"".join(each) for each in sent] == [b"x\n"] * 20
    assert runtime.most == 1
