"""Behaviour of the agent that needs a machine: systemd's slices on cgroup v2, swap, shortage of memory and processes, shutdown.

On the last machine, in the order of writing; the machine is left as it was.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm.agent_pods import (
    MACHINE,
    NAMESPACE,
    cgroups,
    condition,
    container,
    create,
    node,
    pod,
    pods,
    ready,
    scope_of,
    slice_of,
)
from tests.vm.vagrant import eventually, inside, kubectl, ready_nodes

pytestmark = pytest.mark.timeout(3600)
DROP_IN = "/etc/wherry/kubelet.conf.d/test.conf"
HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
MI = 1 << 20
PODS_MEMORY, THRESHOLD, HOG = 700 * MI, 300 * MI, 450
PIDS_FREE, PIDS_LEFT, PIDS_HOG = 500, 800, 400
PERIODS = ((0, 150), (1000, 100), (2_000_000_000, 100))


RESERVED = "[Service]\nExecStart=sleep infinity\nSlice=wherry-test.slice\n[Install]\nWantedBy=multi-user.target\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def shell(*commands: str) -> str:
    """Run commands in the machine's shell, one after the other whatever they end with; return what they say."""
    return inside(MACHINE, f"sh -c '{'; '.join(commands)}'")


def configure(**settings: Any) -> str:
    """Lay settings over the agent's and have it read them; say what systemd says. It is active when the node is Ready."""
    write = f"echo {encoded(json.dumps(HEAD | settings))} | base64 -d > {DROP_IN}"
    return shell(write, "systemctl restart wherry-agent 2>&1; systemctl is-active wherry-agent || true")


@pytest.fixture(scope="module", autouse=True)
def left_as_it_was(machines: None) -> Iterator[None]:
    """Give the machine swap and a slice to reserve for; take all of it away at the end."""
    eventually("the node is Ready", lambda: MACHINE in ready_nodes())
    kubectl("create", "namespace", NAMESPACE, check=False)
    shell(
        "swapoff -a; dd if=/dev/zero of=/swap bs=1M count=256 status=none; chmod 600 /swap; mkswap -q /swap && swapon /swap",
        f"echo {encoded(RESERVED)} | base64 -d > /etc/systemd/system/reserved.service",
        "systemctl daemon-reload && systemctl --quiet enable --now reserved",
    )
    yield
    kubectl("delete", "namespace", NAMESPACE, "--wait=false", check=False)
    kubectl("delete", "priorityclass", "machine-middle", "--wait=false", check=False)
    shell(
        f"rm -rf {DROP_IN} {TIMES}; systemctl restart wherry-agent",
        "systemctl --quiet disable --now reserved; rm -f /etc/systemd/system/reserved.service; systemctl daemon-reload",
        "swapoff -a; rm -f /swap",
    )
    eventually("the pods' slices have gone", lambda: not any("-pod" in name for name in cgroups()))


@pytest.fixture(scope="module")
def memory() -> tuple[int, int]:
    """Return the machine's memory and swap, in bytes."""
    lines = inside(MACHINE, "cat /proc/meminfo")
    found = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines.splitlines()}
    return found["MemTotal"], found["SwapTotal"]


def test_pods_are_slices_with_the_weights_and_limits_of_their_class(tmp_path: Path) -> None:
    both = {"cpu": "200m", "memory": "64Mi"}
    whole = {"requests": {"cpu": "300m", "memory": "48Mi"}, "limits": {"cpu": "1", "memory": "96Mi"}}
    ends = ("sh", "-c", "tail /dev/zero & wait $!; sleep 1000000")
    create(
        tmp_path,
        pod("guaranteed", container(requests=both, limits=both)),
        pod(
            "burstable",
            container(requests={"cpu": "100m", "memory": "32Mi"}, limits={"cpu": "500m", "memory": "128Mi"}),
        ),
        pod("effort", container()),
        pod("whole", container(name="a"), container(name="b"), resources=whole),
        pod("greedy", container(*ends, limits={"memory": "48Mi"}), restartPolicy="Never"),
    )
    found = ready("guaranteed", "burstable", "effort", "whole")
    groups = cgroups()

    def of(name: str, *files: str) -> list[str]:
        return [groups[slice_of(found[name])].get(file, "") for file in files]

    limits = ("cpu.weight", "cpu.max", "memory.max")
    assert of("guaranteed", *limits) == ["29", "20000 100000", str(64 * MI)]
    assert of("burstable", *limits) == ["17", "50000 100000", str(128 * MI)]
    assert of("effort", *limits) == ["1", "max 100000", "max"]
    assert of("whole", *limits) == ["40", "100000 100000", str(96 * MI)]
    for name in ("a", "b"):  # what bounds the pod bounds each of its containers
        assert groups[scope_of(found["whole"], name)]["memory.max"] == str(96 * MI)
    for name in ("guaranteed", "burstable", "effort"):
        scope = groups[scope_of(found[name])]
        assert (scope["memory.swap.max"], scope["memory.oom.group"]) == ("0", "1")
    assert int(groups["kubepods-burstable.slice"]["cpu.weight"]) > int(
        groups["kubepods-besteffort.slice"]["cpu.weight"]
    )


def test_a_container_out_of_memory_ends_as_a_whole(tmp_path: Path) -> None:
    # Its first process, which waits for the greedy one, is not spared: memory.oom.group.
    eventually("the greedy pod has ended", lambda: pods()["greedy"]["status"]["phase"] == "Failed")
    ended = pods()["greedy"]["status"]["containerStatuses"][0]["state"]["terminated"]
    # The reason is the runtime's: containerd 1.6 calls it an error where the cgroup has gone before it reads the event.
    assert (ended["exitCode"], ended["reason"] in ("OOMKilled", "Error")) == (137, True)
    reported = [line for line in inside(MACHINE, "dmesg").splitlines() if "due to memory.oom.group set" in line]
    assert any(scope_of(pods()["greedy"]) in line for line in reported), reported


def test_a_resize_reaches_slice_and_container_which_runs_on(tmp_path: Path) -> None:
    before = pods()["burstable"]
    wanted = {"requests": {"cpu": "200m"}, "limits": {"cpu": "800m", "memory": "192Mi"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": wanted}]}}
    kubectl("patch", "pod", "burstable", "-n", NAMESPACE, "--subresource=resize", "-p", json.dumps(patch))

    def resized() -> bool:
        status = pods()["burstable"]["status"]["containerStatuses"][0]
        return bool(status.get("resources", {}).get("limits") == wanted["limits"])

    eventually("the status shows the new size", resized)
    after, groups = pods()["burstable"], cgroups()
    assert scope_of(after) == scope_of(before)
    for name in (slice_of(after), scope_of(after)):
        assert (groups[name]["cpu.max"], groups[name]["memory.max"]) == ("80000 100000", str(192 * MI))
    assert groups[slice_of(after)]["cpu.weight"] == "29"


def test_an_agent_that_must_not_run_with_swap_exits_with_an_error_and_containers_keep_running() -> None:
    running = pods()["guaranteed"]["status"]["containerStatuses"][0]["containerID"]
    assert "failed" in configure(failSwapOn=True)
    message = inside(MACHINE, "journalctl --unit=wherry-agent --lines=30 --output=cat --no-pager")
    assert "running with swap on is not supported, please disable swap or set failSwapOn to false" in message
    assert running.removeprefix("containerd://") in "".join(cgroups())


def test_pods_have_together_what_is_not_reserved(memory: tuple[int, int]) -> None:
    reserved = memory[0] - PODS_MEMORY
    # A machine of the tier has one processor, and those that run and those that come request 910m of it.
    configure(
        memorySwap={"swapBehavior": "LimitedSwap"},
        podPidsLimit=700,
        kubeReserved={"cpu": "50m", "memory": str(reserved), "pid": "1000"},
        kubeReservedCgroup="/wherry-test.slice",
        enforceNodeAllocatable=["pods", "kube-reserved"],
        evictionHard={"memory.available": str(THRESHOLD), "pid.available": str(PIDS_FREE)},
        evictionPressureTransitionPeriod="30s",
        shutdownGracePeriodByPodPriority=[
            {"priority": priority, "shutdownGracePeriodSeconds": seconds} for priority, seconds in PERIODS
        ],
    )
    eventually("the node is Ready again", lambda: condition(node(), "Ready").get("status") == "True")
    assert cgroups()["kubepods.slice"]["memory.max"] == str(PODS_MEMORY)
    eventually(
        "the node offers less",
        lambda: node()["status"]["allocatable"]["memory"] == f"{(PODS_MEMORY - THRESHOLD) // MI}Mi",
    )
    folder = "/sys/fs/cgroup/wherry.slice/wherry-test.slice"
    files = inside(MACHINE, f"cat {folder}/cpu.weight {folder}/memory.max {folder}/pids.max").split()
    assert files == ["11", str(reserved // 4096 * 4096), "1000"]


def test_burstable_containers_swap_in_proportion_to_their_requests(tmp_path: Path, memory: tuple[int, int]) -> None:
    small = {"cpu": "200m", "memory": "32Mi"}
    create(
        tmp_path,
        pod("part", container(requests={"memory": "64Mi"}, limits={"memory": "128Mi"})),
        pod("none", container(requests={"cpu": "10m"})),
        pod("all", container(requests=small, limits=small)),
        pod("best", container()),
    )
    found, groups = ready("part", "none", "all", "best"), cgroups()
    share = 64 * MI * memory[1] // memory[0]
    swap = {name: int(groups[scope_of(one)]["memory.swap.max"]) for name, one in found.items()}
    assert swap == {"part": share // 4096 * 4096, "none": 0, "all": 0, "best": 0}
    assert {groups[slice_of(one)]["pids.max"] for one in found.values()} == {"700"}
    assert node()["status"]["nodeInfo"]["swap"]["capacity"] == memory[1]


def test_the_pod_that_takes_the_pods_memory_is_evicted_before_the_kernel_kills(tmp_path: Path) -> None:
    # The machine itself has plenty; what all pods may have together runs low.
    fills = container("sh", "-c", f"dd if=/dev/zero of=/mem/file bs=1M count={HOG}; sleep 1000000")
    fills["volumeMounts"] = [{"name": "mem", "mountPath": "/mem"}]
    create(
        tmp_path, pod("hog", fills, volumes=[{"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "600Mi"}}])
    )
    evicted("hog", "MemoryPressure", "node.kubernetes.io/memory-pressure", "memory", "300Mi")
    assert "Container main was using " in pods()["hog"]["status"]["message"]


def test_the_pod_that_takes_the_machines_process_ids_is_evicted(tmp_path: Path) -> None:
    before = inside(MACHINE, "cat /proc/sys/kernel/pid_max").strip()
    try:
        forks = f"for i in $(seq {PIDS_HOG}); do sleep 1000000 & done; wait"
        create(tmp_path, pod("forks", container("sh", "-c", forks)))
        of_pod = f"/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/{slice_of(ready('forks')['forks'])}"
        forked = f"cat {of_pod}/pids.current"
        # The limit is set for all of them: with some still to come, there would be too little for the others, too.
        eventually("all processes run", lambda: int(inside(MACHINE, forked)) > PIDS_HOG)
        tasks = int(inside(MACHINE, "cat /proc/loadavg").split()[3].partition("/")[2])
        inside(MACHINE, f"sysctl -q kernel.pid_max={tasks - PIDS_HOG + PIDS_LEFT}")
        evicted("forks", "PIDPressure", "node.kubernetes.io/pid-pressure", "pids", str(PIDS_FREE))
    finally:
        inside(MACHINE, f"sysctl -q kernel.pid_max={before}")


def evicted(name: str, pressure: str, taint: str, resource: str, threshold: str) -> None:
    """Wait for a pod to be evicted, and for the node to show why; no other pod goes, and the pressure passes."""

    def shown() -> bool:
        now = node()
        taints = {one["key"] for one in now.get("spec", {}).get("taints", [])}
        return condition(now, pressure).get("status") == "True" and taint in taints

    eventually(f"the node has {pressure}", shown)
    eventually(f"{name} is evicted", lambda: pods()[name]["status"].get("reason") == "Evicted")
    status = pods()[name]["status"]
    assert status["phase"] == "Failed"
    message = f"The node was low on resource: {resource}. Threshold quantity: {threshold}, available: "
    assert status["message"].startswith(message)
    assert condition(pods()[name], "DisruptionTarget")["reason"] == "TerminationByKubelet"
    eventually(f"{pressure} has passed", lambda: condition(node(), pressure).get("status") == "False")
    others = {other: one["status"]["phase"] for other, one in pods().items()}
    running = [other for other, phase in others.items() if phase == "Running"]
    assert set(running) >= {"guaranteed", "burstable", "effort", "whole", "part", "none", "all", "best"}, others


# -- the machine goes down --------------------------------------------------------------------------------------------
TIMES = "/var/log/wherry-test"
GROUPS = {"low": 0, "middle": 1000, "critical": 2_000_001_000}
MESSAGE = "Pod was terminated in response to imminent node shutdown."


def notes_its_end(name: str, seconds: int) -> dict[str, Any]:
    """Describe a container that records when it is terminated and when it has ended, some time later."""
    note = "cut -d. -f1 /proc/uptime > /times/%s"
    command = (
        f"trap '{note % f'{name}-told'}; sleep {seconds}; {note % f'{name}-ended'}; exit 0' TERM; sleep 1000000 & wait"
    )
    return container("sh", "-c", command) | {"volumeMounts": [{"name": "times", "mountPath": "/times"}]}


def spec_of_noting(name: str, seconds: int) -> dict[str, Any]:
    volume = {"name": "times", "hostPath": {"path": TIMES, "type": "DirectoryOrCreate"}}
    made: dict[str, Any] = pod(name, notes_its_end(name, seconds))["spec"]
    return made | {"volumes": [volume], "terminationGracePeriodSeconds": 60}


def test_logind_waits_for_the_agent_as_long_as_all_periods_together() -> None:
    manager = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
    message = inside(MACHINE, f"busctl get-property {manager} InhibitDelayMaxUSec").split()
    assert message == ["t", str(sum(seconds for _, seconds in PERIODS) * 1_000_000)]
    assert "InhibitDelayMaxSec=350" in inside(MACHINE, "cat /etc/systemd/logind.conf.d/99-kubelet.conf")
    locks = inside(MACHINE, "systemd-inhibit --list --no-pager")
    assert any("kubelet" in line and "shutdown" in line and "delay" in line for line in locks.splitlines()), locks


def test_a_shutdown_waits_until_pods_have_ended_the_least_important_first(tmp_path: Path) -> None:
    kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--wait=false")
    middle = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "machine-middle"},
        "value": GROUPS["middle"],
    }
    named = {"priorityClassName": "machine-middle"}
    low = spec_of_noting("low", 10)
    del low["nodeName"]  # so that its Deployment's next pod waits for the node to be back
    low["nodeSelector"] = {"kubernetes.io/hostname": MACHINE}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "low"},
        "spec": {
            "selector": {"matchLabels": {"app": "low"}},
            "template": {"metadata": {"labels": {"app": "low"}}, "spec": low},
        },
    }
    critical = pod("critical") | {"spec": spec_of_noting("critical", 3) | {"priorityClassName": "system-node-critical"}}
    create(tmp_path, middle, deployment, pod("middle") | {"spec": spec_of_noting("middle", 3) | named}, critical)
    eventually("the Deployment has its pod", lambda: any(name.startswith("low-") for name in pods()))
    first = next(name for name in pods() if name.startswith("low-"))
    ready(first, "middle", "critical")
    boot = inside(MACHINE, "cat /proc/sys/kernel/random/boot_id")
    inside(MACHINE, "systemctl reboot", check=False)

    def reported() -> bool:
        found = condition(node(), "Ready")
        return (found.get("status"), found.get("message")) == ("False", "node is shutting down")

    eventually("the node says that it is shutting down", reported)
    create(tmp_path, pod("late", container()))
    eventually("a late pod is refused", lambda: pods().get("late", {}).get("status", {}).get("phase") == "Failed")
    eventually(
        "the machine has started again",
        lambda: inside(MACHINE, "cat /proc/sys/kernel/random/boot_id", check=False) not in ("", boot),
        900,
    )
    eventually("the node is Ready again", lambda: condition(node(), "Ready").get("status") == "True", 600)

    found = pods()
    assert found["late"]["status"]["reason"] == "NodeShutdown"
    for name in (first, "middle", "critical"):
        status = found[name]["status"]
        assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Terminated", MESSAGE)
        target = condition(found[name], "DisruptionTarget")
        assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
    moments = {
        (name, moment): int(inside(MACHINE, f"cat {TIMES}/{name}-{moment}"))
        for name in GROUPS
        for moment in ("told", "ended")
    }
    assert moments["low", "told"] + 10 <= moments["low", "ended"] <= moments["middle", "told"]
    assert moments["middle", "told"] + 3 <= moments["middle", "ended"] <= moments["critical", "told"]
    assert moments["critical", "told"] + 3 <= moments["critical", "ended"]

    def replaced() -> bool:
        others = {n: p for n, p in pods().items() if n.startswith("low-") and n != first}
        return any(condition(p, "Ready").get("status") == "True" for p in others.values())

    eventually("the Deployment's pod has been recreated", replaced)
    metrics = kubectl("get", "--raw", f"/api/v1/nodes/{MACHINE}/proxy/metrics")
    times = {
        line.split()[0]: float(line.split()[1]) for line in metrics.splitlines() if line.startswith("kubelet_graceful")
    }
    assert (
        0 < times["kubelet_graceful_shutdown_start_time_seconds"] < times["kubelet_graceful_shutdown_end_time_seconds"]
    )
