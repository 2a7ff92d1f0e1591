"""`vagrant up`, as a person types it: real machines with systemd, cgroup v2 and a kernel of their own.

The tests run in the order they are written in; each leaves the cluster whole.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.vagrant import (
    FOLDER,
    NETWORK,
    NODES,
    PREFIX,
    eventually,
    inside,
    kubectl,
    objects,
    ready_nodes,
    run,
    vagrant,
)

pytestmark = pytest.mark.timeout(3600)
UNITS = {
    "control-plane": ("wherry-containerd", "wherry-control", "wherry-agent", "wherry-netproxy"),
    "worker-1": ("wherry-containerd", "wherry-agent", "wherry-netproxy"),
}
NODE_PORT = 30080
WEB = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 2,
                        "affinity": {
                            "podAntiAffinity": {
                                "requiredDuringSchedulingIgnoredDuringExecution": [
                                    {
                                        "labelSelector": {"matchLabels": {"app": "web"}},
                                        "topologyKey": "kubernetes.io/hostname",
                                    }
                                ]
                            }
                        },
                        "containers": [
                            {
                                "name": "web",
                                "image": "docker.io/library/busybox:test",
                                "imagePullPolicy": "IfNotPresent",
                                "command": ["sh", "-c", "hostname > /www/index.html && exec httpd -f -p 8080 -h /www"],
                                "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}},
                            }
                        ],
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {
                "type": "NodePort",
                "selector": {"app": "web"},
                "ports": [{"port": 80, "targetPort": 8080, "nodePort": NODE_PORT}],
            },
        },
    ],
}


def pods_of_web() -> dict[str, str]:
    """Return web's ready pods with their nodes."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in objects("pods")
        if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        and "deletionTimestamp" not in pod["metadata"]
    }


def answers(fetch: Callable[[], str], names: set[str]) -> bool:
    """Ask until every pod has answered; each answer has to be one of the names."""
    seen: set[str] = set()
    for _ in range(30):
        message = fetch().strip()
        if message:
            assert message in names
            seen.add(message)
        if seen == names:
            return True
    return False


def everybody_answers() -> None:
    """ClusterIP from inside every machine, node ports of every machine from the host: each pod answers each way."""
    names = set(pods_of_web())
    address = json.loads(kubectl("get", "service", "web", "-o", "json"))["spec"]["clusterIP"]
    for machine in NODES:
        eventually(
            f"both pods answer {address} in {machine}",
            lambda m=machine: answers(
                lambda: inside(m, f"curl -sS --max-time 10 http://{address}", check=False), names
            ),
        )
    for node in ready_nodes().values():
        url = f"http://{node}:{NODE_PORT}"
        eventually(
            f"both pods answer {url} on the host",
            lambda u=url: answers(lambda: run("curl", "-sS", "--max-time", "10", u, check=False), names),
        )


def active(machine: str) -> bool:
    message = inside(machine, f"systemctl is-active {' '.join(UNITS[machine])}", check=False).split()
    return message == ["active"] * len(UNITS[machine])


def test_every_machine_becomes_a_ready_node_with_an_address_of_its_own(machines: None) -> None:
    eventually("both nodes are Ready", lambda: set(ready_nodes()) == set(NODES))
    assert ready_nodes() == {name: f"{NETWORK}.{10 + index}" for index, name in enumerate(NODES)}


def test_every_role_is_a_unit_and_the_control_plane_is_not_root(machines: None) -> None:
    for machine in NODES:
        eventually(f"{machine}'s units are active", lambda m=machine: active(m))
        for unit in UNITS[machine]:
            assert inside(machine, f"systemctl is-enabled {unit}").strip() == "enabled"
    pid = inside("control-plane", "systemctl show --property=MainPID --value wherry-control").strip()
    assert inside("control-plane", f"ps -o user= -p {pid}").strip() == "wherry"
    keys = inside("control-plane", "find /var/lib/wherry/pki -name '*.key' -printf '%u %m\\n'").splitlines()
    assert keys and set(keys) == {"wherry 600"}


def test_the_kernel_has_what_a_node_needs(machines: None) -> None:
    for machine in NODES:
        loaded = {line.split()[0] for line in inside(machine, "cat /proc/modules").splitlines()}
        assert {"overlay", "br_netfilter", "nf_conntrack", "ip_vs"} <= loaded
        assert inside(machine, "cat /proc/sys/net/ipv4/ip_forward").strip() == "1"
        assert inside(machine, "stat -fc %T /sys/fs/cgroup").strip() == "cgroup2fs"


def test_a_deployment_runs_on_both_and_every_address_of_its_service_answers(machines: None, tmp_path: Path) -> None:
    manifest = tmp_path / "web.json"
    manifest.write_text(json.dumps(WEB))
    kubectl("apply", "--validate=false", "-f", str(manifest))
    eventually("a pod is ready on each machine", lambda: set(pods_of_web().values()) == set(NODES))
    everybody_answers()


def test_a_pods_slice_has_the_pods_limits(machines: None) -> None:
    for machine in NODES:
        found = inside(machine, "sh -c 'cat /sys/fs/cgroup/kubepods.slice/kubepods-pod*.slice/memory.max'").split()
        assert found == [str(64 << 20)]


def test_stopping_the_agent_and_the_runtime_leaves_containers_running(machines: None) -> None:
    before = inside("worker-1", "pgrep httpd").split()
    assert before
    inside("worker-1", "systemctl stop wherry-agent wherry-containerd")
    assert inside("worker-1", "pgrep httpd").split() == before
    inside("worker-1", "systemctl start wherry-containerd wherry-agent")
    eventually("the units are active again", lambda: active("worker-1"))
    assert inside("worker-1", "pgrep httpd").split() == before


def test_a_role_that_hangs_is_ended_and_started_again(machines: None) -> None:
    shown = "systemctl show --property=NRestarts --value wherry-control"
    before = int(inside("control-plane", shown))
    inside("control-plane", "systemctl kill --kill-whom=main --signal=STOP wherry-control")
    eventually("systemd has started it again", lambda: int(inside("control-plane", shown)) > before)
    log = inside("control-plane", "journalctl --unit wherry-control --boot --output=cat --no-pager")
    assert "Watchdog timeout" in log
    eventually("the API answers again", lambda: "ok" in kubectl("get", "--raw", "/readyz", check=False))


def test_a_reboot_of_all_machines_brings_the_same_cluster_back(machines: None) -> None:
    def identity() -> str:
        return kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}", check=False)

    before, pods = identity(), set(pods_of_web())
    boots = {m: inside(m, "cat /proc/sys/kernel/random/boot_id") for m in NODES}
    vagrant("reload")
    assert all(inside(m, "cat /proc/sys/kernel/random/boot_id") != boots[m] for m in NODES)
    for machine in NODES:
        eventually(f"{machine}'s units are active", lambda m=machine: active(m))
    eventually("both nodes are Ready", lambda: set(ready_nodes()) == set(NODES))
    assert identity() == before
    eventually("the same pods are ready again", lambda: set(pods_of_web()) == pods)
    everybody_answers()


def test_leaving_and_destroying_leaves_nothing(machines: None) -> None:
    inside("worker-1", "wherry reset --yes", seconds=600)
    assert (
        inside("worker-1", "sh -c 'ls -d /etc/wherry /var/lib/wherry /etc/systemd/system/wherry*'", check=False) == ""
    )
    vagrant("destroy", "--force")
    assert PREFIX not in run("virsh", "-c", "qemu:///system", "list", "--all", "--name")
    assert f"{PREFIX}nodes" not in run("virsh", "-c", "qemu:///system", "net-list", "--all", "--name")
    assert not (FOLDER / "kubeconfig").exists()
