"""Admits or rejects a pod that was bound to this node: the last check, after the scheduler's (kubelet/lifecycle/predicate.go).

Two schedulers, or a user who writes nodeName, can put more on a node than it has. Such a pod fails with upstream's reason and
words, so that its controller creates another one elsewhere. A critical pod (static, or of system-critical priority) is not
rejected for want of resources: others are preempted for it (preemption.py). Pure.
"""

from __future__ import annotations

import platform
from collections.abc import Container, Iterable
from dataclasses import dataclass

from agent.cgroups import qos
from agent.config import AgentConfig
from agent.lifecycle import End, rejection
from agent.node.extended_resources import is_extended
from agent.node.state import NodeState
from agent.pods import allocation, preemption, resource_state
from agent.pods.pod_requests import PodRequests, ports_of
from agent.pods.preemption import Shortage
from agent.podspec.sysctls import forbidden_sysctl
from kube import host_ports, node_affinity
from kube.api import core_v1, meta_v1
from kube.quantity import milli, value
from kube.taints import first_untolerated, tolerated

_FIXED = ("cpu", "memory", "ephemeral-storage")
_OS_LABEL = "kubernetes.io/os"
_MEMORY_PRESSURE = core_v1.Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision on a pod: `rejected` is how it fails; `preempt` are the pods to preempt for it first."""

    rejected: End | None = None
    preempt: tuple[core_v1.Pod, ...] = ()
    wanting: str = ""
    """The resource, the first of several, for which others are preempted."""


def admit(
    pod: core_v1.Pod,
    others: Iterable[PodRequests],
    node: NodeState,
    config: AgentConfig,
    *,
    static: Container[str] = (),
) -> Admission:
    """Decide on a pod beside the others that are on the node.

    `static` are the UIDs of pods from this machine's manifests, as the agent knows them.
    """
    others = list(others)
    own = (pod.metadata.uid or "") in static
    critical = qos.is_critical(pod, static=own)
    refused = (
        _pressure(pod, node, critical=critical)
        or _sysctls(pod, config)
        or _os(pod)
        or _groups_policy(pod, node)
        or _size(pod)
    )
    if refused:
        return Admission(rejection(*refused))
    shortages = _too_many_pods(others, config) + _resources(pod, others, node)
    mismatch = _affinity(pod, node, config) or _ports(pod, others) or (None if own else _taints(pod, node))
    if not critical:
        reason = (f"OutOf{shortages[0].name}", str(shortages[0])) if shortages else mismatch
        refused = reason or _app_armor(pod, node) or _shutting_down(node)
        return Admission(rejection(*refused) if refused else None)
    refused = mismatch or _app_armor(pod, node) or _shutting_down(node)
    if refused:
        return Admission(rejection(*refused))
    try:
        victims = preemption.victims(pod, [other.pod for other in others], shortages, static=static)
        return Admission(preempt=tuple(victims), wanting=shortages[0].name if shortages else "")
    except preemption.NothingToPreempt as error:
        text = f"Unexpected error while attempting to recover from admission failure: preemption: {error}"
        return Admission(rejection("UnexpectedAdmissionError", text))


Refusal = tuple[str, str]
"""Reason and message."""


def _pressure(pod: core_v1.Pod, node: NodeState, *, critical: bool) -> Refusal | None:
    """Refuse what a node under pressure would only evict again (pkg/kubelet/eviction: Admit)."""
    active_pressures = [name for name, holds in node.pressures().items() if holds]
    if not active_pressures or critical:
        return None
    if active_pressures == ["MemoryPressure"]:
        if qos.qos_class(pod) != qos.BEST_EFFORT or tolerated(_MEMORY_PRESSURE, pod.spec.tolerations):
            return None
    return "Evicted", f"The node had condition: [{' '.join(active_pressures)}]. "


def _sysctls(pod: core_v1.Pod, config: AgentConfig) -> Refusal | None:
    name = forbidden_sysctl(pod, config.allowed_unsafe_sysctls)
    return ("SysctlForbidden", f'forbidden sysctl: "{name}" not allowlisted') if name else None


def _os(pod: core_v1.Pod) -> Refusal | None:
    # Upstream checks the pod's own label here; its nodeSelector is compared with the node's labels.
    if pod.metadata.labels.get(_OS_LABEL) not in (None, "linux"):
        return (
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if pod.spec.os is not None and pod.spec.os.name != platform.system().lower():
        return "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
    return None


def _groups_policy(pod: core_v1.Pod, node: NodeState) -> Refusal | None:
    context = pod.spec.security_context
    if context is not None and context.supplemental_groups_policy == "Strict" and not node.supplemental_groups_policy:
        return "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"
    return None


def _size(pod: core_v1.Pod) -> Refusal | None:
    """Refuse more names of resources than fit into the checkpoint's limit. Upstream has no such limit."""
    refused = resource_state.refusal(pod.metadata.uid or "", allocation.size_of(pod))
    return ("PodResourcesTooLarge", refused) if refused else None


def _too_many_pods(others: list[PodRequests], config: AgentConfig) -> list[Shortage]:
    used = len(others)
    return [Shortage("pods", 1, used, config.max_pods)] if used + 1 > config.max_pods else []


def _resources(pod: core_v1.Pod, others: list[PodRequests], node: NodeState) -> list[Shortage]:
    wanted = qos.pod_requests(pod)
    found = []
    for name in (*_FIXED, *sorted(wanted.keys() - set(_FIXED))):
        requested = wanted.get(name, 0)
        if not requested:
            continue
        # An extended resource that the node does not know is the cluster's, and not for the node to count.
        if name not in node.allocatable and (name in _FIXED or is_extended(name)):
            continue
        quantity = node.allocatable.get(name, 0)
        capacity = milli(quantity) if name == "cpu" else value(quantity)
        used = sum(other.requests.get(name, 0) for other in others)
        if used + requested > capacity:
            found.append(Shortage(name, requested, used, capacity))
    return found


def _affinity(pod: core_v1.Pod, node: NodeState, config: AgentConfig) -> Refusal | None:
    if node.labels is None:
        return None  # not yet read from the API
    here = core_v1.Node(metadata=meta_v1.ObjectMeta(name=config.node_name, labels=dict(node.labels)))
    if node_affinity.required_matches(pod.spec, here):
        return None
    return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")


def _ports(pod: core_v1.Pod, others: list[PodRequests]) -> Refusal | None:
    wanted = ports_of(pod)
    if wanted and any(host_ports.clash(wanted, other.ports) for other in others if other.ports):
        return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    return None


def _taints(pod: core_v1.Pod, node: NodeState) -> Refusal | None:
    if first_untolerated(node.taints, pod.spec.tolerations, effects=("NoExecute",)) is None:
        return None
    return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def _predicate(name: str, text: str) -> Refusal:
    return name, f"Predicate {name} failed: {text}"


def _app_armor(pod: core_v1.Pod, node: NodeState) -> Refusal | None:
    """Reject a pod with an AppArmor profile on a host without AppArmor (pkg/security/apparmor)."""
    if node.app_armor:
        return None
    shared = pod.spec.security_context
    profiles = [shared.app_armor_profile] if shared else []
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        profiles += [container.security_context.app_armor_profile] if container.security_context else []
    prefix = "container.apparmor.security.beta.kubernetes.io/"
    annotated = [text for key, text in pod.metadata.annotations.items() if key.startswith(prefix)]
    if any(p is not None and p.type != "Unconfined" for p in profiles) or any(t != "unconfined" for t in annotated):
        return "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"
    return None


def _shutting_down(node: NodeState) -> Refusal | None:
    return ("NodeShutdown", "Pod was rejected as the node is shutting down.") if node.shutting_down else None
