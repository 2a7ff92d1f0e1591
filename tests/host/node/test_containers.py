"""Settings and termination of containers: environment, commands, security, restarts, messages."""

from __future__ import annotations

from typing import Any

import pytest

from kube.api import core_v1, meta_v1
from tests.support.containerd import Containerd
from tests.support.images import BUSYBOX_IMAGE, Image
from tests.support.node import NodeUnderTest, eventually, is_ready

TRAP = "trap 'exit 0' TERM; sleep 1000 & wait"


def shell(script: str, name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script], **more}


def ended(pod: core_v1.Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def state(pod: core_v1.Pod, index: int = 0) -> core_v1.ContainerState:
    shown = pod.status.container_statuses
    return (shown[index].state if shown else None) or core_v1.ContainerState()


def last(pod: core_v1.Pod, index: int = 0) -> core_v1.ContainerStateTerminated | None:
    found = pod.status.container_statuses[index].last_state
    return found.terminated if found else None


async def test_a_container_sees_its_environment_and_the_downward_api(node: NodeUnderTest) -> None:
    await node.client.create(core_v1.ConfigMap(metadata=_meta("settings"), data={"COLOUR": "green", "SIZE": "9"}))
    await node.client.create(core_v1.Secret(metadata=_meta("hidden"), data={"password": "c2VjcmV0"}))
    env = [
        {"name": "A", "value": "one"},
        {"name": "B", "value": "$(A) two $$(A) $(NONE)"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "password"}}},
        {"name": "ABSENT", "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": True}}},
    ]
    container = shell(
        TRAP,
        env=env,
        envFrom=[{"configMapRef": {"name": "settings"}, "prefix": "P_"}],
        resources={"limits": {"cpu": "250m", "memory": "64Mi"}},
        args=["$(A)"],
        workingDir="/tmp",
    )
    await node.create("env", {"containers": [container]}, labels={"app": "shop"})
    pod = await node.ready("env")
    text = await node.execute(pod, "sh", "-c", "cat /proc/1/environ | tr '\\0' '\\n'; pwd")
    lines = set(text.splitlines())
    expected = {
        "A=one",
        "B=one two $(A) $(NONE)",
        "NAME=env",
        "LABEL=shop",
        f"IP={pod.status.pod_ip}",
        "HOST=192.0.2.10",
        "CPU=250",
        "PASSWORD=secret",
        "P_COLOUR=green",
        "P_SIZE=9",
        "HOSTNAME=env",
        "/tmp",
    }
    assert expected <= lines, expected - lines
    assert not any(line.startswith("ABSENT") for line in lines)
    assert pod.status.qos_class == "Guaranteed"
    assert pod.status.container_statuses[0].allocated_resources == {"cpu": "250m", "memory": "64Mi"}


def _meta(name: str) -> meta_v1.ObjectMeta:
    return meta_v1.ObjectMeta(name=name, namespace="default")


async def test_a_job_like_pod_succeeds_and_leaves_its_message(node: NodeUnderTest) -> None:
    await node.create(
        "once", {"restartPolicy": "Never", "containers": [shell("echo -n done > /dev/termination-log; exit 0")]}
    )
    pod = await node.wait("once", ended)
    assert pod.status.phase == "Succeeded"
    terminated = state(pod).terminated
    assert terminated and (terminated.exit_code, terminated.reason, terminated.message) == (0, "Completed", "done")
    ready = {c.type: (c.status, c.reason) for c in pod.status.conditions}
    assert ready["Ready"] == ("False", "PodCompleted") and ready["Initialized"] == ("True", "PodCompleted")
    await node.delete("once")
    await node.gone("once")


async def test_a_failing_pod_fails_and_its_log_is_the_message_with_fallback_to_logs_on_error(
    node: NodeUnderTest,
) -> None:
    container = shell("echo first; echo the end; exit 3", terminationMessagePolicy="FallbackToLogsOnError")
    await node.create("bad", {"restartPolicy": "Never", "containers": [container]})
    pod = await node.wait("bad", ended)
    assert pod.status.phase == "Failed"
    terminated = state(pod).terminated
    assert terminated and (terminated.exit_code, terminated.reason) == (3, "Error")
    assert terminated.message == "first\nthe end\n"


async def test_a_crashing_container_backs_off_and_counts(node: NodeUnderTest) -> None:
    await node.create("crash", {"containers": [shell("exit 1")]})
    pod = await node.wait("crash", lambda p: (w := state(p).waiting) is not None and w.reason == "CrashLoopBackOff")
    status = pod.status.container_statuses[0]
    assert status.restart_count == 1
    uid = pod.metadata.uid
    assert status.state and status.state.waiting
    message = f"back-off 10s restarting failed container=main pod=crash_default({uid})"
    assert status.state.waiting.message == message
    assert last(pod) and last(pod).exit_code == 1  # type: ignore[union-attr]
    assert pod.status.phase == "Running"
    assert await node.event("crash", "BackOff") == (
        f"Back-off restarting failed container main in pod crash_default({uid})"
    )
    await node.delete("crash")
    await node.gone("crash")


async def test_init_containers_run_in_order_and_a_sidecar_stays_beside_the_main_one(node: NodeUnderTest) -> None:
    volume = {"name": "shared", "emptyDir": {}}
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    spec = {
        "volumes": [volume],
        "initContainers": [
            shell("echo one >> /shared/log", "first", volumeMounts=mounts),
            shell(f"echo side >> /shared/log; {TRAP}", "side", volumeMounts=mounts, restartPolicy="Always"),
            shell("echo two >> /shared/log", "second", volumeMounts=mounts),
        ],
        "containers": [shell(f"echo main >> /shared/log; {TRAP}", volumeMounts=mounts)],
    }
    await node.create("init", spec)
    pod = await node.ready("init")
    assert (await node.execute(pod, "cat", "/shared/log")).split() == ["one", "side", "two", "main"]
    first, side, second = pod.status.init_container_statuses
    assert first.state and first.state.terminated and first.ready and second.ready
    assert side.state and side.state.running and side.ready and side.started
    await node.delete("init")
    await node.gone("init")


async def test_a_pod_whose_init_container_fails_for_good_is_failed(node: NodeUnderTest) -> None:
    spec = {"restartPolicy": "Never", "initContainers": [shell("exit 7", "setup")], "containers": [shell(TRAP)]}
    await node.create("noinit", spec)
    pod = await node.wait("noinit", ended)
    assert pod.status.phase == "Failed"
    initialised = next(c for c in pod.status.conditions if c.type == "Initialized")
    assert initialised.status == "False" and initialised.message == "containers with incomplete status: [setup]"
    assert state(pod).waiting and state(pod).waiting.reason == "PodInitializing"  # type: ignore[union-attr]


async def test_image_pull_failures_have_distinct_reasons(node: NodeUnderTest) -> None:
    for name, image, policy in (
        ("never", "example.test/none:1", "Never"),
        ("name", "UPPER/Case", "IfNotPresent"),
        ("pull", "127.0.0.1:1/none:1", "IfNotPresent"),
    ):
        container = {"name": "main", "image": image, "imagePullPolicy": policy}
        await node.create(name, {"containers": [container]})

    def reason(pod: core_v1.Pod) -> str:
        waiting = state(pod).waiting
        return (waiting.reason or "") if waiting else ""

    pod = await node.wait("never", lambda p: reason(p) == "ErrImageNeverPull")
    assert state(pod).waiting.message == (  # type: ignore[union-attr]
        'Container image "example.test/none:1" is not present with pull policy of Never'
    )
    await node.wait("name", lambda p: reason(p) == "InvalidImageName")
    pod = await node.wait("pull", lambda p: reason(p) == "ImagePullBackOff")
    message = state(pod).waiting.message or ""  # type: ignore[union-attr]
    assert message.startswith('Back-off pulling image "127.0.0.1:1/none:1": ErrImagePull: rpc error: code = ')
    assert pod.status.phase == "Pending"

    async def is_reported() -> bool:
        events = await node.events("pull")
        return {"Pulling", "Failed", "BackOff"} <= {r for r, _ in events} and (
            "Failed",
            "Error: ErrImagePull",
        ) in events

    await eventually(is_reported, "the events do not tell of the pull")
    for name in ("never", "name", "pull"):
        await node.delete(name)
        await node.gone(name)


async def test_a_container_without_its_configuration_waits_until_it_comes(node: NodeUnderTest) -> None:
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "x"}}}]
    await node.create("late", {"containers": [shell(TRAP, env=env)]})
    pod = await node.wait(
        "late", lambda p: (w := state(p).waiting) is not None and w.reason == "CreateContainerConfigError"
    )
    assert state(pod).waiting.message == 'configmap "late" not found'  # type: ignore[union-attr]
    assert await node.event("late", "Failed") == 'Error: configmap "late" not found'
    await node.client.create(core_v1.ConfigMap(metadata=_meta("late"), data={"x": "here"}))
    pod = await node.ready("late")
    assert await node.execute(pod, "sh", "-c", "echo $X") == "here\n"


async def test_a_command_that_does_not_exist_is_a_run_error(node: NodeUnderTest) -> None:
    container = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["/no/such/program"]}
    await node.create("nocommand", {"containers": [container]})
    pod = await node.wait(
        "nocommand",
        lambda p: (
            (w := state(p).waiting) is not None
            and w.reason in ("RunContainerError", "CrashLoopBackOff")
            and last(p) is not None
        ),
    )
    assert last(pod).reason == "StartError" and last(pod).exit_code == 128  # type: ignore[union-attr]
    await node.delete("nocommand")
    await node.gone("nocommand")


async def test_a_container_out_of_memory_has_the_reason_oomkilled(node: NodeUnderTest) -> None:
    container = shell("tail /dev/zero", resources={"limits": {"memory": "20Mi"}})
    await node.create("oom", {"restartPolicy": "Never", "containers": [container]})
    pod = await node.wait("oom", ended)
    terminated = state(pod).terminated
    assert terminated and (terminated.reason, terminated.exit_code) == ("OOMKilled", 137)


async def test_security_settings_reach_the_process(node: NodeUnderTest) -> None:
    spec = {
        "securityContext": {"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000, "supplementalGroups": [4000]},
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [
            shell(
                TRAP,
                volumeMounts=[{"name": "data", "mountPath": "/data"}],
                securityContext={
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            )
        ],
    }
    await node.create("secure", spec)
    pod = await node.ready("secure")
    assert (await node.execute(pod, "id")).startswith("uid=1000 gid=2000 groups=2000,3000,4000")
    status = await node.execute(pod, "cat", "/proc/1/status")
    values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert values["NoNewPrivs"] == "1" and values["Seccomp"] == "2"
    assert int(values["CapBnd"], 16) == 1 << 10
    owner = await node.execute(pod, "sh", "-c", "touch /data/x && stat -c %g /data/x; touch /x 2>&1 || true")
    assert owner.splitlines()[0] == "3000" and "Read-only file system" in owner


async def test_a_container_that_would_be_root_is_refused(node: NodeUnderTest) -> None:
    await node.create("root", {"securityContext": {"runAsNonRoot": True}, "containers": [shell(TRAP)]})
    pod = await node.wait(
        "root", lambda p: (w := state(p).waiting) is not None and w.reason == "CreateContainerConfigError"
    )
    message = state(pod).waiting.message or ""  # type: ignore[union-attr]
    assert message.startswith('container has runAsNonRoot and image will run as root (pod: "root_default(')


@pytest.mark.parametrize("user", ["4294967296", "-1", "2147483648"])
async def test_an_image_cannot_name_root_by_a_number_that_is_no_user_id(
    node: NodeUnderTest, containerd: Containerd, user: str
) -> None:
    """The runtime looks it up as a name, in a file of the image."""
    users = f"root:x:0:0::/:/bin/sh\n{user}:x:0:0::/:/bin/sh\n".encode()
    image = Image(f"wherry.test/user:{user.strip('-')}", user=user, files={"etc/passwd": users})
    containerd.load([image])
    container = {**shell(TRAP), "image": image.name, "imagePullPolicy": "Never"}
    await node.create("odd", {"securityContext": {"runAsNonRoot": True}, "containers": [container]})
    pod = await node.wait("odd", lambda p: (w := state(p).waiting) is not None and w.reason != "ContainerCreating")
    waiting = state(pod).waiting
    assert waiting is not None and waiting.reason == "CreateContainerConfigError"
    assert "container has runAsNonRoot and image " in (waiting.message or "")


async def test_hooks_run_before_ready_and_before_the_end(node: NodeUnderTest, tmp_path: Any) -> None:
    spec = {
        "volumes": [{"name": "out", "hostPath": {"path": str(tmp_path / "out"), "type": "DirectoryOrCreate"}}],
        "containers": [
            shell(
                TRAP,
                volumeMounts=[{"name": "out", "mountPath": "/out"}],
                lifecycle={
                    "postStart": {"exec": {"command": ["sh", "-c", "echo start >> /out/log"]}},
                    "preStop": {"exec": {"command": ["sh", "-c", "echo stop >> /out/log"]}},
                },
            )
        ],
    }
    await node.create("hooks", spec)
    await node.ready("hooks")
    await node.delete("hooks")
    await node.gone("hooks")
    assert (tmp_path / "out/log").read_text() == "start\nstop\n"


async def test_an_exec_probe_decides_on_readiness_and_restarts(node: NodeUnderTest) -> None:
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    alive = {"exec": {"command": ["test", "!", "-e", "/tmp/dead"]}, "periodSeconds": 1, "failureThreshold": 1}
    await node.create("probed", {"containers": [shell(TRAP, readinessProbe=probe, livenessProbe=alive)]})
    pod = await node.wait("probed", lambda p: state(p).running is not None)
    assert not is_ready(pod)
    condition = next(c for c in pod.status.conditions if c.type == "Ready")
    assert (condition.reason, condition.message) == ("ContainersNotReady", "containers with unready status: [main]")
    await node.execute(pod, "touch", "/tmp/ready")
    pod = await node.ready("probed")
    await node.execute(pod, "touch", "/tmp/dead")
    await node.wait("probed", lambda p: p.status.container_statuses[0].restart_count == 1)

    async def is_reported() -> bool:
        return ("Killing", "Container main failed liveness probe, will be restarted") in await node.events("probed")

    await eventually(is_reported, "no event tells why it was restarted")


async def test_an_active_deadline_ends_the_pod(node: NodeUnderTest) -> None:
    await node.create("deadline", {"activeDeadlineSeconds": 1, "containers": [shell(TRAP)]})
    pod = await node.wait("deadline", ended)
    assert (pod.status.phase, pod.status.reason) == ("Failed", "DeadlineExceeded")
    assert pod.status.message == "Pod was active on the node longer than the specified deadline"


async def test_a_pod_that_does_not_fit_is_rejected(node: NodeUnderTest) -> None:
    await node.create("huge", {"containers": [shell(TRAP, resources={"requests": {"cpu": "1000"}})]})
    pod = await node.wait("huge", ended)
    assert (pod.status.phase, pod.status.reason) == ("Failed", "OutOfcpu")
    assert pod.status.container_statuses == []  # or kubectl would show their state in place of the reason
    assert (pod.status.message or "").startswith(
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000, used: "
    )
    await node.stop()
    await node.start()
    again = await node.get("huge")
    assert again.status == pod.status
    await node.delete("huge")
    await node.gone("huge")
