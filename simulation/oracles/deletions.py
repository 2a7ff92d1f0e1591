"""Rules of deletions: finalizers and grace periods are honoured, and nothing stays of a namespace or a pod that is gone."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.observers.registers import FINALIZER
from simulation.oracles.objects import Object, Objects, is_over, name
from simulation.origin import ORIGIN, Origin
from simulation.world import World

POLICIES = frozenset({"orphan", "foregroundDeletion"})
"""Finalizers that another deletion may replace."""
FORCED = ("pod-garbage-collector",)
"""Clients that delete pods without their grace period."""
REMAINING_SECONDS = 900.0
"""Longest time for which an object may exist without its namespace, and a container without its pod: a node or a member may be
cut off for 10 minutes."""


def removal(before: Object) -> Iterator[tuple[str, str]]:
    """Check the removal of an object from the store."""
    origin, meta = ORIGIN.get(), before["metadata"]
    finalizers = set(meta.get("finalizers") or ())
    if FINALIZER in finalizers and (origin is None or origin.method != "PATCH"):
        yield "finalizer", f"{name(before)} goes with its finalizers {sorted(finalizers)}"
    elif origin is not None and origin.method == "DELETE" and finalizers - POLICIES:
        yield "finalizer", f"{name(before)} is deleted with its finalizers {sorted(finalizers)}"
    if finalizers and not meta.get("deletionTimestamp"):
        yield "finalizer", f"{name(before)} with finalizers {sorted(finalizers)} goes without a deletion"
    if before.get("kind") == "Pod":
        yield from _pod(before, origin)


def _pod(before: Object, origin: Origin | None) -> Iterator[tuple[str, str]]:
    if is_over(before) or before["metadata"].get("deletionTimestamp") or not before["spec"].get("nodeName"):
        return
    if origin is None or origin.actor not in FORCED:
        actor = origin.actor if origin is not None else "the server"
        yield "grace period", f"{name(before)} on {before['spec']['nodeName']} is removed at once by {actor}"


class Remains:
    """Objects without their namespace and containers without their pod, and since when."""

    def __init__(self, world: World, objects: Objects) -> None:
        self._world, self._objects = world, objects
        self._since: dict[str, float] = {}

    def check(self) -> Iterator[tuple[str, str]]:
        """Return what has remained for too long; to be called now and then."""
        now = self._world.clock.monotonic()
        found = dict([*self._objects_without_namespace(), *self._containers_without_pod()])
        self._since = {text: self._since.get(text, now) for text in found}
        for text, rule in found.items():
            if now - self._since[text] > REMAINING_SECONDS:
                self._since[text] = float("inf")  # once
                yield rule, text

    def _objects_without_namespace(self) -> Iterator[tuple[str, str]]:
        namespaces = {each["metadata"]["name"] for each in self._objects.all("namespaces")}
        for resource, obj in self._objects.every():
            namespace = (obj.get("metadata") or {}).get("namespace")
            if namespace and namespace not in namespaces:
                yield f"{resource} {name(obj)} remains without its namespace", "namespace"

    def _containers_without_pod(self) -> Iterator[tuple[str, str]]:
        known = {pod["metadata"]["uid"] for pod in self._objects.all("pods")}
        for node in self._world.nodes:
            for pod in node.nodes.pods.on_node(node.name):
                if pod.uid not in known and pod.instances.running():
                    text = f"{node.name} runs containers of {pod.pod.metadata.namespace}/{pod.pod.metadata.name} ({pod.uid})"
                    yield f"{text}, which is gone", "forgotten container"
