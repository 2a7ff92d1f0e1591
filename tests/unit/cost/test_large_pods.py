"""Cost of the largest pod in the agent is proportional to it, and does not affect other pods.

The event loop does it, for one pod after the other. Steps are lines of Python and comparisons of texts, as with large objects.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import threads
from agent.config import AgentConfig
from agent.eviction import local_storage, ranking
from agent.interfaces import PodView
from agent.lifecycle import Situation, plan
from agent.node.state import NodeState
from agent.pods import admission
from agent.pods.pod_requests import PodRequests
from agent.pods.references import references_of
from agent.podspec import dns, environment, hosts
from agent.podspec.sandbox import sandbox_config
from agent.runtime_records import PodRuntime
from agent.status.container import StatusInputs
from agent.status.patch import difference
from agent.status.pod import NodeFacts, pod_status
from agent.volumes.payload import Sources, volume_payload
from kube.api import core_v1
from kube.quantity import Quantity
from tests.unit.agent.pods import pod, record, sandbox
from tests.unit.cost.test_large_objects import COUNTS, STEEPEST, Steps, Text

ALLOCATABLE: dict[str, Quantity] = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi"}
NODE = NodeState(
    allocatable=ALLOCATABLE, labels={"kubernetes.io/os": "linux"}, taints=[core_v1.Taint(key="t", effect="NoExecute")]
)
CONFIG = AgentConfig(node_name="n")


class Objects:
    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        return core_v1.ConfigMap(data={"key": "value"})

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        return core_v1.Secret(data={"key": "eA=="})


def sized(number: int) -> dict[str, Any]:
    return {
        "name": f"c{number}",
        "resources": {"requests": {"cpu": "1m"}, "limits": {"ephemeral-storage": "1Gi"}},
    }


def own(number: int) -> dict[str, Any]:
    """Return a container with a resource that no other one asks for."""
    amount = {f"example.org/r{number}": "1"}
    return {"name": f"c{number}", "resources": {"requests": dict(amount), "limits": dict(amount)}}


def numbered(count: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(number) for number in range(count)]


def named(number: int) -> str:
    return Text(f"name-{number}")


def of_main(**fields: Any) -> core_v1.Pod:
    return pod({"name": "main", **fields})


def item(number: int) -> dict[str, str]:
    return {"key": "key", "path": named(number)}


def told(number: int) -> dict[str, Any]:
    return {
        "name": f"c{number}",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 1,
        "containerID": "c://1",
    }


LARGE: dict[str, Callable[[int], core_v1.Pod]] = {
    "containers": lambda n: pod(*numbered(n, sized)),
    "init containers": lambda n: pod(init=numbered(n, sized)),
    "sidecars": lambda n: pod(init=numbered(n, lambda i: {**sized(i), "restartPolicy": "Always"})),
    "containers of own resources": lambda n: pod(*numbered(n, own)),
    "sidecars of own resources": lambda n: pod(init=numbered(n, lambda i: {**own(i), "restartPolicy": "Always"})),
    "init containers behind sidecars of own resources": lambda n: pod(
        init=[*numbered(n, lambda i: {**own(i), "restartPolicy": "Always"}), *numbered(2 * n, own)[n:]]
    ),
    "ephemeral containers": lambda n: pod(ephemeralContainers=numbered(n, lambda i: {"name": f"c{i}", "image": "i"})),
    "ports": lambda n: of_main(
        ports=numbered(n, lambda i: {"containerPort": i + 1, "hostPort": i + 1, "name": named(i)})
    ),
    "env": lambda n: of_main(env=numbered(n, lambda i: {"name": named(i), "value": "$(name-0)"})),
    "env of keys": lambda n: of_main(
        env=numbered(n, lambda i: {"name": named(i), "valueFrom": {"secretKeyRef": {"name": named(i), "key": "key"}}})
    ),
    "envFrom": lambda n: of_main(
        envFrom=numbered(n, lambda i: {"prefix": f"p{i}", "configMapRef": {"name": named(i)}})
    ),
    "volume mounts": lambda n: of_main(volumeMounts=numbered(n, lambda i: {"name": "v", "mountPath": f"/{i}"})),
    "volumes": lambda n: pod(volumes=numbered(n, lambda i: {"name": named(i), "emptyDir": {}})),
    "secret volumes": lambda n: pod(
        volumes=numbered(n, lambda i: {"name": named(i), "secret": {"secretName": named(i)}})
    ),
    "items": lambda n: pod(volumes=[{"name": "v", "configMap": {"name": "m", "items": numbered(n, item)}}]),
    "projections": lambda n: pod(
        volumes=[
            {
                "name": "v",
                "projected": {"sources": numbered(n, lambda i: {"secret": {"name": named(i), "items": [item(i)]}})},
            }
        ]
    ),
    "downward items": lambda n: pod(
        volumes=[
            {
                "name": "v",
                "downwardAPI": {
                    "items": numbered(n, lambda i: {"path": named(i), "fieldRef": {"fieldPath": "metadata.name"}})
                },
            }
        ]
    ),
    "host aliases": lambda n: pod(hostAliases=numbered(n, lambda i: {"ip": "10.0.0.1", "hostnames": [named(i)]})),
    "tolerations": lambda n: pod(tolerations=numbered(n, lambda i: {"key": named(i), "operator": "Exists"})),
    "sysctls": lambda n: pod(securityContext={"sysctls": numbered(n, lambda i: {"name": "net.x", "value": named(i)})}),
    "pull secrets": lambda n: pod(imagePullSecrets=numbered(n, lambda i: {"name": named(i)})),
    "readiness gates": lambda n: pod(readinessGates=numbered(n, lambda i: {"conditionType": named(i)})),
    "node selector": lambda n: pod(nodeSelector={named(i): "x" for i in range(n)}),
    "labels": lambda n: pod(metadata={"labels": {named(i): "x" for i in range(n)}}),
    "annotations": lambda n: pod(metadata={"annotations": {named(i): "x" for i in range(n)}}),
    "requests": lambda n: of_main(resources={"requests": {f"example.org/r{i}": "1" for i in range(n)}}),
    "conditions": lambda n: pod(status={"conditions": numbered(n, lambda i: {"type": named(i), "status": "True"})}),
    "gates and conditions": lambda n: pod(
        readinessGates=numbered(n, lambda i: {"conditionType": named(i)}),
        status={"conditions": numbered(n, lambda i: {"type": named(i), "status": "True"})},
    ),
    "addresses": lambda n: pod(status={"podIPs": numbered(n, lambda i: {"ip": named(i)})}),
    "statuses": lambda n: pod(
        *numbered(n, lambda i: {"name": f"c{i}"}), status={"containerStatuses": numbered(n, told)}
    ),
    "statuses of init containers": lambda n: pod(
        init=numbered(n, lambda i: {"name": f"c{i}"}), status={"initContainerStatuses": numbered(n, told)}
    ),
    "DNS options": lambda n: pod(dnsConfig={"options": numbered(n, lambda i: {"name": named(i)})}),
    "search domains": lambda n: pod(dnsConfig={"searches": numbered(n, named)}),
}
"""Pods by what there is much of in them."""


def ran(given: core_v1.Pod, state: str) -> PodRuntime:
    """Return a runtime that has an instance of each container."""
    containers = [*given.spec.containers, *given.spec.init_containers, *given.spec.ephemeral_containers]
    return PodRuntime((sandbox(),), tuple(record(container.name, state) for container in containers))


def follow(given: core_v1.Pod, runtime: PodRuntime) -> core_v1.PodStatus:
    """Decide what to do for a pod, and form its status."""
    plan(Situation(given, runtime, 1000.0))
    status = pod_status(given, runtime, StatusInputs(), NodeFacts(), 1000.0)
    return status


def work(given: core_v1.Pod, runtimes: list[PodRuntime]) -> None:
    """Do for a pod what the agent does from its admission to its eviction, but for the runtime's part and threads'."""
    references_of(given)
    threads.Owner.of(given)
    admission.admit(given, [PodRequests.of(pod())], NODE, CONFIG)
    admission.admit(
        pod({"name": "p", "ports": [{"containerPort": 1, "hostPort": 1}]}), [PodRequests.of(given)], NODE, CONFIG
    )
    resolver = dns.for_pod(given, dns.Resolver(), ["10.96.0.10"], "cluster.local")
    sandbox_config(
        given, 0, resolver=resolver, cluster_domain="c", cgroup_parent="", logs_root=Path("/logs"), cfs_quota=True
    )
    hosts.hosts_file(given, ["10.0.0.1"], "c")
    around = environment.EnvironmentSources(Objects(), {})
    environment.environment(given, given.spec.containers[0], around)
    sources = Sources(Objects())
    for volume in given.spec.volumes:
        if volume.empty_dir is None:
            volume_payload(given, volume, sources)
    for runtime in runtimes:
        follow(given, runtime)
    ranking.rank([ranking.usage_of(PodView(each, (), None), None, "memory") for each in (given, pod())])
    local_storage.limited(given)


def steps(make: Callable[[int], core_v1.Pod], count: int) -> int:
    given = make(count)
    runtimes = [PodRuntime(), *(ran(given, state) for state in ("running", "exited", "created"))]
    with Steps() as lines:
        work(given, runtimes)
    return lines.count


def bend(make: Callable[[int], core_v1.Pod]) -> float:
    steps(make, 2)  # what is made once and kept does not count
    few, more, many = (steps(make, count) for count in COUNTS)
    return (many - more - 2 * (more - few)) / (6 * COUNTS[0] ** 2) if few < more < many else 0.0


@pytest.mark.parametrize("field", LARGE)
def test_what_is_done_for_a_pod_is_linear_in_each_of_its_lists_and_maps(field: str) -> None:
    assert bend(LARGE[field]) < STEEPEST


@pytest.mark.parametrize("field", LARGE)
def test_what_is_done_for_other_pods_does_not_grow_with_a_large_one(field: str) -> None:
    def beside(large: core_v1.Pod) -> int:
        small = pod({**sized(0), "ports": [{"containerPort": 1, "hostPort": 1}]}, metadata={"uid": "small"})
        taken = [PodRequests.of(large)]
        with Steps() as lines:
            admission.admit(small, taken, NODE, CONFIG)
            follow(small, ran(small, "running"))
        return lines.count

    beside(LARGE[field](2))
    assert beside(LARGE[field](64)) == beside(LARGE[field](1))


def addressed(count: int, first: int) -> core_v1.PodStatus:
    """Return a status of so many conditions, addresses and containers, which differ from those of another `first`."""
    return core_v1.PodStatus(
        conditions=[core_v1.PodCondition(type=f"t{n}", status=str(first)) for n in range(count)],
        pod_ips=[core_v1.PodIP(ip=f"10.0.0.{n}") for n in range(first, first + count)],
        container_statuses=[
            core_v1.ContainerStatus(name=f"c{n}", image="i", image_id="", ready=False, restart_count=first)
            for n in range(count)
        ],
    )


def test_a_status_update_is_computed_in_linear_time() -> None:
    def told_in(count: int) -> int:
        before, after = addressed(count, 0), addressed(count, count // 2)
        with Steps() as lines:
            difference(before, after)
        return lines.count

    few, more, many = (told_in(count) for count in COUNTS)
    assert few < more < many and (many - more - 2 * (more - few)) / (6 * COUNTS[0] ** 2) < STEEPEST
