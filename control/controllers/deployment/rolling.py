"""Computes the next size of each ReplicaSet of a Deployment: rolling update, recreate and proportional scaling.

Pure functions from the Deployment and its sets to new sizes. A rolling update never has more than replicas + maxSurge
pods and never fewer available than replicas - maxUnavailable; old pods that are not healthy go first, since they cost
no availability. The pods that a ReplicaSet deletes are chosen by its controller (replicaset.py, pod_deletion_order.py).
Upstream: pkg/controller/deployment/{rolling,recreate,sync}.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from control.controllers import pods as pod_rules
from kube.api import apps_v1, core_v1

from . import revisions
from .revisions import created, desired_annotation, max_annotation, max_surge, max_unavailable, wanted

Sets = Sequence[apps_v1.ReplicaSet]


@dataclass(frozen=True, slots=True)
class Resize:
    """Give one ReplicaSet a new size (maybe the same, to refresh its annotations)."""

    rs: apps_v1.ReplicaSet
    replicas: int


def active(sets: Sets) -> list[apps_v1.ReplicaSet]:
    """Return the sets that want pods."""
    return [rs for rs in sets if wanted(rs) > 0]


def new_size(deployment: apps_v1.Deployment, sets: Sets, current: int) -> int:
    """Return the size of the new set; `sets` are all others plus the new one, which has `current` replicas."""
    if not revisions.is_rolling(deployment):
        return wanted(deployment)
    room = wanted(deployment) + max_surge(deployment) - revisions.total_wanted(sets)
    if room <= 0:
        return current
    return current + min(room, wanted(deployment) - current)


def grow_new(deployment: apps_v1.Deployment, new: apps_v1.ReplicaSet, sets: Sets) -> list[Resize]:
    """Bring the new set as near to the Deployment's size as the surge allows (or down to it)."""
    if wanted(new) == wanted(deployment):
        return []
    if wanted(new) > wanted(deployment):
        return [Resize(new, wanted(deployment))]
    size = new_size(deployment, sets, wanted(new))
    return [Resize(new, size)] if size != wanted(new) else []


def shrink_old(deployment: apps_v1.Deployment, new: apps_v1.ReplicaSet, old: Sets) -> list[Resize]:
    """Take from the old sets what may go while enough pods stay available."""
    old = sorted(active(old), key=created)
    if not old:
        return []
    everything = [*old, new]
    least = wanted(deployment) - max_unavailable(deployment)
    new_unavailable = wanted(new) - (new.status.available_replicas or 0)
    budget = revisions.total_wanted(everything) - least - new_unavailable
    if budget <= 0:
        return []
    sizes = {rs.metadata.name or "": wanted(rs) for rs in old}
    taken = 0
    for rs in old:  # the unhealthy first
        healthy = rs.status.available_replicas or 0
        count = min(budget - taken, wanted(rs) - healthy)
        if count > 0:
            sizes[rs.metadata.name or ""] -= count
            taken += count
    spare = revisions.total_available(everything) - least
    for rs in old:
        count = min(spare, sizes[rs.metadata.name or ""])
        if count > 0:
            sizes[rs.metadata.name or ""] -= count
            spare -= count
    return [Resize(rs, sizes[rs.metadata.name or ""]) for rs in old if sizes[rs.metadata.name or ""] != wanted(rs)]


def waiting(deployment: apps_v1.Deployment, new: apps_v1.ReplicaSet, old: Sets) -> str:
    """Return for the journal why a rolling update does not go on now; "" if it is complete."""
    left = revisions.total_wanted(active(old))
    if not left:
        return ""
    available, least = revisions.total_available([*old, new]), wanted(deployment) - max_unavailable(deployment)
    return (
        f"waits for new pods to be available: {available} pods are, and {least} must be (maxUnavailable "
        f"{max_unavailable(deployment)}, maxSurge {max_surge(deployment)}); {left} old pods stay"
    )


def stop_old(old: Sets) -> list[Resize]:
    """Recreate: all old pods go first."""
    return [Resize(rs, 0) for rs in active(old)]


def old_pods_run(old: Sets, pods: Iterable[core_v1.Pod]) -> bool:
    """Return whether old sets have pods that run, by the pods or by the sets' own status (upstream: oldPodsRunning).

    The two come by different watches: with pods alone, a status could report new pods beside old ones.
    """
    return any(rs.status.replicas for rs in old) or any(not pod_rules.is_terminal(pod) for pod in pods)


def is_scaling(deployment: apps_v1.Deployment, sets: Sets) -> bool:
    """True if the Deployment's size changed since its sets were last sized, apart from any rollout."""
    return any(
        desired is not None and desired != wanted(deployment)
        for desired in (desired_annotation(rs) for rs in active(sets))
    )


def scale(deployment: apps_v1.Deployment, new: apps_v1.ReplicaSet | None, old: Sets) -> list[Resize]:
    """Spread a change of size over the sets: on the one that is active, or in proportion in mid-rollout."""
    alive = active([*old, new] if new else old)
    if len(alive) <= 1:
        latest = alive[0] if alive else new or max(old, key=created, default=None)
        if latest is None or wanted(latest) == wanted(deployment):
            return []
        return [Resize(latest, wanted(deployment))]
    if new is not None and _saturated(deployment, new):
        return [Resize(rs, 0) for rs in active(old)]
    if not revisions.is_rolling(deployment):
        return []
    allowed = wanted(deployment) + max_surge(deployment) if wanted(deployment) else 0
    to_add = allowed - revisions.total_wanted(alive)
    alive.sort(key=created, reverse=to_add > 0)
    alive.sort(key=wanted, reverse=True)
    added, sizes = 0, []
    for rs in alive:
        part = _proportion(rs, deployment, to_add, added)
        sizes.append(wanted(rs) + part)
        added += part
    sizes[0] = max(0, sizes[0] + to_add - added)
    return [Resize(rs, size) for rs, size in zip(alive, sizes, strict=True)]


def _saturated(deployment: apps_v1.Deployment, rs: apps_v1.ReplicaSet) -> bool:
    size = wanted(deployment)
    return wanted(rs) == size and desired_annotation(rs) == size and (rs.status.available_replicas or 0) == size


def _proportion(rs: apps_v1.ReplicaSet, deployment: apps_v1.Deployment, to_add: int, added: int) -> int:
    """Return this set's share of a change, never more than what is left of it."""
    if not wanted(rs) or not to_add or to_add == added:
        return 0
    share, left = _fraction(rs, deployment), to_add - added
    return min(share, left) if to_add > 0 else max(share, left)


def _fraction(rs: apps_v1.ReplicaSet, deployment: apps_v1.Deployment) -> int:
    if not wanted(deployment):
        return -wanted(rs)
    before = max_annotation(rs) or deployment.status.replicas or 0
    if not before:
        return 0
    size = wanted(rs) * (wanted(deployment) + max_surge(deployment)) / before
    return int(size + 0.5) - wanted(rs)
