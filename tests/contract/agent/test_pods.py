"""The agent between a real API server and the fake runtime, with time running fast: orders of events and failures."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from agent.pods import reporter
from agent.volumes.manager import MountsFailed, VolumeManager
from cri.fake import FakeRuntime
from cri.messages import ContainerState
from kube.api import core_v1
from kube.errors import StatusError
from tests.support.fake_node import TRAP, calls, container, create, waiting
from tests.support.node import FastClock, NodeUnderTest, eventually, is_ready


@pytest.mark.parametrize("clock", [FastClock(1.0)])  # in fast time the regular listings would come in between
async def test_a_pod_costs_each_runtime_call_once(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    async def listed() -> bool:
        names = (name for name, _ in runtime.calls)
        return "GetContainerEvents" in names and "ListPodSandbox" in names  # the one, and after it the other

    # Once subscribed to events the agent lists what there is: not while the pod starts.
    await eventually(listed, "the agent lists after its subscription")
    await create(node, "lean")
    await node.ready("lean")
    counts = {rpc: len(calls(runtime, rpc)) for rpc in ("RunPodSandbox", "CreateContainer", "StartContainer")}
    assert counts == {"RunPodSandbox": 1, "CreateContainer": 1, "StartContainer": 1}
    assert len(calls(runtime, "PodSandboxStatus")) == 1
    assert len(calls(runtime, "ContainerStatus")) <= 2
    await node.delete("lean")
    await node.gone("lean")
    assert len(calls(runtime, "StopContainer")) == len(calls(runtime, "StopPodSandbox")) == 1


async def test_a_crash_loop_waits_ten_seconds_doubling(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    await create(node, "loop", container("exit 1"))
    await node.wait(
        "loop", lambda p: bool(p.status.container_statuses) and p.status.container_statuses[0].restart_count == 4
    )
    starts = sorted(c.status.started_at / 1e9 for c in runtime.containers.containers.values())
    # Old instances are removed; between those that are left the pause is 20 s, 40 s or more.
    assert len(starts) <= 3
    assert all(later - earlier >= 20.0 for earlier, later in itertools.pairwise(starts))
    attempts = [request.config.metadata.attempt for request in calls(runtime, "CreateContainer")]
    assert attempts == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("step", [-3_600.0, 3_600.0, -315_576_000.0, 315_576_000.0])  # an hour, ten years
async def test_a_step_of_the_clock_changes_no_back_off(
    node: NodeUnderTest, runtime: FakeRuntime, clock: FastClock, step: float
) -> None:
    runtime.failures.fail("RunPodSandbox", "no network for you", times=3)
    await create(node, "loop", container("exit 1"))
    await node.event("loop", "FailedCreatePodSandBox")
    clock.step(step)
    await node.wait(
        "loop", lambda p: bool(p.status.container_statuses) and p.status.container_statuses[0].restart_count == 1
    )
    clock.step(step)
    began = clock.monotonic()
    await node.wait("loop", lambda p: p.status.container_statuses[0].restart_count == 3)
    assert 20.0 <= clock.monotonic() - began < 300.0


async def test_tokens_are_renewed_and_deadlines_pass_after_a_step_of_the_clock(
    node: NodeUnderTest, clock: FastClock
) -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 86_400}}
    await create(node, "steady", volumes=[{"name": "t", "projected": {"sources": [source]}}])
    pod = await node.ready("steady")
    await create(node, "ends", activeDeadlineSeconds=60_000)
    await node.ready("ends")
    file = node.config.root_dir / "pods" / (pod.metadata.uid or "") / "volumes/kubernetes.io~projected/t/token"
    before = file.read_text()
    clock.step(70_000)

    async def is_renewed() -> bool:
        return file.read_text() != before

    await eventually(is_renewed, "the token is renewed")
    await node.wait("ends", lambda p: p.status.reason == "DeadlineExceeded")


async def test_a_sandbox_that_cannot_be_made_is_tried_again_with_an_event(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    runtime.failures.fail("RunPodSandbox", "no network for you", times=2)
    await create(node, "sandbox")
    message = await node.event("sandbox", "FailedCreatePodSandBox")
    assert message == "Failed to create pod sandbox: rpc error: code = Unknown desc = no network for you"
    await node.ready("sandbox")
    assert len(calls(runtime, "RunPodSandbox")) == 3


@pytest.mark.parametrize("clock", [FastClock(0.01)])  # so slow that a back-off would outlast the test
async def test_what_comes_while_volumes_are_set_up_without_it_is_taken_at_once(
    node: NodeUnderTest, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = core_v1.ConfigMap(data={"a": "1"})
    late.metadata.name, late.metadata.namespace = "late", "default"
    mount = VolumeManager.mount

    async def interrupted(self: VolumeManager, pod: core_v1.Pod) -> Any:
        async def known() -> bool:
            return self._references.config_map("default", "late") is not None

        try:
            return await mount(self, pod)
        except MountsFailed:
            await node.client.create(late)
            await eventually(known, "the agent does not see the ConfigMap")
            raise

    monkeypatch.setattr(VolumeManager, "mount", interrupted)
    await create(node, "needs", volumes=[{"name": "v", "configMap": {"name": "late"}}])
    await node.ready("needs")


@pytest.mark.parametrize(
    ("rpc", "reason"), [("CreateContainer", "CreateContainerError"), ("StartContainer", "RunContainerError")]
)
async def test_a_container_that_cannot_be_made_or_started_reports_the_reason(
    node: NodeUnderTest, runtime: FakeRuntime, rpc: str, reason: str
) -> None:
    runtime.failures.fail(rpc, "the disk is full", times=50)
    await create(node, "broken")
    pod = await node.wait("broken", lambda p: waiting(p) == reason)
    state = pod.status.container_statuses[0].state
    assert state and state.waiting and state.waiting.message == "the disk is full"
    assert await node.event("broken", "Failed") == "Error: the disk is full"
    await node.delete("broken")
    await node.gone("broken")


async def test_a_container_that_cannot_start_does_not_hold_the_next_one(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    missing = container(name="missing") | {"image": "example.test/none:1"}
    await create(node, "half", missing, container(name="other"))

    def runs(pod: core_v1.Pod) -> bool:
        return any(s.name == "other" and s.state and s.state.running for s in pod.status.container_statuses)

    pod = await node.wait("half", runs)
    assert pod.status.phase == "Pending" and waiting(pod) in ("ErrImagePull", "ImagePullBackOff")
    assert len(calls(runtime, "CreateContainer")) == 1


async def test_sidecars_end_after_the_main_container_in_reverse_order(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    sidecars = [container(name=name, restartPolicy="Always") for name in ("first", "second")]
    await create(node, "order", container(), container(name="other"), initContainers=sidecars)
    await node.ready("order")
    names = {c.status.id: c.config.metadata.name for c in runtime.containers.containers.values()}
    await node.delete("order")
    await node.gone("order")
    stopped = [names[request.container_id] for request in calls(runtime, "StopContainer")]
    assert sorted(stopped[:2]) == ["main", "other"] and stopped[2:] == ["second", "first"]


async def test_a_deaf_container_has_its_grace_and_no_more(
    node: NodeUnderTest, runtime: FakeRuntime, clock: FastClock
) -> None:
    await create(node, "deaf", container("cat"), terminationGracePeriodSeconds=20)
    await node.ready("deaf")
    began = clock.monotonic()
    await node.delete("deaf")
    await node.gone("deaf")
    assert clock.monotonic() - began >= 20.0
    assert [request.timeout for request in calls(runtime, "StopContainer")] == [20]


async def test_a_grace_that_is_shortened_counts_from_then_on(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    await create(node, "long", container("cat"), terminationGracePeriodSeconds=100_000)
    await node.ready("long")
    await node.delete("long")

    async def stopping() -> bool:
        return len(calls(runtime, "StopContainer")) == 1

    await eventually(stopping, "it is not being stopped")
    await node.delete("long", grace=1)
    await node.gone("long")
    assert [request.timeout for request in calls(runtime, "StopContainer")] == [100_000, 1]


async def test_deleting_a_pod_does_not_wait_for_its_pull(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.images.publish("example.test/large:1")
    runtime.failures.delay("PullImage", 3600.0)
    await create(node, "pulls", {"name": "main", "image": "example.test/large:1"})
    await node.event("pulls", "Pulling")
    await node.delete("pulls")
    await node.gone("pulls")

    async def none() -> bool:
        return not runtime.containers.sandboxes

    await eventually(none, "its sandbox was left behind")


async def test_deleting_a_pod_whose_sandbox_is_being_made_leaves_none(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    runtime.failures.delay("RunPodSandbox", 50.0)
    await create(node, "early")

    async def under_way() -> bool:
        return bool(calls(runtime, "RunPodSandbox"))

    await eventually(under_way, "no sandbox is being made")
    await node.delete("early")
    await node.gone("early")

    async def none() -> bool:
        return not runtime.containers.sandboxes

    await eventually(none, "a sandbox was left behind")


async def test_a_runtime_that_is_away_costs_no_container(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    await create(node, "endures")
    before = await node.ready("endures")
    await runtime.stop()
    await create(node, "waits")
    await node.event("waits", "FailedCreatePodSandBox")
    await runtime.start()
    await node.ready("waits")
    after = await node.get("endures")
    assert after.status.container_statuses == before.status.container_statuses


async def test_private_images_are_pulled_with_the_pods_secrets(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.images.publish("private.test/app:1", ("me", "open"))
    auths = {"auths": {"private.test": {"username": "me", "password": "open"}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
    secret = core_v1.Secret(type="kubernetes.io/dockerconfigjson", data=data)
    secret.metadata.name, secret.metadata.namespace = "pull", "default"
    await node.client.create(secret)
    app = container() | {"image": "private.test/app:1"}
    await create(node, "private", app, imagePullSecrets=[{"name": "pull"}])
    await node.ready("private")
    message = await node.event("private", "Pulling")
    assert message == 'Pulling image "private.test/app:1"'
    pulled = await node.event("private", "Pulled")
    assert pulled.startswith('Successfully pulled image "private.test/app:1" in ')
    assert pulled.endswith(" including waiting). Image size: 2000000 bytes.")


async def test_a_debug_container_is_added_to_a_running_pod(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    pod = await create(node, "debugged")
    await node.ready("debugged")
    debug = {"spec": {"ephemeralContainers": [container("exit 3", "debugger") | {"targetContainerName": "main"}]}}
    await node.client.patch(
        core_v1.Pod, "debugged", "default", debug,
        type="application/strategic-merge-patch+json", subresource="ephemeralcontainers",
    )  # fmt: skip

    def ran(pod: core_v1.Pod) -> bool:
        found = pod.status.ephemeral_container_statuses
        return bool(found and found[0].state and found[0].state.terminated)

    after = await node.wait("debugged", ran)
    state = after.status.ephemeral_container_statuses[0].state
    assert state and state.terminated and state.terminated.exit_code == 3
    assert is_ready(after) and after.status.container_statuses[0].restart_count == 0
    made = [r for r in calls(runtime, "CreateContainer") if r.config.metadata.name == "debugger"]
    main = after.status.container_statuses[0].container_id or ""
    assert made[0].config.linux.security_context.namespace_options.target_id == main.partition("://")[2]
    assert pod.metadata.uid == after.metadata.uid


async def test_churn_with_restarts_of_everything_leaves_nothing_behind(
    node: NodeUnderTest, runtime: FakeRuntime, tmp_path: Path
) -> None:
    choose = random.Random(7)
    scripts = (TRAP, "exit 0", "exit 1", "sleep 5; exit 2", "cat")
    living: list[str] = []
    for step in range(60):
        what = choose.choices(("create", "delete", "force", "agent", "runtime", "crash"), (10, 6, 2, 1, 1, 3))[0]
        if what == "create":
            policy = choose.choice(("Always", "OnFailure", "Never"))
            init = [container("exit 0", "init")] if choose.random() < 0.3 else []
            await create(
                node, f"p{step}", container(choose.choice(scripts)), restartPolicy=policy, initContainers=init,
                terminationGracePeriodSeconds=choose.choice((1, 5, 30)),
            )  # fmt: skip
            living.append(f"p{step}")
        elif what in ("delete", "force") and living:
            name = living.pop(choose.randrange(len(living)))
            await node.delete(name, grace=0 if what == "force" else None)
        elif what == "agent":
            await node.stop()
            await node.start()
        elif what == "runtime":
            await runtime.stop()
            await asyncio.sleep(0.02)
            await runtime.start()
        elif what == "crash" and runtime.containers.sandboxes:
            runtime.failures.fail(choose.choice(("StartContainer", "StopPodSandbox", "RunPodSandbox")), "bad luck")
        await asyncio.sleep(choose.random() * 0.05)
    for name in living:
        await node.delete(name)
    for step in range(60):
        try:
            await node.gone(f"p{step}")
        except StatusError as error:
            assert error.not_found

    async def nothing() -> bool:
        folders = list(node.config.pods_dir.iterdir()) if node.config.pods_dir.exists() else []
        logs = list(node.config.pod_logs_dir.iterdir()) if node.config.pod_logs_dir.exists() else []
        return not (runtime.containers.sandboxes or runtime.containers.containers or folders or logs)

    await eventually(nothing, "something was left behind", timeout=60)


async def test_a_fully_qualified_name_that_is_too_long_is_reported_before_a_sandbox_is_created(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    await create(node, "fqdn", hostname="h", subdomain="s" * 60, setHostnameAsFQDN=True)
    output = await node.event("fqdn", "FailedCreatePodSandBox")
    start = "Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, FQDN h.sss"
    assert output.startswith(start) and output.endswith(" characters requested)")
    assert calls(runtime, "RunPodSandbox") == []


async def test_dns_settings_over_the_limit_emit_an_event(node: NodeUnderTest) -> None:
    servers = ["1.0.0.1", "1.0.0.2", "1.0.0.3"]
    await create(node, "fits", dnsPolicy="None", dnsConfig={"nameservers": servers})
    await create(node, "many", dnsConfig={"nameservers": servers})
    limits = "Nameserver limits were exceeded, some nameservers have been omitted"
    applied = "10.96.0.10 1.0.0.1 1.0.0.2"
    assert await node.event("many", "DNSConfigForming") == f"{limits}, the applied nameserver line is: {applied}"
    await node.ready("fits")
    assert "DNSConfigForming" not in {reason for reason, _ in await node.events("fits")}


@pytest.mark.parametrize("clock", [FastClock(1.0)])
async def test_no_terminal_phase_is_reported_during_a_sidecars_grace_period(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    side = container("cat", name="side", restartPolicy="Always")
    more = {"initContainers": [side], "restartPolicy": "Never", "terminationGracePeriodSeconds": 4}
    await create(node, "esc", container("sleep 1; exit 0"), **more)

    def running() -> set[str]:
        found = runtime.containers.containers.values()
        return {c.config.metadata.name for c in found if c.status.state == ContainerState.CONTAINER_RUNNING}

    seen: set[str] = set()
    async with asyncio.timeout(30):
        while (await node.get("esc")).status.phase != "Succeeded":
            if (left := running()) == {"side"}:
                seen |= left
            await asyncio.sleep(0.05)
    assert seen == {"side"} and running() == set()


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".test"])
@pytest.mark.parametrize("hook", ["preStop", "postStart"])
async def test_a_hook_whose_host_is_no_name_fails_and_its_pod_is_stopped(
    node: NodeUnderTest, runtime: FakeRuntime, hook: str, host: str
) -> None:
    handler = {"httpGet": {"host": host, "port": 80, "path": "/"}}
    await create(node, "hook", container(lifecycle={hook: handler}), terminationGracePeriodSeconds=2)
    if hook == "preStop":
        await node.ready("hook")
    else:
        assert "PostStartHook failed" in await node.event("hook", "FailedPostStartHook")
    await node.delete("hook")
    await node.gone("hook")
    assert calls(runtime, "StopContainer")
    if hook == "preStop":
        assert "PreStopHook failed" in await node.event("hook", "FailedPreStopHook")


async def test_a_pod_has_its_address_while_a_post_start_hook_runs(
    node: NodeUnderTest, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "LATE_SECONDS", 100.0)  # the hook runs by then, on a busy machine too
    hook = {"postStart": {"sleep": {"seconds": 2000}}}
    await create(node, "hook", container(lifecycle=hook), terminationGracePeriodSeconds=2000)

    async def has_address() -> bool:
        return bool((await node.get("hook")).status.pod_ip)

    await eventually(has_address, "the pod has no address while its hook runs")
    status = (await node.get("hook")).status
    assert calls(runtime, "StartContainer")
    assert [each.ip for each in status.pod_ips] == [status.pod_ip]
    assert status.phase == "Pending" and not any(s.state and s.state.running for s in status.container_statuses)
    await node.delete("hook", grace=0)
    await node.gone("hook")
