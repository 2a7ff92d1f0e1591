"""A pod's status: phase (phase.py), conditions (conditions.py), addresses, containers. Pure.

The rules and words are upstream's (pkg/kubelet/kubelet_pods.go). The status that was last reported is an input, because much of
it stays: times, an address whose sandbox is gone, and a terminal phase, which never changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agent.cgroups import qos
from agent.lifecycle import End, Kind, initialized, may_restart_all, restarts_all
from agent.runtime_records import PodRuntime
from agent.status.conditions import add_disruption, conditions
from agent.status.container import StatusInputs, container_status, lost, stamp
from agent.status.limits import limit
from agent.status.phase import ENDED_PHASES, initialisation, phase
from agent.status.pod_resources import set_resources
from kube.api import core_v1


class NodeFacts(msgspec.Struct, frozen=True):
    """Facts of the node in a pod's status."""

    host_ips: tuple[str, ...] = ()


def pod_status(
    pod: core_v1.Pod,
    runtime: PodRuntime,
    known: StatusInputs,
    node: NodeFacts,
    now: float,
    *,
    end: End | None = None,
    finished: bool = False,
) -> core_v1.PodStatus:
    """Return the whole status. `pod.status` is the last one reported.

    `end`: the pod came to an end on this node, with its reason. `finished`: nothing of it runs any more.
    """
    old = pod.status
    status = core_v1.PodStatus(
        qos_class=qos.qos_class(pod),
        start_time=old.start_time or stamp(now),
        host_ip=node.host_ips[0] if node.host_ips else None,
        host_ips=[core_v1.HostIP(ip=ip) for ip in node.host_ips],
        observed_generation=pod.metadata.generation,
        nominated_node_name=old.nominated_node_name,
        resource_claim_statuses=old.resource_claim_statuses,
        extended_resource_claim_status=old.extended_resource_claim_status,
        reason=old.reason,
        message=old.message,
    )
    _set_container_statuses(pod, status, runtime, known)
    ips = _addresses(pod, runtime, node)
    status.pod_ip = ips[0] if ips else None
    status.pod_ips = [core_v1.PodIP(ip=ip) for ip in ips]
    status.phase = summed_phase(pod, status, runtime, finished=finished)
    # Whoever reads of an end releases the pod (NetworkPolicies, quota, its node's room): no container may run then.
    may_run = not finished and any(not record.exited for record in runtime.containers)
    ended = end is not None and not may_run
    if end is not None and end.phase and ended:
        status.phase, status.reason, status.message = end.phase, end.reason or None, end.message or None
    if old.phase in ENDED_PHASES:
        status.phase, status.reason, status.message = old.phase, old.reason, old.message
    if finished and (initialized(pod, runtime) or not any(initialisation(pod, status))):
        # Once a pod was initialised, what never ran counts as failed when the pod has ended.
        for shown in status.container_statuses:
            if shown.state is None or shown.state.terminated is None:
                shown.state = core_v1.ContainerState(terminated=lost())
    status.conditions = conditions(pod, runtime, status, known, now)
    if may_run and status.phase in ENDED_PHASES and old.phase not in ENDED_PHASES:
        status.phase = old.phase or "Pending"
    if end is not None and end.disruption and ended:
        add_disruption(pod, status, end.disruption, now)
    allocated = known.allocated or pod
    set_resources(status, allocated, known.actual or allocated)
    limit(status)
    return status


def _set_container_statuses(
    pod: core_v1.Pod, status: core_v1.PodStatus, runtime: PodRuntime, known: StatusInputs
) -> None:
    spec, old = pod.spec, pod.status
    reported = {s.name: s for s in old.init_container_statuses}
    status.init_container_statuses = [
        container_status(pod, c, Kind.INIT, runtime, known, reported.get(c.name)) for c in spec.init_containers
    ]
    reported = {s.name: s for s in old.container_statuses}
    status.container_statuses = [
        container_status(pod, c, Kind.MAIN, runtime, known, reported.get(c.name)) for c in spec.containers
    ]
    reported = {s.name: s for s in old.ephemeral_container_statuses}
    status.ephemeral_container_statuses = [
        container_status(pod, c, Kind.EPHEMERAL, runtime, known, reported.get(c.name))
        for c in spec.ephemeral_containers
    ]


def summed_phase(pod: core_v1.Pod, status: core_v1.PodStatus, runtime: PodRuntime, *, finished: bool = False) -> str:
    """Return the phase that the container statuses make; it is reported once none of the containers can run again."""
    found = phase(pod, status, runtime, finished=finished)
    if pod.status.phase == "Running" and not finished and may_restart_all(pod):
        if found == "Pending" or _begin_again(pod, runtime):
            return "Running"  # containers that were removed to start together
    return found


def rejected_status(pod: core_v1.Pod, end: End, now: float) -> core_v1.PodStatus:
    """Return the status of a rejected pod: nothing of it was created, so it has no container statuses."""
    status = core_v1.PodStatus(
        phase=end.phase,
        reason=end.reason,
        message=end.message,
        qos_class=qos.qos_class(pod),
        start_time=pod.status.start_time or stamp(now),
        observed_generation=pod.metadata.generation,
        conditions=pod.status.conditions,
    )
    limit(status)
    return status


def _addresses(pod: core_v1.Pod, runtime: PodRuntime, node: NodeFacts) -> Sequence[str]:
    sandbox = runtime.sandbox
    if pod.spec.host_network:
        return node.host_ips if sandbox is not None else ()
    if sandbox is not None and sandbox.ips:
        return sandbox.ips
    if sandbox is not None and sandbox.ready:
        return ()
    # The sandbox is gone, or nothing is known yet: the address stays until a new one takes its place.
    return [ip.ip for ip in pod.status.pod_ips]


def _begin_again(pod: core_v1.Pod, runtime: PodRuntime) -> bool:
    return restarts_all(pod, runtime) is not None or any(runtime.latest(c.name) is None for c in pod.spec.containers)
