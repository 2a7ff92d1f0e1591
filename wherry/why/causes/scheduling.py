"""Finds why a pod has no node: the obstacles of each node, and the change that removes those of the nearest one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kube import node_affinity, object_conditions, taints
from kube.api import core_v1
from kube.object_names import name_of
from kube.pod_requests import Amounts, amounts
from wherry.why import commands
from wherry.why.causes.obstacles import Obstacle, resource_obstacles
from wherry.why.causes.pod_claims import claims
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference
from wherry.why.owners import template_owner

DEFAULT_SCHEDULER = "default-scheduler"
STOPPING_EFFECTS = (taints.NO_SCHEDULE, taints.NO_EXECUTE)


def condition(pod: core_v1.Pod, type_: str) -> core_v1.PodCondition | None:
    """Return a pod's condition."""
    return object_conditions.find(pod.status.conditions, type_)


async def unscheduled(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    """Return why a pod without a node has none."""
    about = reference(pod)
    if gates := [gate.name for gate in pod.spec.scheduling_gates]:
        text = f"its scheduling gates ({', '.join(gates)}) have not been removed: the program that sets them has to"
        return [Cause(text, commands.patch(about, {"spec": {"schedulingGates": None}}, merge=True), about)]
    if found := await claims(diagnosis, pod):
        return found
    scheduled = condition(pod, "PodScheduled")
    scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if scheduled is None:
        return [_not_tried(pod, scheduler)]
    nodes = await diagnosis.reader.all(core_v1.Node)
    if not nodes and "no nodes" in (scheduled.message or ""):
        return [Cause("the cluster has no node", "wherry token create --print-join-command", about)]
    if pod.status.nominated_node_name:
        node = pod.status.nominated_node_name
        return [Cause(f"pods of a lower priority are being evicted from node {node} to make room for it", waits=True)]
    change = await template_owner(diagnosis.reader, pod)
    obstacles = await _obstacles(diagnosis, pod, nodes, change)
    if obstacles:
        return [_nearest(pod, obstacles)]
    return [_from_condition(pod, scheduled, change)]


def _not_tried(pod: core_v1.Pod, scheduler: str) -> Cause:
    about = reference(pod)
    if scheduler == DEFAULT_SCHEDULER:
        text = "the scheduler has not looked at it yet: if that lasts, no scheduler is running"
        return Cause(text, "kubectl get lease kube-scheduler -n kube-system -o yaml", about)
    text = f"no scheduler named {scheduler} has looked at it (spec.schedulerName)"
    return Cause(text, "kubectl get pods -A", about)


async def _obstacles(
    diagnosis: Diagnosis, pod: core_v1.Pod, nodes: Iterable[core_v1.Node], change: Reference
) -> dict[str, list[Obstacle]]:
    """Return what each node lacks, for nodes that lack something; empty if one of them has it all."""
    pods = await diagnosis.reader.all(core_v1.Pod)
    used: dict[str, list[core_v1.Pod]] = {}
    for other in pods:
        if other.spec.node_name and other.status.phase not in ("Succeeded", "Failed"):
            used.setdefault(other.spec.node_name, []).append(other)
    largest = _largest(nodes)
    found = {}
    for node in nodes:
        name = name_of(node)
        here = [
            *_constraints(pod, node, change),
            *resource_obstacles(pod, node, used.get(name, []), largest, change),
        ]
        if not here:
            return {}
        found[name] = here
    return found


def _largest(nodes: Iterable[core_v1.Node]) -> Amounts:
    largest: Amounts = {}
    for node in nodes:
        for name, amount in amounts(node.status.allocatable).items():
            largest[name] = max(amount, largest.get(name, 0))
    return largest


def _constraints(pod: core_v1.Pod, node: core_v1.Node, change: Reference) -> Iterable[Obstacle]:
    name = name_of(node)
    tolerations = pod.spec.tolerations
    if node.spec.unschedulable:
        yield Obstacle(
            "cordoned", f"node {name} is cordoned (spec.unschedulable)", commands.words("kubectl", "uncordon", name)
        )
    for taint in node.spec.taints:
        if taint.effect in STOPPING_EFFECTS and not taints.tolerated(taint, tolerations):
            if taint.key == "node.kubernetes.io/unschedulable":
                continue
            if taint.key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
                yield Obstacle(
                    "not ready", f"node {name} is not Ready", commands.words("wherry", "why", f"node/{name}")
                )
            else:
                yield _tainted(pod, name, taint, change)
    if not node_affinity.required_matches(pod.spec, node):
        yield _selection(pod, node, change)


def _tainted(pod: core_v1.Pod, node: str, taint: core_v1.Taint, change: Reference) -> Obstacle:
    """Return the obstacle of a taint. The command changes the pod: without its taint a node is open to all pods."""
    value = f"={taint.value}" if taint.value else ""
    text = f"it does not tolerate the taint {taint.key}{value}:{taint.effect} of node {node}"
    if taint.key.startswith("node.kubernetes.io/"):  # the control plane's own, of the node's state
        return Obstacle(f"taint {taint.key}", text, commands.words("wherry", "why", f"node/{node}"))
    wanted = {"key": taint.key, "operator": "Equal", "value": taint.value or "", "effect": taint.effect}
    own = [each for each in pod.spec.tolerations if not (each.key or "").startswith("node.kubernetes.io/")]
    spec = {"tolerations": [*(msgspec.to_builtins(each) for each in own), wanted]}
    fix = (
        commands.patch(change, commands.in_template(change, spec))
        if commands.changes(change)
        else commands.edit(change)
    )
    return Obstacle(f"taint {taint.key}", text, fix)


def _selection(pod: core_v1.Pod, node: core_v1.Node, change: Reference) -> Obstacle:
    """Return the obstacle of a node whose labels do not match. The command changes the pod: labels of nodes isolate pods."""
    name = name_of(node)
    missing = [f"{k}={v}" for k, v in pod.spec.node_selector.items() if node.metadata.labels.get(k) != v]
    if missing:
        text = f"node {name} has no label {' and none '.join(missing)}, which its nodeSelector asks for"
        return Obstacle("node selector", text, commands.edit(change))
    text = f"node {name} does not match its required node affinity"
    return Obstacle("node affinity", text, commands.edit(change))


def _nearest(pod: core_v1.Pod, obstacles: dict[str, list[Obstacle]]) -> Cause:
    """Return the cause of the node that lacks the least."""
    names = sorted(
        obstacles, key=lambda name: (len(obstacles[name]), sum(each.weight for each in obstacles[name]), name)
    )
    first = obstacles[names[0]]
    text = " and ".join(each.text for each in first)
    if len(names) > 1:
        alike = sum({each.kind for each in obstacles[name]} == {each.kind for each in first} for name in names)
        text += (
            f" (alike on all {len(names)} nodes)"
            if alike == len(names)
            else f" (of {len(names)} nodes the nearest one)"
        )
    return Cause(text, first[0].fix, reference(pod))


def _from_condition(pod: core_v1.Pod, scheduled: core_v1.PodCondition, change: Reference) -> Cause:
    message = scheduled.message or "the scheduler found no node"
    if "didn't match pod anti-affinity" in message:
        text = f"other pods are on every node that it may use, and its anti-affinity refuses to join them: {message}"
        return Cause(text, commands.edit(change), reference(pod))
    if "topology spread" in message:
        text = f"its topology spread constraints leave no node: {message}"
        return Cause(text, commands.edit(change), reference(pod))
    return Cause(
        f"the scheduler found no node: {message}", commands.kubectl("describe", reference(pod)), reference(pod)
    )
