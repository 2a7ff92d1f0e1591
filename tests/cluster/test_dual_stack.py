"""A dual-stack cluster of two machines on different links: pods and Services have addresses of both families."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.cluster import WEB_IMAGE, eventually
from tests.support.kube import wait_pods
from tests.support.machines import Machine, Machines, at_once, bare_machines, credentials
from tests.support.pods import apply

RANGES = ("--pod-cidr", "10.244.0.0/16,fd00:244::/56", "--service-cidr", "10.96.0.0/12,fd00:96::/112")


def second_address(machine: Machine) -> str:
    return f"fd99:{machine.host.link + 1}::{machine.node.removeprefix('node')}"


@pytest.fixture(scope="module")
def pair() -> Iterator[Machines]:
    with bare_machines(f"wherry-d{os.getpid()}", (0, 1)) as made:
        switch = made.first.host
        switch.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1", outside=True)
        for machine in made:
            gateway = f"fd99:{machine.host.link + 1}::fe"
            switch.run("ip", "address", "add", f"{gateway}/64", "dev", f"br{machine.host.link}", "nodad", outside=True)
            machine.host.run("ip", "address", "add", f"{second_address(machine)}/64", "dev", "eth0", "nodad")
            machine.host.run("ip", "-6", "route", "add", "default", "via", gateway)
        both = {machine.node: f"{machine.host.address},{second_address(machine)}" for machine in made}
        printed = made.first.up(*RANGES, "--node-ip", both[made.first.node])
        token, ca_hash = credentials(printed)
        made[1].join(made.first, token, ca_hash, "--node-ip", both[made[1].node])
        at_once(Machine.load_usual, made.all)
        yield made


def test_both_families_reach_pods_on_the_other_machine(pair: Machines) -> None:
    for machine in pair:
        addresses = pair.get("node", machine.node)["status"]["addresses"]
        assert {a["address"] for a in addresses if a["type"] == "InternalIP"} == {
            machine.host.address,
            second_address(machine),
        }
        assert len(pair.get("node", machine.node)["spec"]["podCIDRs"]) == 2
    labels = {"app": "web"}
    container = {"name": "web", "image": WEB_IMAGE, "imagePullPolicy": "Never"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"}, "spec": spec}
    wanted = {"type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "selector": labels, "ports": [{"port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": wanted}
    eventually(
        lambda: pair.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, "the service account"
    )
    apply(pair.first, "default", daemons, service)
    pods = wait_pods(pair.first, "default", "app=web", 2)
    names = {pod["metadata"]["name"] for pod in pods}
    for pod in pods:
        ips = [each["ip"] for each in pod["status"]["podIPs"]]
        assert [":" in ip for ip in ips] == [False, True], ips
        for machine in pair:
            for ip in ips:
                url = f"[{ip}]" if ":" in ip else ip
                eventually(
                    lambda m=machine, u=url, n=pod["metadata"]["name"]: m.http(u).split(" ")[0] == n,  # type: ignore[misc]
                    f"{machine.node} reaches {ip}",
                )
    dns = pair.get("service", "kube-dns", "-n", "kube-system")["spec"]
    assert dns["clusterIPs"] == ["10.96.0.10", "fd00:96::a"] and dns["ipFamilyPolicy"] == "RequireDualStack"
    for pod in pods:
        name = pod["metadata"]["name"]
        resolvers = pair.kubectl("exec", name, "--", "cat", "/etc/resolv.conf").stdout
        for address in dns["clusterIPs"]:
            assert f"nameserver {address}\n" in resolvers
            requested = ("exec", name, "--", "nslookup", "kubernetes.default.svc.cluster.local", address)
            eventually(
                lambda a=requested: "10.96.0.1" in pair.kubectl(*a, check=False).stdout,  # type: ignore[misc]
                f"{name} is answered at {address}",
            )
    found = pair.get("service", "web")
    assert found["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    addresses = found["spec"]["clusterIPs"] + [second_address(machine) for machine in pair]
    for address in addresses:
        url = f"[{address}]" if ":" in address else address
        for machine in pair:

            def seen(machine: Machine = machine, url: str = url) -> bool:
                return {machine.http(url).split(" ")[0] for _ in range(10)} == names

            eventually(seen, f"{machine.node} reaches both pods at {address}")
    ingress = eventually(
        lambda: pair.get("service", "web")["status"]["loadBalancer"].get("ingress"), "the load balancer has addresses"
    )
    assert {each["ip"] for each in ingress} == {
        address for machine in pair for address in (machine.host.address, second_address(machine))
    }
