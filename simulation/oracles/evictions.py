"""Rules of evictions: each takes one of the disruptions that a budget allows at that moment, before its pod goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from simulation.oracles.objects import Object, Objects, is_over, is_ready, name, selects
from simulation.oracles.recent import Recent
from simulation.origin import ORIGIN, Origin

MOST_CHARGES = 500
SUFFIX = "/eviction"


class Evictions:
    """Checks the writes of the eviction subresource."""

    def __init__(self, objects: Objects, now: Callable[[], float]) -> None:
        self._objects, self._now = objects, now
        self._charges: deque[tuple[Origin, str]] = deque(maxlen=MOST_CHARGES)
        """Evictions and the UIDs of the budgets that they were charged to."""
        self._created: dict[str, float] = {}
        self._healthy: Recent[str, int] = Recent(now)
        """Pods of each budget that are ready and are not being deleted, by its UID."""

    def budget(self, before: Object | None, budget: Object) -> Iterator[tuple[str, str]]:
        """Check a write of a budget."""
        origin, uid = ORIGIN.get(), budget["metadata"]["uid"]
        self._count(budget)
        if before is None:
            self._created[uid] = self._now()
        healthy, most = (budget.get("status") or {}).get("currentHealthy", 0), max(self._healthy.of(uid))
        if healthy > most:
            yield "budget", f"{name(budget)}: currentHealthy is {healthy}, and there were {most} in the last minute"
        if before is None or origin is None or not origin.path.endswith(SUFFIX):
            return
        self._charges.append((origin, uid))
        old, new = before.get("status") or {}, budget.get("status") or {}
        allowed, left = old.get("disruptionsAllowed", 0), new.get("disruptionsAllowed", 0)
        pod = _pod_of(origin)
        if allowed < 1 or left != allowed - 1 or pod not in (new.get("disruptedPods") or {}):
            yield "eviction", f"{name(budget)}: the eviction of {pod} takes {allowed - left} of {allowed} disruptions"
        if old.get("observedGeneration", 0) < before["metadata"].get("generation", 0):
            yield "eviction", f"{name(budget)}: {pod} is evicted before its newest generation was observed"

    def _count(self, budget: Object) -> None:
        pods = self._objects.all("pods", budget["metadata"]["namespace"])
        selected = [pod for pod in pods if selects(budget["spec"]["selector"], pod)]
        healthy = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in selected)
        self._healthy.set(budget["metadata"]["uid"], healthy)

    def pod(self, before: Object | None, after: Object | None) -> Iterator[tuple[str, str]]:
        """Check a write of a pod."""
        origin, known = ORIGIN.get(), after or before
        for budget in self._objects.all("poddisruptionbudgets", known["metadata"]["namespace"] if known else ""):
            self._count(budget)
        if before is None:
            return
        if origin is None or not origin.path.endswith(SUFFIX) or not _goes(before, after):
            return
        if is_over(before) or (before.get("status") or {}).get("phase") == "Pending":
            return
        for budget in self._objects.all("poddisruptionbudgets", before["metadata"]["namespace"]):
            uid = budget["metadata"]["uid"]
            if not selects(budget["spec"]["selector"], before) or self._created.get(uid, 0.0) >= origin.at:
                continue
            if (origin, uid) not in self._charges and (is_ready(before) or not _unhealthy_may_go(budget)):
                yield "eviction", f"{name(before)} is evicted without a disruption of {name(budget)}"

    def forget(self, budget: Object) -> None:
        """Drop a budget that is gone."""
        self._created.pop(budget["metadata"]["uid"], None)
        self._healthy.forget(budget["metadata"]["uid"])


def _pod_of(origin: Origin) -> str:
    return origin.path.removesuffix(SUFFIX).rpartition("/")[2]


def _goes(before: Object, after: Object | None) -> bool:
    """Return whether a write deletes a pod, or begins to."""
    if before["metadata"].get("deletionTimestamp"):
        return False
    return after is None or bool(after["metadata"].get("deletionTimestamp"))


def _unhealthy_may_go(budget: Object) -> bool:
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)
