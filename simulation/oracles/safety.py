"""Rules that hold at each write of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from decimal import Decimal

from kube import quantity
from simulation.history import Acknowledged, History
from simulation.oracles import deletions
from simulation.oracles.controllers import Controllers
from simulation.oracles.deletions import Remains
from simulation.oracles.evictions import Evictions
from simulation.oracles.leadership import Leadership
from simulation.oracles.objects import Object, Objects, is_over, name, owner
from simulation.oracles.quotas import Quotas
from simulation.oracles.violations import Violation
from simulation.world import World

CHECK_SECONDS = 30.0
MOST_LATER = 500
"""Revisions by which that of an answer may be later than the deletion that it acknowledges."""


class Safety:
    """Checks each write, and each answer that a user gets."""

    def __init__(self, world: World, objects: Objects, history: History, report: Callable[[Violation], None]) -> None:
        self._world, self._objects, self._report = world, objects, report
        now = world.clock.monotonic
        self._quotas, self._evictions = Quotas(objects, now), Evictions(objects, now)
        self._controllers = Controllers(objects, now)
        self._leadership, self._remains = Leadership(world.store), Remains(world, objects)
        objects.listeners.append(self._written)
        history.listeners.append(self._acknowledged)
        history.deletions.append(self._controllers.policies.sent)
        world.network.sent.append(lambda origin: self._add(self._leadership.sent(origin)))

    async def run(self) -> None:
        """Check now and then what may not remain for long."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._add(self._remains.check())

    def _add(self, broken: Iterator[tuple[str, str]], revision: int = 0) -> None:
        for rule, text in broken:
            shown = f"revision {revision}: {text}" if revision else text
            self._report(Violation(rule, shown, self._world.clock.monotonic()))

    def _written(self, resource: str, before: Object | None, after: Object | None, revision: int) -> None:
        if after is not None:
            self._add(self._broken(resource, before, after), revision)
        elif before is not None:
            self._add(self._removed(resource, before), revision)

    def _removed(self, resource: str, before: Object) -> Iterator[tuple[str, str]]:
        yield from deletions.removal(before)
        yield from self._controllers.removed(resource, before)
        if resource == "pods":
            yield from self._evictions.pod(before, None)
        elif resource == "resourcequotas":
            self._quotas.forget(before)
        elif resource == "poddisruptionbudgets":
            self._evictions.forget(before)

    def _broken(self, resource: str, before: Object | None, after: Object) -> Iterator[tuple[str, str]]:
        if before is not None:
            yield from _identity(before, after)
        yield from self._controllers.written(resource, before, after)
        if resource == "pods":
            yield from self._pod(before, after)
        elif resource == "services":
            yield from self._service(after)
        elif resource == "jobs" and before is not None:
            yield from _job(before, after)
        elif resource == "resourcequotas":
            yield from self._quotas.quota(before, after)
        elif resource == "poddisruptionbudgets":
            yield from self._evictions.budget(before, after)

    # -- pods -----------------------------------------------------------------------------------------------------------
    def _pod(self, before: Object | None, pod: Object) -> Iterator[tuple[str, str]]:
        node, former = _node(pod), _node(before) if before is not None else ""
        if former and node != former:
            yield "binding", f"{name(pod)} moves from {former} to {node}"
        if node and not former:
            yield from self._fit(pod, node)
        if before is None:
            yield from self._quotas.pod(pod)
        yield from self._evictions.pod(before, pod)
        if before is not None and is_over(before) and not is_over(pod):
            yield "phase", f"{name(pod)} has ended and runs again"
        controller = owner(pod)
        if controller is not None and controller["kind"] == "StatefulSet":
            yield from self._one_at_a_time(pod)

    def _fit(self, pod: Object, node: str) -> Iterator[tuple[str, str]]:
        target = next((each for each in self._objects.all("nodes") if each["metadata"]["name"] == node), None)
        if target is None:
            yield "binding", f"{name(pod)} is bound to {node}, which does not exist"
            return
        here = [each for each in self._objects.all("pods") if _node(each) == node and not is_over(each)]
        allocatable = (target.get("status") or {}).get("allocatable") or {}
        cpu, limit = sum(map(_cpu, here), Decimal()), quantity.parse(allocatable.get("cpu", "0"))
        if cpu > limit:
            yield "fit", f"{name(pod)} is bound to {node}, whose pods request {cpu} of {limit} processors"
        if len(here) > int(allocatable.get("pods", "0")):
            yield "fit", f"{name(pod)} is bound to {node}, which has {len(here)} pods"

    def _one_at_a_time(self, pod: Object) -> Iterator[tuple[str, str]]:
        meta = pod["metadata"]
        places = []
        for node in self._world.nodes:
            simulated = node.nodes.pods.find(meta["namespace"], meta["name"])
            if simulated is not None and any(simulated.instances.running()):
                places.append(f"{node.name} ({simulated.uid})")
        if len(places) > 1:
            yield "one pod an ordinal", f"{name(pod)} runs on {' and '.join(places)}"

    # -- Services -------------------------------------------------------------------------------------------------------
    def _service(self, service: Object) -> Iterator[tuple[str, str]]:
        spec, uid = service["spec"], service["metadata"]["uid"]
        others = [each for each in self._objects.all("services") if each["metadata"]["uid"] != uid]
        for address in spec.get("clusterIPs") or ():
            for other in others:
                if address != "None" and address in (other["spec"].get("clusterIPs") or ()):
                    yield "address", f"{name(service)} and {name(other)} have the address {address}"
        ports = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
        for other in others:
            taken = ports & {port.get("nodePort") for port in other["spec"].get("ports") or ()}
            if taken:
                yield "node port", f"{name(service)} and {name(other)} have the node port {min(taken)}"

    # -- answers --------------------------------------------------------------------------------------------------------
    def _acknowledged(self, write: Acknowledged) -> None:
        self._add(self._controllers.acknowledged(write))
        if not write.revision:
            return
        # After a deletion whose outcome the store did not report, the revision may be a later one.
        first = write.revision - (MOST_LATER if write.method == "DELETE" else 0)
        keys = [self._objects.keys.get(revision, "") for revision in range(max(0, first), write.revision + 1)]
        if not any(key.endswith(f"/{write.name}") for key in keys):
            text = f"{write.method} {write.path} of {write.name} was acknowledged at revision {write.revision}"
            self._add(iter([("acknowledged", f"{text}, which is of {keys[-1]}")]))


def _identity(before: Object, after: Object) -> Iterator[tuple[str, str]]:
    old, new = before["metadata"], after["metadata"]
    for field in ("uid", "creationTimestamp", "name", "namespace"):
        if old.get(field) != new.get(field):
            yield "identity", f"{name(after)}: {field} changes from {old.get(field)} to {new.get(field)}"
    if new.get("generation", 0) < old.get("generation", 0):
        yield "identity", f"{name(after)}: generation falls from {old['generation']} to {new.get('generation')}"
    if old.get("deletionTimestamp") and not new.get("deletionTimestamp"):
        yield "deletion", f"{name(after)}: is no longer being deleted"


def _job(before: Object, after: Object) -> Iterator[tuple[str, str]]:
    old, new = ((each.get("status") or {}).get("succeeded") or 0 for each in (before, after))
    if new < old:
        yield "completions", f"{name(after)}: succeeded falls from {old} to {new}"
    if new > (after["spec"].get("completions") or new):
        yield "completions", f"{name(after)}: {new} pods succeeded of {after['spec']['completions']}"


def _node(pod: Object) -> str:
    found: str = pod["spec"].get("nodeName") or ""
    return found


def _cpu(pod: Object) -> Decimal:
    requests = [(each.get("resources") or {}).get("requests") or {} for each in pod["spec"]["containers"]]
    return sum((quantity.parse(each.get("cpu", "0")) for each in requests), Decimal())
