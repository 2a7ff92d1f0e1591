"""Short ways to make nodes, pods and a cluster to place them on."""

from __future__ import annotations

import asyncio
from typing import Any

from control.scheduler import preemption
from control.scheduler.algorithm import Algorithm
from control.scheduler.budgets import Budgets
from control.scheduler.cluster import Cluster
from control.scheduler.configuration import ProfileConfig
from control.scheduler.framework import Diagnosis, Unschedulable, fit_message
from control.scheduler.podinfo import PodInfo
from control.scheduler.profile import PluginContext, build
from control.scheduler.unfinished import Unfinished
from control.scheduler.victims import Victims
from kube.api import core_v1, meta_v1

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(
    name: str, cpu: str = "4", memory: str = "8Gi", pods: str = "110", zone: str = "", **more: Any
) -> core_v1.Node:
    labels = {HOST: name, **({ZONE: zone} if zone else {}), **more.pop("labels", {})}
    resources = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("extended", {})}
    images = [core_v1.ContainerImage(names=[n], size_bytes=s) for n, s in more.pop("images", {}).items()]
    return core_v1.Node(
        metadata=meta_v1.ObjectMeta(name=name, labels=labels),
        spec=core_v1.NodeSpec(**more),
        status=core_v1.NodeStatus(allocatable=resources, images=images),
    )


def pod(
    name: str,
    cpu: str = "",
    memory: str = "",
    *,
    labels: dict[str, str] | None = None,
    namespace: str = "default",
    ports: tuple[int, ...] = (),
    image: str = "busybox",
    requests: dict[str, str] | None = None,
    **spec: Any,
) -> core_v1.Pod:
    asked: dict[str, Any] = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v} | (requests or {})
    container = core_v1.Container(
        name="c",
        image=image,
        resources=core_v1.ResourceRequirements(requests=asked),
        ports=[core_v1.ContainerPort(container_port=p, host_port=p) for p in ports],
    )
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}", labels=labels or {}),
        spec=core_v1.PodSpec(containers=[container], **spec),
    )


def near(labels: dict[str, str], key: str = ZONE) -> core_v1.PodAffinityTerm:
    return core_v1.PodAffinityTerm(label_selector=meta_v1.LabelSelector(match_labels=labels), topology_key=key)


def affinity(
    required: list[core_v1.PodAffinityTerm] = (), preferred: list[core_v1.PodAffinityTerm] = (), anti: bool = False
):
    weighted = [core_v1.WeightedPodAffinityTerm(weight=100, pod_affinity_term=term) for term in preferred]
    kind = core_v1.PodAntiAffinity if anti else core_v1.PodAffinity
    found = kind(
        required_during_scheduling_ignored_during_execution=list(required),
        preferred_during_scheduling_ignored_during_execution=weighted,
    )
    return core_v1.Affinity(**{"pod_anti_affinity" if anti else "pod_affinity": found})


def spread(key: str, skew: int = 1, labels: dict[str, str] | None = None, when: str = "DoNotSchedule", **more: Any):
    selector = meta_v1.LabelSelector(match_labels=labels or {"app": "a"})
    return core_v1.TopologySpreadConstraint(
        topology_key=key, max_skew=skew, when_unsatisfiable=when, label_selector=selector, **more
    )


class World:
    """A cluster with the default plugins, or those of another profile."""

    def __init__(
        self,
        *nodes: core_v1.Node,
        kin=lambda pod: None,
        namespaces: dict[str, dict[str, str]] | None = None,
        profile: ProfileConfig | None = None,
        **more: Any,
    ):
        known = namespaces or {"default": {}}
        self.cluster = Cluster(lambda name: known.get(name, {}))
        self.profile = build(profile or ProfileConfig(), PluginContext(self.cluster, kin, **more))
        self.algorithm = Algorithm(self.profile, self.cluster)
        for found in nodes:
            self.cluster.set_node(found)

    def place(self, incoming: core_v1.Pod) -> str:
        """Choose a node and put the pod there."""
        info = PodInfo(incoming)
        chosen = self.algorithm.place(info)
        self.cluster.assume(info, chosen)
        return chosen

    def put(self, incoming: core_v1.Pod, where: str) -> None:
        incoming.spec.node_name = where
        self.cluster.set_pod(incoming)

    def refusal(self, incoming: core_v1.Pod) -> str:
        try:
            chosen = self.algorithm.place(PodInfo(incoming))
        except Unschedulable as found:
            return fit_message(found.diagnosis)
        raise AssertionError(f"placed on {chosen}")

    def victims(self, info: PodInfo, diagnosis: Diagnosis, budgets: Budgets) -> Victims | None:
        """Search victims, in as many slices as it takes."""
        while True:
            try:
                return preemption.find(info, diagnosis, self.algorithm, self.cluster, budgets)
            except Unfinished as more:
                asyncio.run(more.go_on())  # type: ignore[arg-type]
