"""Revisions of a Deployment: selects the new and the old ReplicaSets, and maintains the annotations with the history.

The new ReplicaSet is the one with the Deployment's template (the oldest if there are several). Revision numbers, and the
desired and maximum replica counts that distinguish a scaling from a rollout, are in annotations of the ReplicaSets, where
`kubectl rollout history` reads them. Upstream: pkg/controller/deployment/util/deployment_util.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from control.controllers.rounding import scaled
from control.controllers.step_counter import ENTRIES_PER_STEP, StepCounter
from kube.api import apps_v1

from .template import same_as, without_hash

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
}
HISTORY_CHARACTERS = 2000
NO_DEADLINE = 2**31 - 1


def wanted(obj: apps_v1.Deployment | apps_v1.ReplicaSet) -> int:
    """Return spec.replicas as a number."""
    return obj.spec.replicas if obj.spec.replicas is not None else 1


def total_wanted(sets: Iterable[apps_v1.ReplicaSet]) -> int:
    return sum(wanted(rs) for rs in sets)


def total_available(sets: Iterable[apps_v1.ReplicaSet]) -> int:
    return sum(rs.status.available_replicas or 0 for rs in sets)


def is_rolling(deployment: apps_v1.Deployment) -> bool:
    strategy = deployment.spec.strategy
    return strategy is None or strategy.type in (None, "", "RollingUpdate")


def fenceposts(deployment: apps_v1.Deployment) -> tuple[int, int]:
    """Return (max surge, max unavailable) as numbers; both 0 would stand still, so then one may be unavailable."""
    strategy = deployment.spec.strategy
    rolling = strategy.rolling_update if strategy else None
    surge = scaled(rolling.max_surge if rolling else "25%", wanted(deployment), round_up=True)
    unavailable = scaled(rolling.max_unavailable if rolling else "25%", wanted(deployment), round_up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def max_surge(deployment: apps_v1.Deployment) -> int:
    return fenceposts(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: apps_v1.Deployment) -> int:
    if not is_rolling(deployment) or not wanted(deployment):
        return 0
    return min(fenceposts(deployment)[1], wanted(deployment))


async def new_set(deployment: apps_v1.Deployment, sets: Sequence[apps_v1.ReplicaSet]) -> apps_v1.ReplicaSet | None:
    """Return the ReplicaSet that has the Deployment's template."""
    bare, counter = without_hash(deployment.spec.template), StepCounter()
    for rs in sorted(sets, key=created):
        if rs.spec.template is None:
            continue
        await counter.count(1 + len(rs.spec.template.metadata.labels) // ENTRIES_PER_STEP)
        if same_as(bare, rs.spec.template):
            return rs
    return None


def created(rs: apps_v1.ReplicaSet) -> tuple[str, str]:
    """Sort key: oldest first, then by name."""
    return (rs.metadata.creation_timestamp or "", rs.metadata.name or "")


def revision(obj: apps_v1.ReplicaSet | apps_v1.Deployment) -> int:
    """Return the annotated revision; 0 if there is none."""
    return _number(obj.metadata.annotations.get(REVISION)) or 0


def next_revision(old: Iterable[apps_v1.ReplicaSet]) -> int:
    return max((revision(rs) for rs in old), default=0) + 1


def desired_annotation(rs: apps_v1.ReplicaSet) -> int | None:
    return _number(rs.metadata.annotations.get(DESIRED_REPLICAS))


def max_annotation(rs: apps_v1.ReplicaSet) -> int | None:
    return _number(rs.metadata.annotations.get(MAX_REPLICAS))


def size_annotations(deployment: apps_v1.Deployment) -> dict[str, str]:
    """Return the annotations with the size of the Deployment when its sets were last scaled."""
    return {
        DESIRED_REPLICAS: str(wanted(deployment)),
        MAX_REPLICAS: str(wanted(deployment) + max_surge(deployment)),
    }


def new_set_annotations(
    deployment: apps_v1.Deployment, current: dict[str, str], number: int, *, exists: bool
) -> dict[str, str]:
    """Return the annotations that the new ReplicaSet should have, given those that it has."""
    kept = {k: v for k, v in deployment.metadata.annotations.items() if k not in _NOT_COPIED}
    result = {**current, **kept}
    old = _number(current.get(REVISION)) or 0
    if old < number:
        result[REVISION] = str(number)
        if exists and REVISION in current:
            result[REVISION_HISTORY] = _history(current.get(REVISION_HISTORY, ""), current[REVISION])
    if not exists:
        result.update(size_annotations(deployment))
    return result


def _history(text: str, old: str) -> str:
    numbers = [*text.split(","), old] if text else [old]
    while len(numbers) > 1 and len(",".join(numbers)) > HISTORY_CHARACTERS:
        numbers.pop(0)
    return ",".join(numbers)


def removable(deployment: apps_v1.Deployment, old: Sequence[apps_v1.ReplicaSet]) -> list[apps_v1.ReplicaSet]:
    """Return the old sets beyond the history limit that may go: scaled to zero, and known to be."""
    limit = deployment.spec.revision_history_limit
    if limit is None or limit == NO_DEADLINE:
        return []
    alive = sorted(
        (rs for rs in old if rs.metadata.deletion_timestamp is None), key=lambda rs: (revision(rs), created(rs))
    )
    surplus = alive[: max(0, len(alive) - limit)]
    return [
        rs
        for rs in surplus
        if not rs.status.replicas
        and not wanted(rs)
        and (rs.metadata.generation or 0) <= (rs.status.observed_generation or 0)
    ]


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text else None
    except ValueError:
        return None
