"""Namespaces that containers share: the pod's, each other's, the node's."""

from __future__ import annotations

import os
from typing import Any

from tests.support.containerd import Containerd
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest

TRAP = "trap 'exit 0' TERM; sleep 1000 & wait"


def shell(name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": BUSYBOX_IMAGE, "command": ["sh", "-c", TRAP], **more}


async def namespace(node: NodeUnderTest, name: str, kind: str, container: str = "") -> str:
    return (await node.execute(await node.get(name), "readlink", f"/proc/self/ns/{kind}", container=container)).strip()


async def test_containers_of_a_pod_share_network_and_ipc_and_not_their_processes(node: NodeUnderTest) -> None:
    await node.create("plain", {"containers": [shell("one"), shell("two")]})
    await node.ready("plain")
    for kind in ("net", "ipc", "uts"):
        assert await namespace(node, "plain", kind, "one") == await namespace(node, "plain", kind, "two")
    assert await namespace(node, "plain", "pid", "one") != await namespace(node, "plain", "pid", "two")


async def test_a_shared_process_namespace_shows_the_others_processes(node: NodeUnderTest) -> None:
    await node.create("shared", {"shareProcessNamespace": True, "containers": [shell("one"), shell("two")]})
    pod = await node.ready("shared")
    assert await namespace(node, "shared", "pid", "one") == await namespace(node, "shared", "pid", "two")
    processes = await node.execute(pod, "sh", "-c", "ps -o args | grep -c '[s]leep 1000'", container="one")
    assert int(processes) >= 2


async def test_a_pod_on_the_hosts_namespaces_has_the_nodes(node: NodeUnderTest, containerd: Containerd) -> None:
    spec = {"hostNetwork": True, "hostPID": True, "hostIPC": True, "containers": [shell()]}
    await node.create("host", spec)
    pod = await node.ready("host")
    assert pod.status.pod_ip == pod.status.host_ip == "192.0.2.10"
    for kind in ("net", "pid", "ipc"):
        assert await namespace(node, "host", kind) == os.readlink(f"/proc/{containerd.pid}/ns/{kind}")
    hosts = await node.execute(pod, "head", "-1", "/etc/hosts")
    assert hosts == "# Kubernetes-managed hosts file (host network).\n"
    await node.delete("host")
    await node.gone("host")


async def test_a_privileged_container_may_do_what_another_may_not(node: NodeUnderTest) -> None:
    await node.create("mighty", {"containers": [shell("root", securityContext={"privileged": True}), shell("plain")]})
    pod = await node.ready("mighty")
    bounding = "grep CapBnd /proc/1/status"
    mighty = int((await node.execute(pod, "sh", "-c", bounding, container="root")).split()[1], 16)
    plain = int((await node.execute(pod, "sh", "-c", bounding, container="plain")).split()[1], 16)
    sys_admin = 1 << 21
    assert mighty & sys_admin and not plain & sys_admin


async def test_safe_sysctls_and_devices_of_memory_reach_the_pod(node: NodeUnderTest) -> None:
    spec = {
        "securityContext": {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]},
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "containers": [shell(volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}])],
    }
    await node.create("tuned", spec)
    pod = await node.ready("tuned")
    text = await node.execute(pod, "sh", "-c", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start; echo x > /dev/shm/y")
    assert text == "80\n"
