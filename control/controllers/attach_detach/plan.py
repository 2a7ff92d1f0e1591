"""Plans the nodes that a volume is attached to and detached from. Pure functions.

A volume is attached to each node with a pod that uses it and has not left (`has_left`). It is detached from other nodes when
their status no longer lists it in volumesInUse. The plan does not wait for a node that is out of service, and six minutes for
one that is not ready or whose object was deleted while its machine may be running (pkg/controller/volume/attachdetach:
maxWaitForUnmountDuration). A volume for a single node is attached to a second one only after it is detached from the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from control.controllers.pods import is_terminal
from kube.api import core_v1, storage_v1

FORCE_SECONDS = 360.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
SHARED = frozenset(("ReadWriteMany", "ReadOnlyMany"))


@dataclass(frozen=True, slots=True)
class Decision:
    """Actions for one volume; `again` is the seconds until the next check."""

    attach: tuple[str, ...] = ()
    detach: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    """Nodes that want the volume and cannot have it while another node has it."""
    again: float | None = None
    waiting: frozenset[str] = field(default_factory=frozenset)
    """Nodes that do not want it any more, and still use it."""


def decide(
    name: str,
    wanted: Sequence[str],
    attachments: Mapping[str, storage_v1.VolumeAttachment],
    nodes: Mapping[str, core_v1.Node],
    *,
    shared: bool,
    waited: Mapping[str, float],
) -> Decision:
    """Decide about the volume of a unique name; `waited` is for how many seconds a node has been waited for."""
    detach, waiting, again = [], set(), []
    for node in sorted(attachments.keys() - set(wanted)):
        if attachments[node].metadata.deletion_timestamp is not None:
            continue
        left = _seconds_to_wait(name, nodes.get(node), waited.get(node, 0.0))
        if left == 0:
            detach.append(node)
            continue
        waiting.add(node)
        if left is not None:
            again.append(left)
    attach, taken = [], []
    holders = set(attachments)
    for node in sorted(set(wanted) - attachments.keys()):
        if node not in nodes:
            continue
        if holders and not shared:
            taken.append(node)
            continue
        attach.append(node)
        holders.add(node)
    return Decision(tuple(attach), tuple(detach), tuple(taken), min(again, default=None), frozenset(waiting))


def _seconds_to_wait(name: str, node: core_v1.Node | None, waited: float) -> float | None:
    """Return the seconds until a detach: 0 for now, None to wait for the node's status."""
    if node is None:
        return max(0.0, FORCE_SECONDS - waited)
    if name not in node.status.volumes_in_use:
        return 0
    if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
        return 0
    if is_ready(node):
        return None
    return max(0.0, FORCE_SECONDS - waited)


def is_ready(node: core_v1.Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def has_left(pod: core_v1.Pod) -> bool:
    """Return whether a pod needs no volumes any more: it is terminal, or it is being deleted and none of its containers runs.

    Its node may still use them, which volumesInUse says (pkg/volume/util: IsPodTerminated).
    """
    if is_terminal(pod):
        return True
    status = pod.status
    states = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    return pod.metadata.deletion_timestamp is not None and all(_has_stopped(one.state) for one in states)


def _has_stopped(state: core_v1.ContainerState | None) -> bool:
    return state is not None and (state.terminated is not None or state.waiting is not None)


def is_pending(attachment: storage_v1.VolumeAttachment) -> bool:
    """Return whether a driver's controller still has to attach the volume."""
    return not attachment.status.attached and attachment.metadata.deletion_timestamp is None


def is_shared(volume: core_v1.PersistentVolume) -> bool:
    """Return whether several nodes may have a volume at a time."""
    modes = volume.spec.access_modes
    return not modes or bool(SHARED.intersection(modes))


def multi_attach_message(volume: str, pod: core_v1.Pod, others: Sequence[core_v1.Pod]) -> str:
    """Return the message that names the pods with the volume, without names of pods in other namespaces."""
    text = f'Multi-Attach error for volume "{volume}" '
    own = sorted(o.metadata.name or "" for o in others if o.metadata.namespace == pod.metadata.namespace)
    elsewhere = len(others) - len(own)
    if own and elsewhere:
        return f"{text}Volume is already used by pod(s) {', '.join(own)} and {elsewhere} pod(s) in different namespaces"
    if own:
        return f"{text}Volume is already used by pod(s) {', '.join(own)}"
    if elsewhere:
        return f"{text}Volume is already used by {elsewhere} pod(s) in different namespaces"
    return f"{text}Volume is already exclusively attached to one node and can't be attached to another"
