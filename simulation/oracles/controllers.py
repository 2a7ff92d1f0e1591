"""Rules of what controllers write: none goes further than some recent state of the store allows.

Controllers act on copies that are behind: a state of the last minute justifies a write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import timedelta

from kube.clock import format_time
from simulation.history import Acknowledged
from simulation.oracles.objects import Object, Objects, is_over, is_ready, name, owner
from simulation.oracles.policies import Policies
from simulation.oracles.recent import BEHIND_SECONDS, Recent
from simulation.origin import ORIGIN
from simulation.sources import START

Broken = tuple[str, str]
FOREGROUND = "foregroundDeletion"
TERMINATING_SECONDS = 15.0
"""Time after which each member knows that a namespace is being deleted."""


class Controllers:
    """Checks the writes of controllers, by the accounts that they act as."""

    def __init__(self, objects: Objects, now: Callable[[], float]) -> None:
        self._objects, self._now = objects, now
        self.policies = Policies(objects)
        self._sizes: Recent[str, int] = Recent(now)
        """Wanted pods of ReplicaSets, and of Deployments with their surge, by UID."""
        self._wanted: Recent[str, int] = Recent(now)
        """Replicas of Deployments."""
        self._available: Recent[str, int] = Recent(now)
        """Available replicas of ReplicaSets."""
        self._ready: Recent[str, bool] = Recent(now)
        """By the pod's namespace and name."""
        self._terminating: dict[str, float] = {}
        """Since when namespaces are being deleted."""

    def written(self, resource: str, before: Object | None, after: Object) -> Iterator[Broken]:
        """Check a write, and record what later ones are compared with."""
        meta, origin = after["metadata"], ORIGIN.get()
        actor = origin.actor if origin is not None else ""
        if resource == "namespaces" and meta.get("deletionTimestamp"):
            self._terminating.setdefault(meta["name"], self._now())
        if resource == "replicasets":
            if actor == "deployment-controller":
                yield from self._surge(before, after)
                yield from self._availability(before, after)
            self._sizes.set(meta["uid"], after["spec"].get("replicas", 1))
            self._available.set(meta["uid"], (after.get("status") or {}).get("availableReplicas", 0))
        elif resource == "deployments":
            self._sizes.set(meta["uid"], _most(after))
            self._wanted.set(meta["uid"], after["spec"].get("replicas", 1))
        elif resource == "pods":
            self._ready.set(_place(after), is_ready(after))
            if before is None:
                yield from self._created(after)
            yield from _restarts(after)
            if actor == "statefulset-controller" and _begins_deletion(before, after):
                yield from self._top_first(after)
        elif resource == "endpointslices":
            yield from self._endpoints(after)
        if _begins_deletion(before, after):
            yield from self._deleted(resource, after, actor)

    def acknowledged(self, write: Acknowledged) -> Iterator[Broken]:
        """Check that nothing is created in a namespace that has been going for long, and policies of deletions."""
        yield from self.policies.acknowledged(write)
        parts = write.path.partition("/namespaces/")[2].split("/")
        since = self._terminating.get(parts[0], math.inf)
        if write.method == "POST" and len(parts) == 2 and write.sent - since > TERMINATING_SECONDS:
            text = f"{parts[1]} {write.name} is created in {parts[0]}, which is being deleted"
            yield "terminating namespace", text

    def removed(self, resource: str, before: Object) -> Iterator[Broken]:
        """Check the removal of an object."""
        meta, origin = before["metadata"], ORIGIN.get()
        if resource == "namespaces":
            self._terminating.pop(meta["name"], None)
        if not meta.get("deletionTimestamp"):
            yield from self._deleted(resource, before, origin.actor if origin is not None else "")
        if FOREGROUND in (meta.get("finalizers") or ()) and origin is not None and origin.method == "PATCH":
            for _, each in self._objects.every():
                for reference in each["metadata"].get("ownerReferences") or ():
                    blocks = reference["uid"] == meta["uid"] and reference.get("blockOwnerDeletion")
                    if blocks and self._is_old(each):
                        yield "foreground deletion", f"{name(before)} goes before {name(each)}"
        for recent in (self._sizes, self._wanted, self._available):
            recent.forget(meta["uid"])
        if resource == "pods":
            self._ready.forget(_place(before))

    # -- creations ------------------------------------------------------------------------------------------------------
    def _created(self, pod: Object) -> Iterator[Broken]:
        controller = owner(pod)
        if controller is None:
            return
        if controller["kind"] == "ReplicaSet":
            uid, wanted = controller["uid"], self._sizes.of(controller["uid"])
            active = [each for each in self._objects.all("pods") if _owned(each, uid) and _active(each)]
            if wanted and len(active) > max(wanted):
                yield "surplus pod", f"{name(pod)} is pod {len(active)} of {max(wanted)} of {controller['name']}"
        elif controller["kind"] == "StatefulSet":
            yield from self._in_order(pod, controller)

    def _in_order(self, pod: Object, controller: Object) -> Iterator[Broken]:
        """Check that the pods before one are ready, if the StatefulSet wants that."""
        workload = self._find("statefulsets", controller["uid"])
        if workload is None or workload["spec"].get("podManagementPolicy") == "Parallel":
            return
        namespace, number = pod["metadata"]["namespace"], _ordinal(pod)
        for ordinal in range(number):
            before = f"{controller['name']}-{ordinal}"
            if not any(self._ready.of(f"{namespace}/{before}")):
                yield "ordinal order", f"{name(pod)} is created before {before} is ready"

    def _availability(self, before: Object | None, after: Object) -> Iterator[Broken]:
        """Check that a rolling update takes no pods that are needed: at most 25 % may be unavailable."""
        controller, size = owner(after), after["spec"].get("replicas", 1)
        if controller is None or before is None or before["spec"].get("replicas", 1) <= size:
            return
        wanted = min(self._wanted.of(controller["uid"]), default=0)
        sets = [each["metadata"]["uid"] for each in self._objects.all("replicasets") if _owned(each, controller["uid"])]
        taken = max(0, min(self._available.of(after["metadata"]["uid"]), default=0) - size)
        left = sum(max(self._available.of(uid), default=0) for uid in sets) - taken
        if taken and left < wanted - wanted // 4:
            yield "availability", f"{name(after)} is scaled to {size}: {left} of {wanted} pods stay available"

    def _surge(self, before: Object | None, after: Object) -> Iterator[Broken]:
        controller, size = owner(after), after["spec"].get("replicas", 1)
        if controller is None:
            return
        if size <= (before["spec"].get("replicas", 1) if before is not None else 0):
            return
        uid, wanted = controller["uid"], self._sizes.of(controller["uid"])
        total = sum(each["spec"].get("replicas", 1) for each in self._objects.all("replicasets") if _owned(each, uid))
        if wanted and total > max(wanted):
            yield (
                "surge",
                f"{name(after)} is scaled to {size}: all of {controller['name']} have {total} of {max(wanted)}",
            )

    # -- deletions ------------------------------------------------------------------------------------------------------
    def _deleted(self, resource: str, obj: Object, actor: str) -> Iterator[Broken]:
        """Check the beginning of a deletion."""
        meta = obj["metadata"]
        if actor == "generic-garbage-collector":
            if meta.get("namespace") not in self._terminating:
                yield from self.policies.collected(obj)
            for reference in meta.get("ownerReferences") or ():
                found = self._by_uid(reference["uid"])
                if found is not None and FOREGROUND not in (found["metadata"].get("finalizers") or ()):
                    yield "garbage", f"{name(obj)} is collected, and its owner {name(found)} exists"
        if actor == "namespace-controller" and resource != "pods":
            pods = next(self._objects.all("pods", meta.get("namespace", "")), None)
            if pods is not None:
                yield "namespace order", f"{name(obj)} is deleted before {name(pods)} of its namespace is gone"

    def _top_first(self, pod: Object) -> Iterator[Broken]:
        """Check that a StatefulSet that becomes smaller loses its last pod first."""
        controller = owner(pod)
        workload = self._find("statefulsets", controller["uid"]) if controller is not None else None
        if workload is None or controller is None or workload["spec"].get("podManagementPolicy") == "Parallel":
            return
        if _ordinal(pod) < workload["spec"].get("replicas", 1):
            return
        later = [each for each in self._objects.all("pods") if _owned(each, controller["uid"]) and _active(each)]
        if last := max((each for each in later), key=_ordinal, default=None):
            if _ordinal(last) > _ordinal(pod):
                yield "ordinal order", f"{name(pod)} is deleted before {name(last)}"

    # -- endpoints ------------------------------------------------------------------------------------------------------
    def _endpoints(self, piece: Object) -> Iterator[Broken]:
        namespace = piece["metadata"]["namespace"]
        for endpoint in piece.get("endpoints") or ():
            target = endpoint.get("targetRef") or {}
            known = self._ready.of(f"{namespace}/{target.get('name')}")
            if known and (endpoint.get("conditions") or {}).get("ready") and not any(known):
                yield "endpoint", f"{name(piece)}: {target.get('name')} is an endpoint and not ready"

    def _is_old(self, obj: Object) -> bool:
        """Return whether each copy has had an object for long."""
        seen: str = obj["metadata"]["creationTimestamp"]
        return seen < format_time(START + timedelta(seconds=self._now() - BEHIND_SECONDS))

    def _find(self, resource: str, uid: str) -> Object | None:
        return next((each for each in self._objects.all(resource) if each["metadata"]["uid"] == uid), None)

    def _by_uid(self, uid: str) -> Object | None:
        return next((each for _, each in self._objects.every() if each["metadata"].get("uid") == uid), None)


def _restarts(pod: Object) -> Iterator[Broken]:
    """Check that only pods whose containers are not restarted end."""
    status = pod.get("status") or {}
    ends = is_over(pod) and not status.get("reason") and not pod["metadata"].get("deletionTimestamp")
    disrupted = any(each["type"] == "DisruptionTarget" for each in status.get("conditions") or ())
    if ends and not disrupted and pod["spec"].get("restartPolicy", "Always") == "Always":
        yield "restart policy", f"{name(pod)} ends as {status['phase']}"


def _begins_deletion(before: Object | None, after: Object) -> bool:
    return before is not None and bool(
        after["metadata"].get("deletionTimestamp") and not before["metadata"].get("deletionTimestamp")
    )


def _most(deployment: Object) -> int:
    """Return how many pods a Deployment may have with its surge (25 %)."""
    size: int = deployment["spec"].get("replicas", 1)
    return size + max(1, math.ceil(size * 0.25))


def _ordinal(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _place(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _owned(obj: Object, uid: str) -> bool:
    found = owner(obj)
    return found is not None and found["uid"] == uid


def _active(pod: Object) -> bool:
    return not is_over(pod) and not pod["metadata"].get("deletionTimestamp")
