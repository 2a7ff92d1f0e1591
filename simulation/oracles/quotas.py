"""Rules of quotas: each pod is charged to the quotas of its namespace by its own request, within their limits.

More pods than a limit may exist for a moment, as upstream: the controller counts before it sees a pod that is already charged,
and takes the charge back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from kube import quantity
from simulation.oracles.objects import Object, Objects, is_over, name
from simulation.origin import ORIGIN, Origin

KNOWN_SECONDS = 15.0
"""Time after which each member must have seen a quota."""
MOST_CHARGES = 500


class Quotas:
    """Checks the charges of quotas and the pods of their namespaces."""

    def __init__(self, objects: Objects, now: Callable[[], float]) -> None:
        self._objects, self._now = objects, now
        self._charges: deque[tuple[Origin, str]] = deque(maxlen=MOST_CHARGES)
        """Requests and the UIDs of the quotas that they were charged to."""
        self._since: dict[str, float] = {}
        """Time from which on a quota has a limit of pods, by its UID."""

    def quota(self, before: Object | None, quota: Object) -> Iterator[tuple[str, str]]:
        """Check a write of a quota."""
        uid, hard = quota["metadata"]["uid"], _pods(quota, "hard")
        if hard is None:
            return
        self._since.setdefault(uid, self._now())
        origin, used = ORIGIN.get(), _pods(quota, "used") or 0
        if origin is None or not _creates_pod(origin) or before is None or used <= (_pods(before, "used") or 0):
            return
        self._charges.append((origin, uid))
        if used > hard:
            yield "quota", f"{name(quota)}: a pod is admitted as number {used} of {hard}"

    def pod(self, pod: Object) -> Iterator[tuple[str, str]]:
        """Check a pod that is created."""
        origin = ORIGIN.get()
        if origin is None or is_over(pod):
            return
        for quota in self._objects.all("resourcequotas", pod["metadata"]["namespace"]):
            uid = quota["metadata"]["uid"]
            known = origin.at - self._since.get(uid, float("inf")) > KNOWN_SECONDS
            if known and (origin, uid) not in self._charges:
                yield "quota", f"{name(pod)} is created without a charge to {name(quota)}"

    def forget(self, quota: Object) -> None:
        """Drop a quota that is gone."""
        self._since.pop(quota["metadata"]["uid"], None)


def _pods(quota: Object, field: str) -> int | None:
    found = ((quota.get("status") or {}).get(field) or {}).get("pods")
    return None if found is None else int(quantity.parse(found))


def _creates_pod(origin: Origin) -> bool:
    return origin.method == "POST" and origin.path.endswith("/pods")
