"""Finds why a node is not Ready, or takes no pods."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

from kube import object_conditions
from kube.api import coordination_v1, core_v1, policy_v1
from kube.ip_addresses import reached
from kube.object_names import name_of, namespace_of
from kube.selectors import from_label_selector
from wherry.why import commands
from wherry.why.causes import certificate_requests, certificates
from wherry.why.causes.deletion import finalizers
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.owners import controller_of
from wherry.why.times import ago, duration, parsed

LEASES = "kube-node-lease"
CONTROLLERS_LEASE = "kube-controller-manager"
CLOCK_TOLERANCE = timedelta(seconds=60)
"""A node renews its lease every 10 s: a Ready node whose lease is this old or in the future has another time."""
_PRESSURES = {
    "MemoryPressure": "it has too little memory left, and evicts pods",
    "DiskPressure": "its disk is nearly full: it removes images and evicts pods",
    "PIDPressure": "it has too few process numbers left, and evicts pods",
}


async def causes(diagnosis: Diagnosis, node: core_v1.Node) -> Sequence[Cause]:
    """Return why a node is not Ready, or takes no pods, or is not drained."""
    if blockers := finalizers(node, diagnosis.reader.now):
        return blockers
    return (
        await not_ready(diagnosis, node)
        or _pressure(node)
        or await _clock(diagnosis, node)
        or await _drain(diagnosis, node)
        or _cordoned(node)
        or await certificate_requests.of_serving(diagnosis, node)
    )


def condition(node: core_v1.Node, type_: str) -> core_v1.NodeCondition | None:
    """Return a node's condition."""
    return object_conditions.find(node.status.conditions, type_)


async def not_ready(diagnosis: Diagnosis, node: core_v1.Node) -> Sequence[Cause]:
    """Return why a node is not Ready."""
    ready, about, name = condition(node, "Ready"), reference(node), name_of(node)
    if ready is not None and ready.status == "True":
        return ()
    if found := await certificate_requests.of_client(diagnosis, name):
        return found
    if found := await certificates.of_kubelet(diagnosis, node, _look(node)):
        return found
    if ready is None:
        return [Cause(f"node {name} has never reported its state", _look(node), about)]
    if ready.status == "Unknown":
        lease = await diagnosis.reader.get(coordination_v1.Lease, name, LEASES)
        renewed = parsed(lease.spec.renew_time) if lease is not None and lease.spec is not None else None
        last = ago(renewed or parsed(ready.last_heartbeat_time), diagnosis.reader.now)
        why = "the machine is off, the network between them is cut, or the kubelet has ended"
        text = f"node {name} does not answer: its kubelet reported last {last} ({why})"
        return [Cause(text, _look(node), about)]
    return [Cause(f"node {name} is not Ready: {ready.message or ready.reason or ''}", _look(node), about)]


def _look(node: core_v1.Node) -> str:
    """Return the command that shows what the node's kubelet does."""
    words = ("wherry", "status") if _is_wherry(node) else ("systemctl", "status", "kubelet")
    return commands.on_machine(_address(node), *words)


def _address(node: core_v1.Node) -> str:
    """Return the first InternalIP that is an IP address, "ADDRESS" to be filled in if there is none.

    A node reports its addresses itself: another text could have an administrator log in to somebody else's machine.
    """
    for each in node.status.addresses:
        if each.type == "InternalIP":
            with contextlib.suppress(ValueError):
                return str(reached(each.address))
    return "ADDRESS"


def _is_wherry(node: core_v1.Node) -> bool:
    return "wherry" in (node.status.node_info.kubelet_version if node.status.node_info is not None else "")


def _pressure(node: core_v1.Node) -> Sequence[Cause]:
    for type_, text in _PRESSURES.items():
        found = condition(node, type_)
        if found is not None and found.status == "True":
            return [Cause(f"node {name_of(node)} has {type_}: {text}", _look(node), reference(node))]
    return ()


async def _clock(diagnosis: Diagnosis, node: core_v1.Node) -> Sequence[Cause]:
    lease = await diagnosis.reader.get(coordination_v1.Lease, name_of(node), LEASES)
    renewed = parsed(lease.spec.renew_time) if lease is not None and lease.spec is not None else None
    if renewed is None or abs(renewed - diagnosis.reader.now) < CLOCK_TOLERANCE:
        return ()
    difference = renewed - diagnosis.reader.now
    own = await _own_difference(diagnosis)
    if own is not None and abs(own) >= CLOCK_TOLERANCE:
        how = (
            f"{duration(abs(own).total_seconds())} {'behind' if own > timedelta() else 'ahead of'} the control plane's"
        )
        text = f"the clock of this machine, where you run this command, is {how}: what it knows of times is wrong"
        return [Cause(text, "sudo timedatectl set-ntp true", reference(node))]
    how = f"{duration(abs(difference).total_seconds())} {'ahead of' if difference > timedelta() else 'behind'}"
    text = f"the clock of node {name_of(node)} is {how} this machine's: certificates, tokens and leases fail"
    return [Cause(text, commands.on_machine(_address(node), "timedatectl", "set-ntp", "true"), reference(node))]


async def _own_difference(diagnosis: Diagnosis) -> timedelta | None:
    """Return how far the control plane's clock is ahead of this machine's, by the lease that its controllers renew."""
    lease = await diagnosis.reader.get(coordination_v1.Lease, CONTROLLERS_LEASE, "kube-system")
    renewed = parsed(lease.spec.renew_time) if lease is not None and lease.spec is not None else None
    return renewed - diagnosis.reader.now if renewed is not None else None


async def _drain(diagnosis: Diagnosis, node: core_v1.Node) -> Sequence[Cause]:
    """Return the disruption budget that keeps a pod on a cordoned node, if nobody may evict that pod."""
    if not node.spec.unschedulable:
        return ()
    pods = await diagnosis.reader.all(core_v1.Pod, field_selector=f"spec.nodeName={name_of(node)}")
    for pod in pods:
        owner = controller_of(pod)
        if pod.status.phase in ("Succeeded", "Failed") or (owner is not None and owner.kind == "DaemonSet"):
            continue
        for budget in await diagnosis.reader.all(policy_v1.PodDisruptionBudget, namespace_of(pod)):
            if _selects(budget, pod) and (found := await diagnosis.causes(budget)):
                text = f"node {name_of(node)} cannot be drained of {reference(pod)} in {namespace_of(pod)}: {found[0].text}"
                return [Cause(text, found[0].fix, reference(budget))]
    return ()


def _selects(budget: policy_v1.PodDisruptionBudget, pod: core_v1.Pod) -> bool:
    selector = budget.spec.selector if budget.spec is not None else None
    return from_label_selector(selector).matches(pod.metadata.labels)


def _cordoned(node: core_v1.Node) -> Sequence[Cause]:
    if not node.spec.unschedulable:
        return ()
    name = name_of(node)
    text = f"node {name} is cordoned: no new pods come to it"
    return [Cause(text, commands.words("kubectl", "uncordon", name), reference(node))]
