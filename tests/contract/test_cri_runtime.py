"""The agent's requirements of a container runtime: the same tests on the fake and on a real containerd."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cri import errors
from cri.client import Client
from cri.events import Kind
from cri.fake import FakeRuntime
from cri.messages import (
    ContainerConfig,
    ContainerMetadata,
    ContainerState,
    ContainerStatus,
    ImageSpec,
    LinuxContainerConfig,
    LinuxContainerResources,
    LinuxContainerSecurityContext,
    LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext,
    NamespaceMode,
    NamespaceOption,
    PodSandboxConfig,
    PodSandboxMetadata,
    PodSandboxState,
)
from tests.support import images
from tests.support.containerd import Containerd, start_containerd

NAPS = "; ".join(["sleep 0.2"] * 600)
"""Two minutes of sleep in words that the fake knows too: a shell answers a signal when its command has ended."""


@dataclass
class Runtime:
    """The runtime under test, and how to restart it."""

    client: Client
    folder: Path
    restart: Callable[[], object]

    async def sandbox(self, name: str = "pod", **labels: str) -> tuple[str, PodSandboxConfig]:
        config = PodSandboxConfig(
            metadata=PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default"),
            hostname=name,
            log_directory=str(self.folder / f"default_{name}_uid-{name}"),
            labels=labels,
            annotations={"note": "kept"},
            linux=LinuxPodSandboxConfig(),
        )
        return await self.client.runtime.run_pod_sandbox(config), config

    async def container(
        self,
        sandbox: tuple[str, PodSandboxConfig],
        script: str,
        name: str = "main",
        pid: NamespaceMode = NamespaceMode.CONTAINER,
    ) -> str:
        config = ContainerConfig(
            metadata=ContainerMetadata(name=name),
            image=ImageSpec(image=images.BUSYBOX_IMAGE),
            command=["sh", "-c", script],
            log_path=f"{name}/0.log",
            labels={"container": name},
            linux=LinuxContainerConfig(
                security_context=LinuxContainerSecurityContext(namespace_options=NamespaceOption(pid=pid))
            ),
        )
        return await self.client.runtime.create_container(sandbox[0], config, sandbox[1])

    async def run(self, script: str) -> str:
        container_id = await self.container(await self.sandbox(), script)
        await self.client.runtime.start_container(container_id)
        return container_id

    async def exited(self, container_id: str) -> ContainerStatus:
        async with asyncio.timeout(30):
            while True:
                status = await self.client.runtime.container_status(container_id)
                if status.state == ContainerState.CONTAINER_EXITED:
                    return status
                await asyncio.sleep(0.01)

    async def logged(self, text: str) -> None:
        path = self.folder / "default_pod_uid-pod" / "main" / "0.log"
        async with asyncio.timeout(30):
            while not path.exists() or text not in path.read_text():
                await asyncio.sleep(0.01)

    def log(self, name: str = "main", pod: str = "pod") -> list[str]:
        text = (self.folder / f"default_{pod}_uid-{pod}" / name / "0.log").read_text()
        return [line.split(" ", 1)[1] for line in text.splitlines()]

    async def clear(self) -> None:
        for sandbox in await self.client.runtime.list_pod_sandboxes():
            await self.client.runtime.stop_pod_sandbox(sandbox.id)
            await self.client.runtime.remove_pod_sandbox(sandbox.id)


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    with start_containerd(f"cri-contract-{os.getpid()}") as daemon:
        yield daemon


@pytest.fixture(params=["fake", "containerd"])
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runtime]:
    if request.param == "fake":
        async with FakeRuntime(tmp_path / "fake.sock") as fake:
            fake.images.add(images.BUSYBOX_IMAGE)

            async def restart() -> None:
                await fake.stop()
                await fake.start()

            async with Client(fake.endpoint) as client:
                yield Runtime(client, tmp_path, restart)
        return
    daemon: Containerd = request.getfixturevalue("containerd")
    async with Client(daemon.endpoint) as client:
        runtime = Runtime(client, tmp_path, lambda: asyncio.to_thread(daemon.restart))
        try:
            yield runtime
        finally:
            await runtime.clear()


async def test_a_runtime_reports_its_name_and_its_readiness(runtime: Runtime) -> None:
    assert (await runtime.client.runtime.version()).runtime_api_version == "v1"
    conditions = (await runtime.client.runtime.status()).status.conditions
    # containerd 2 has a third, which says whether its configuration will do in the next version.
    assert {condition.type: condition.status for condition in conditions}.items() >= {
        ("RuntimeReady", True),
        ("NetworkReady", True),
    }


async def test_a_sandbox_is_ready_with_an_address_and_keeps_its_labels_and_annotations(runtime: Runtime) -> None:
    sandbox_id, config = await runtime.sandbox("pod", app="web")
    status = await runtime.client.runtime.pod_sandbox_status(sandbox_id)
    assert status.state == PodSandboxState.SANDBOX_READY
    assert status.metadata == config.metadata
    assert dict(status.labels) == {"app": "web"}
    assert dict(status.annotations) == {"note": "kept"}
    assert status.network.ip.startswith("10.244.")
    assert status.created_at > 0


async def test_a_sandbox_in_the_hosts_network_has_no_address_of_its_own(runtime: Runtime) -> None:
    options = NamespaceOption(network=NamespaceMode.NODE)
    config = PodSandboxConfig(
        metadata=PodSandboxMetadata(name="host", uid="uid-host", namespace="default"),
        linux=LinuxPodSandboxConfig(security_context=LinuxSandboxSecurityContext(namespace_options=options)),
    )
    sandbox_id = await runtime.client.runtime.run_pod_sandbox(config)
    status = await runtime.client.runtime.pod_sandbox_status(sandbox_id)
    assert status.network.ip == ""
    assert status.linux.namespaces.options.network == NamespaceMode.NODE


async def test_two_sandboxes_cannot_have_the_same_metadata(runtime: Runtime) -> None:
    await runtime.sandbox()
    with pytest.raises(errors.CRIError, match='name "pod_default_uid-pod_0" is reserved for'):
        await runtime.sandbox()


async def test_sandboxes_are_listed_by_state_and_label(runtime: Runtime) -> None:
    (web, _), (other, _) = await runtime.sandbox("web", app="web"), await runtime.sandbox("other", app="other")
    await runtime.client.runtime.stop_pod_sandbox(other)
    listed = runtime.client.runtime.list_pod_sandboxes
    assert {sandbox.id for sandbox in await listed()} == {web, other}
    assert [sandbox.id for sandbox in await listed(labels={"app": "web"})] == [web]
    assert [sandbox.id for sandbox in await listed(state=PodSandboxState.SANDBOX_READY)] == [web]
    assert [sandbox.id for sandbox in await listed(state=PodSandboxState.SANDBOX_NOTREADY)] == [other]
    assert await listed(labels={"app": "none"}) == []


async def test_a_container_goes_from_created_to_running_to_exited(runtime: Runtime) -> None:
    container_id = await runtime.container(await runtime.sandbox(), f"trap 'exit 3' TERM; echo ready; {NAPS}")
    before = await runtime.client.runtime.container_status(container_id)
    assert (before.state, before.started_at) == (ContainerState.CONTAINER_CREATED, 0)
    await runtime.client.runtime.start_container(container_id)
    running = await runtime.client.runtime.container_status(container_id)
    assert running.state == ContainerState.CONTAINER_RUNNING
    await runtime.logged("ready")
    await runtime.client.runtime.stop_container(container_id, 60)
    after = await runtime.exited(container_id)
    assert (after.exit_code, after.reason) == (3, "Error")
    assert after.created_at <= after.started_at <= after.finished_at


async def test_a_container_that_ends_well_is_completed(runtime: Runtime) -> None:
    assert (await runtime.exited(await runtime.run("true"))).reason == "Completed"


async def test_output_goes_to_the_log_file_line_by_line(runtime: Runtime) -> None:
    await runtime.exited(await runtime.run("echo one; echo two >&2; exit 0"))
    assert sorted(runtime.log()) == ["stderr F two", "stdout F one"]


async def test_the_log_goes_on_in_a_new_file_after_rotation(runtime: Runtime) -> None:
    lines = "; ".join(["sleep 0.2", "echo new"] * 300)  # it goes on talking, however long the rotation takes
    container_id = await runtime.run(f"trap 'exit 0' TERM; echo old; {lines}")
    path = runtime.folder / "default_pod_uid-pod" / "main" / "0.log"
    await runtime.logged("old")
    path.rename(path.with_suffix(".log.1"))
    await runtime.client.runtime.reopen_container_log(container_id)
    await runtime.logged("new")
    assert "old" not in path.read_text()
    assert "old" in path.with_suffix(".log.1").read_text()


async def test_a_container_is_started_once(runtime: Runtime) -> None:
    container_id = await runtime.run("true")
    await runtime.exited(container_id)
    with pytest.raises(errors.CRIError, match="container is in CONTAINER_EXITED state"):
        await runtime.client.runtime.start_container(container_id)


async def test_a_command_that_is_not_in_the_image_fails_to_start(runtime: Runtime) -> None:
    sandbox_id, config = await runtime.sandbox()
    container = ContainerConfig(
        metadata=ContainerMetadata(name="main"),
        image=ImageSpec(image=images.BUSYBOX_IMAGE),
        command=["no-such-program"],
        linux=LinuxContainerConfig(),
    )
    container_id = await runtime.client.runtime.create_container(sandbox_id, container, config)
    with pytest.raises(errors.CRIError, match=r'exec: "no-such-program": executable file not found in \$PATH'):
        await runtime.client.runtime.start_container(container_id)
    status = await runtime.client.runtime.container_status(container_id)
    assert (status.state, status.exit_code, status.reason) == (ContainerState.CONTAINER_EXITED, 128, "StartError")


async def test_a_container_of_an_absent_image_is_not_created(runtime: Runtime) -> None:
    sandbox_id, config = await runtime.sandbox()
    container = ContainerConfig(metadata=ContainerMetadata(name="main"), image=ImageSpec(image="absent:1"))
    with pytest.raises(errors.CRIError, match="absent"):
        await runtime.client.runtime.create_container(sandbox_id, container, config)


async def test_stopping_signals_and_returns_when_the_container_has_ended(runtime: Runtime) -> None:
    container_id = await runtime.run(f"trap 'exit 7' TERM; echo ready; {NAPS}")
    await runtime.logged("ready")
    await runtime.client.runtime.stop_container(container_id, 60)
    status = await runtime.client.runtime.container_status(container_id)
    assert (status.state, status.exit_code) == (ContainerState.CONTAINER_EXITED, 7)


async def test_a_container_deaf_to_the_signal_is_killed_after_the_grace_period(runtime: Runtime) -> None:
    container_id = await runtime.run("sleep 600")
    await runtime.client.runtime.stop_container(container_id, 1)
    assert (await runtime.client.runtime.container_status(container_id)).exit_code == 137


async def test_in_a_shared_process_namespace_the_signal_needs_no_trap(runtime: Runtime) -> None:
    container_id = await runtime.container(await runtime.sandbox(), "sleep 600", pid=NamespaceMode.POD)
    await runtime.client.runtime.start_container(container_id)
    await runtime.client.runtime.stop_container(container_id, 30)
    assert (await runtime.client.runtime.container_status(container_id)).exit_code == 143


async def test_no_grace_period_kills_at_once(runtime: Runtime) -> None:
    container_id = await runtime.run("sleep 600")
    await runtime.client.runtime.stop_container(container_id, 0)
    assert (await runtime.client.runtime.container_status(container_id)).exit_code == 137


async def test_stopping_a_sandbox_ends_its_containers(runtime: Runtime) -> None:
    container_id = await runtime.run("sleep 600")
    (sandbox,) = await runtime.client.runtime.list_pod_sandboxes()
    await runtime.client.runtime.stop_pod_sandbox(sandbox.id)
    status = await runtime.client.runtime.pod_sandbox_status(sandbox.id)
    assert status.state == PodSandboxState.SANDBOX_NOTREADY
    assert (await runtime.exited(container_id)).exit_code == 137


async def test_stopping_and_removing_are_idempotent(runtime: Runtime) -> None:
    container_id = await runtime.run("true")
    await runtime.exited(container_id)
    (sandbox,) = await runtime.client.runtime.list_pod_sandboxes()
    for _ in range(2):
        await runtime.client.runtime.stop_container(container_id, 1)
        await runtime.client.runtime.remove_container(container_id)
    for _ in range(2):
        await runtime.client.runtime.stop_pod_sandbox(sandbox.id)
        await runtime.client.runtime.remove_pod_sandbox(sandbox.id)
    assert await runtime.client.runtime.list_pod_sandboxes() == []
    assert await runtime.client.runtime.list_containers() == []


async def test_what_is_not_there_is_not_found(runtime: Runtime) -> None:
    with pytest.raises(errors.NotFoundError):
        await runtime.client.runtime.container_status("none")
    with pytest.raises(errors.NotFoundError):
        await runtime.client.runtime.pod_sandbox_status("none")
    with pytest.raises(errors.NotFoundError):
        await runtime.client.runtime.create_container("none", ContainerConfig(), PodSandboxConfig())


async def test_containers_are_listed_by_sandbox_state_and_label(runtime: Runtime) -> None:
    first, second = await runtime.sandbox("first"), await runtime.sandbox("second")
    one = await runtime.container(first, "sleep 600", "one")
    two = await runtime.container(second, "sleep 600", "two")
    await runtime.client.runtime.start_container(two)
    listed = runtime.client.runtime.list_containers
    assert {container.id for container in await listed()} == {one, two}
    assert [container.id for container in await listed(sandbox_id=first[0])] == [one]
    assert [container.id for container in await listed(state=ContainerState.CONTAINER_RUNNING)] == [two]
    assert [container.id for container in await listed(labels={"container": "one"})] == [one]


async def test_a_command_in_a_container_gives_its_output_and_exit_code(runtime: Runtime) -> None:
    container_id = await runtime.run("sleep 600")
    result = await runtime.client.runtime.exec_sync(container_id, ["sh", "-c", "echo out; echo err >&2; exit 5"])
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 5)


async def test_a_command_that_takes_too_long_exceeds_its_deadline(runtime: Runtime) -> None:
    container_id = await runtime.run("sleep 600")
    with pytest.raises(errors.DeadlineExceededError, match="timeout 1s exceeded"):
        await runtime.client.runtime.exec_sync(container_id, ["sleep", "60"], 1)


async def test_the_output_of_a_command_waits_in_the_runtime_until_it_may_be_received(runtime: Runtime) -> None:
    container_id, turn = await runtime.run("sleep 600"), asyncio.Lock()
    script = "; ".join([f"echo {'x' * 1000}"] * 100)
    async with asyncio.TaskGroup() as tasks:
        async with turn:
            exec_sync = runtime.client.runtime.exec_sync
            command = tasks.create_task(exec_sync(container_id, ["sh", "-c", script], 1, most=10, turn=turn))
            await asyncio.sleep(2)
            assert not command.done()
            assert (await exec_sync(container_id, ["true"])).exit_code == 0
        result = await command  # the wait is no part of the timeout
    assert (result.stdout, result.stderr, result.exit_code) == (b"x" * 10, b"", 0)


async def test_a_command_in_a_container_that_ended_is_refused(runtime: Runtime) -> None:
    container_id = await runtime.run("true")
    await runtime.exited(container_id)
    with pytest.raises(errors.CRIError, match="CONTAINER_EXITED"):
        await runtime.client.runtime.exec_sync(container_id, ["true"])


async def test_limits_can_be_changed_while_a_container_runs(runtime: Runtime) -> None:
    container_id = await runtime.run("sleep 600")
    await runtime.client.runtime.update_container_resources(
        container_id, LinuxContainerResources(memory_limit_in_bytes=64 << 20)
    )
    status = await runtime.client.runtime.container_status(container_id)
    assert status.resources.linux.memory_limit_in_bytes == 64 << 20


async def test_runtime_events_report_a_containers_start_and_exit_with_its_final_status(runtime: Runtime) -> None:
    client = runtime.client
    seen: list[tuple[Kind, str]] = []
    subscribed = asyncio.Event()

    async def follow() -> ContainerState:
        async for event in client.events():
            if event.kind is Kind.SUBSCRIBED:
                subscribed.set()
                continue
            seen.append((event.kind, event.container_id))
            # containerd 2 also reports what ended before anybody listened.
            if event.kind is Kind.STOPPED and event.container_id == container_id:
                return (await client.runtime.container_status(event.container_id)).state
        raise AssertionError("the stream ended")

    sandbox = await runtime.sandbox()
    container_id = ""
    async with asyncio.timeout(30):
        task = asyncio.create_task(follow())
        await subscribed.wait()
        container_id = await runtime.container(sandbox, "sleep 600")
        await client.runtime.start_container(container_id)
        await client.runtime.exec_sync(container_id, ["true"])  # its end is not the container's
        await client.runtime.stop_container(container_id, 0)
        assert await task == ContainerState.CONTAINER_EXITED
    assert [kind for kind, where in seen if where == container_id] == [Kind.CREATED, Kind.STARTED, Kind.STOPPED]


async def test_the_event_stream_breaks_with_unavailable_and_calls_work_again_after_a_restart(runtime: Runtime) -> None:
    container_id = await runtime.run("sleep 600")
    subscribed = asyncio.Event()

    async def follow() -> errors.CRIError | None:
        try:
            async for event in runtime.client.events():
                if event.kind is Kind.SUBSCRIBED:
                    subscribed.set()
        except errors.CRIError as error:
            return error
        return None

    async with asyncio.timeout(30):
        task = asyncio.create_task(follow())
        await subscribed.wait()
        await runtime.restart()
        assert isinstance(await task, errors.UnavailableError)
        while True:
            try:
                status = await runtime.client.runtime.container_status(container_id)
                break
            except errors.UnavailableError:
                await asyncio.sleep(0.02)
    assert status.state == ContainerState.CONTAINER_RUNNING


async def test_an_image_is_found_by_reference_and_by_id_and_removed_once(runtime: Runtime) -> None:
    service = runtime.client.images
    found = await service.image_status(images.BUSYBOX_IMAGE)
    assert found is not None
    assert found.id.startswith("sha256:")
    assert images.BUSYBOX_IMAGE in found.repo_tags
    by_id = await service.image_status(found.id)
    assert by_id is not None
    assert by_id.id == found.id
    assert found.id in [image.id for image in await service.list_images()]
    assert await service.image_status("docker.io/library/absent:1") is None
    await service.remove_image("docker.io/library/absent:1")
    assert (await service.image_fs_info())[0].fs_id.mountpoint


async def test_pulling_what_no_registry_has_fails_with_the_reference_in_the_message(runtime: Runtime) -> None:
    with pytest.raises(errors.CRIError, match=re.escape('failed to pull and unpack image "127.0.0.1:1/none:1"')):
        await runtime.client.images.pull_image("127.0.0.1:1/none:1")


async def test_a_runtime_that_is_away_is_unavailable_at_once(tmp_path: Path) -> None:
    async with Client(f"unix://{tmp_path}/nobody.sock") as client, asyncio.timeout(30):
        with pytest.raises(errors.UnavailableError):
            await client.runtime.version()


async def test_a_busy_runtime_has_time_to_take_a_connection(tmp_path: Path) -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        runtime_reader, runtime_writer = await asyncio.open_unix_connection(tmp_path / "runtime.sock")
        await asyncio.sleep(1)  # the first frame is waited for before anything is asked
        await asyncio.gather(_pass_on(reader, runtime_writer), _pass_on(runtime_reader, writer))

    async with FakeRuntime(tmp_path / "runtime.sock"), await asyncio.start_unix_server(late, tmp_path / "late.sock"):
        async with Client(f"unix://{tmp_path}/late.sock") as client, asyncio.timeout(30):
            assert (await client.runtime.version()).runtime_name


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
    writer.close()
