"""Pods and Services across machines: two on one link, the third behind a router, so both kinds of ways are taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.cluster import WEB_IMAGE, eventually
from tests.support.host import Host
from tests.support.kube import wait_pods
from tests.support.machines import Machine, Machines
from tests.support.pods import apply


@dataclass(frozen=True)
class Pod:
    name: str
    ip: str
    machine: Machine


@dataclass
class Site:
    """A web pod on each machine, behind the Services of the tests."""

    machines: Machines
    ns: str
    pods: list[Pod]

    @property
    def names(self) -> set[str]:
        return {pod.name for pod in self.pods}

    def fetch(self, pod: Pod, address: str) -> str:
        argv = ("exec", "-n", self.ns, pod.name, "--", "timeout", "3", "wget", "-q", "-O", "-", f"http://{address}")
        done = self.machines.kubectl(*argv, check=False)
        return done.stdout.split(" ")[0] or done.stderr

    def sources(self, pod: Pod) -> set[str]:
        """Return whom a pod saw asking for what it does not have."""
        lines = self.machines.kubectl("logs", "-n", self.ns, pod.name).stdout.splitlines()
        missed = [line for line in lines if line.endswith("response:404")]
        return {line.split("]")[0].partition("[")[2].removeprefix("::ffff:") for line in missed}

    def service(self, name: str, port: int, **spec: object) -> dict[str, object]:
        spec = {"selector": {"app": "web"}, "ports": [{"port": port, "targetPort": 80}], **spec}
        made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        apply(self.machines.first, self.ns, made)
        found: dict[str, object] = self.machines.get("service", name, "-n", self.ns)
        return found

    def balancer(self, name: str) -> list[str]:
        status = self.machines.get("service", name, "-n", self.ns)["status"]
        return [each["ip"] for each in status.get("loadBalancer", {}).get("ingress", ())]


@pytest.fixture
def site(three: Machines, ns3: str) -> Iterator[Site]:
    labels = {"app": "web"}
    container = {"name": "web", "image": WEB_IMAGE, "imagePullPolicy": "Never"}
    tolerations = [{"operator": "Exists", "effect": "NoSchedule"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "tolerations": tolerations}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"}, "spec": spec}
    apply(three.first, ns3, made)
    found = wait_pods(three.first, ns3, "app=web", len(three))
    pods = [Pod(p["metadata"]["name"], p["status"]["podIP"], three.by_node(p["spec"]["nodeName"])) for p in found]
    assert len({pod.machine.node for pod in pods}) == len(three)
    yield Site(three, ns3, pods)


def outside(host: Host, url: str) -> str:
    """GET from where no node is."""
    return host.run("curl", "-s", "--max-time", "3", f"http://{url}", outside=True, check=False).stdout.split(" ")[0]


def test_pods_services_and_dns_answer_on_every_machine(site: Site) -> None:
    three = site.machines
    for source in site.pods:
        for target in site.pods:

            def reached(source: Pod = source, target: Pod = target) -> bool:
                found = site.fetch(source, target.ip)
                assert found == target.name, found
                return True

            eventually(reached, f"{source.machine.node}'s pod reaches {target.machine.node}'s")
    for target in site.pods:
        # As itself: no address is translated between pods, be they on one machine or not.
        def all_seen(target: Pod = target) -> bool:
            for source in site.pods:
                if source.ip not in site.sources(target):
                    site.fetch(source, f"{target.ip}/missing")
            return site.sources(target) == {each.ip for each in site.pods}

        eventually(all_seen, "pods see pods")
    service = site.service("web", 80, type="NodePort")
    cluster_ip, node_port = service["spec"]["clusterIP"], service["spec"]["ports"][0]["nodePort"]  # type: ignore[index]
    for machine in three:

        def seen(machine: Machine = machine) -> bool:
            return {machine.http(cluster_ip).split(" ")[0] for _ in range(20)} == site.names

        eventually(seen, f"{machine.node} reaches every pod by the cluster IP")

        def at_port(machine: Machine = machine) -> bool:
            url = f"{machine.host.address}:{node_port}/"
            return {outside(machine.host, url) for _ in range(20)} == site.names

        eventually(at_port, f"{machine.node}'s node port leads to every pod")
    for pod in site.pods:
        name = f"web.{site.ns}.svc.cluster.local"
        argv = ("exec", "-n", site.ns, pod.name, "--", "nslookup", name)
        eventually(
            lambda a=argv: cluster_ip in three.kubectl(*a, check=False).stdout,  # type: ignore[misc]
            f"DNS answers on {pod.machine.node}",
        )
        eventually(lambda p=pod: site.fetch(p, "web") in site.names, "a pod finds the Service by its name")  # type: ignore[misc]


def test_the_policies_local_keep_to_the_machine_and_the_clients_address(site: Site) -> None:
    three = site.machines
    # One pod alone, and only its machine serves.
    chosen = next(pod for pod in site.pods if pod.machine is not three.first)
    three.kubectl("label", "pod", chosen.name, "-n", site.ns, "only=this")
    policies = {"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local"}
    service = site.service("local", 8080, type="LoadBalancer", selector={"only": "this"}, **policies)
    spec: dict[str, object] = service["spec"]  # type: ignore[assignment]
    cluster_ip, check_port = spec["clusterIP"], spec["healthCheckNodePort"]
    address = chosen.machine.host.address
    eventually(lambda: site.balancer("local") == [address], "the machine with the pod is the balancer")
    eventually(lambda: outside(chosen.machine.host, f"{address}:8080/") == chosen.name, "it answers outside")

    def client_seen() -> bool:
        outside(chosen.machine.host, f"{address}:8080/missing")
        return site.sources(chosen) == {chosen.machine.host.gateway}

    eventually(client_seen, "the pod sees the client")
    for machine in three:
        here = machine is chosen.machine
        health = f"http://{machine.host.address}:{check_port}/healthz"

        def healthy(machine: Machine = machine, url: str = health, code: str = "200" if here else "503") -> bool:
            argv = ("curl", "-s", "--max-time", "3", "-o", "/dev/null", "-w", "%{http_code}", url)
            return machine.host.run(*argv, outside=True, check=False).stdout == code

        eventually(healthy, f"{machine.node} tells balancers about its endpoints")
        found = chosen.name if here else ""
        eventually(
            lambda m=machine, f=found: m.http(f"{cluster_ip}:8080", timeout=1).split(" ")[0] == f,  # type: ignore[misc]
            f"the cluster IP on {machine.node} leads to {found or 'nobody'}",
        )
        if not here:
            assert outside(machine.host, f"{machine.host.address}:8080/") == ""


def test_a_load_balancer_answers_at_every_machines_address(site: Site) -> None:
    three = site.machines
    site.service("front", 8081, type="LoadBalancer")
    every = sorted((machine.host.address for machine in three), key=lambda each: [int(n) for n in each.split(".")])
    eventually(lambda: site.balancer("front") == every, "all machines are the balancer")
    for machine in three:
        eventually(
            lambda m=machine: {outside(m.host, f"{m.host.address}:8081/") for _ in range(20)} == site.names,  # type: ignore[misc]
            f"{machine.node}'s address leads to every pod",
        )
    ranges = json.dumps({"spec": {"loadBalancerSourceRanges": ["203.0.113.0/24"]}})
    three.kubectl("patch", "service", "front", "-n", site.ns, "-p", ranges)
    last = three[len(three) - 1]
    eventually(lambda: outside(last.host, f"{last.host.address}:8081/") == "", "others are kept out")
