"""LimitRanger: a namespace's LimitRanges set default requests and limits of containers, and limit requests.

Defaults are set on containers that have no values; then each container, the pod as a whole and each claim is compared with
minimum, maximum and the limit-to-request ratio. Messages are upstream's (plugin/pkg/admission/limitranger).

The namespace's users choose both numbers, of containers and of resources in a LimitRange, and their product may be thousands of
times as large as the request. So a pod gets no more defaults than may be stored, and an error has a limit of problems.
They choose the number of LimitRanges, too: one request of a namespace reads them at a time, one LimitRange after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from control.admission import object_work
from control.admission.pod_resources import pod_totals
from control.admission.refusal import aggregate, refuse
from control.event_loop.pacing import TimeSlice
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup
from control.registry.storing import LARGEST_OBJECT, object_too_large
from kube import quantity
from kube.json_object import Object
from kube.locks import Locks

ANNOTATION = "kubernetes.io/limit-ranger"
MOST_PROBLEMS = 100
"""Problems in an error; upstream has no limit."""
Resources = dict[str, Any]
_BOUNDS = ("min", "max", "maxLimitRequestRatio")


class LimitRanger(Plugin):
    name = "LimitRanger"
    targets = ("pods", "persistentvolumeclaims")

    def __init__(self, lookup: Lookup) -> None:
        self._lookup, self._locks = lookup, Locks()

    def handles(self, attributes: Attributes) -> bool:
        if attributes.resource.target == "pods":  # a pod's resources change through `resize` alone
            return (attributes.operation, attributes.subresource) in (("CREATE", ""), ("UPDATE", "resize"))
        return attributes.concern("persistentvolumeclaims", "CREATE", "UPDATE")

    async def admit(self, attributes: Attributes) -> None:
        if attributes.resource.target == "pods" and attributes.operation == "CREATE" and self._has_ranges(attributes):
            async with self._locks.of(attributes.namespace):
                await self._set_defaults(attributes)

    async def validate(self, attributes: Attributes) -> None:
        if self._has_ranges(attributes):
            async with self._locks.of(attributes.namespace):
                await self._compare(attributes)

    def _has_ranges(self, attributes: Attributes) -> bool:
        return self._lookup.count("limitranges", attributes.namespace) > 0

    async def _set_defaults(self, attributes: Attributes) -> None:
        room, time_slice = Room(), TimeSlice()
        async for limit_range, _ in self._lookup.each("limitranges", attributes.namespace):
            # `obj` of a large creation is decoded when it is needed.
            if attributes.obj is not None and await set_defaults(attributes.obj, limit_range, room, time_slice):
                attributes.changed(self.name, "spec.containers[*].resources")

    async def _compare(self, attributes: Attributes) -> None:
        time_slice, obj = TimeSlice(), attributes.obj
        totals: tuple[Resources, Resources] | None = None
        assert obj is not None
        async for limit_range, _ in self._lookup.each("limitranges", attributes.namespace):
            if attributes.resource.target == "pods":
                if totals is None and any(item.get("type") == "Pod" for item in _items(limit_range)):
                    totals = await object_work.run(attributes, pod_totals, obj["spec"])
                comparisons = pod_problems(obj, totals or ({}, {}), limit_range)
            else:
                comparisons = claim_problems(obj, limit_range)
            problems = []
            for problem in comparisons:
                if time_slice.over():
                    await time_slice.turn()
                if problem:
                    problems.append(problem)
                    if len(problems) == MOST_PROBLEMS:
                        break
            if problems:
                raise refuse(attributes, aggregate(problems))


# -- defaults ---------------------------------------------------------------------------------------------------------
class Room:
    """Bytes that the defaults of all LimitRanges may still add to a pod."""

    def __init__(self) -> None:
        self._bytes = LARGEST_OBJECT

    def take(self, size: int) -> None:
        """Count bytes of JSON. Raise the error of an object that is too large to be stored, which it would become."""
        self._bytes -= size
        if self._bytes < 0:
            raise object_too_large()


async def set_defaults(pod: Object, limit_range: Object, room: Room, time_slice: TimeSlice) -> bool:
    """Set default resources of a pod's containers, and record them in an annotation; return whether there were any.

    Raise StatusError if the pod or the annotation becomes larger than may be stored.
    """
    defaults = dict(zip(("request", "limit"), _defaults(limit_range), strict=True))
    notes: list[str] = []
    for part, label in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(part) or ():
            for kind, values in defaults.items():
                await time_slice.step()
                names = _fill(container, kind + "s", values, room)
                if names:
                    notes.append(f"{', '.join(names)} {kind} for {label} {container.get('name', '')}")
                    room.take(len(notes[-1]))
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = "LimitRanger plugin set: " + "; ".join(notes)
    return bool(notes)


def _items(limit_range: Object) -> Iterable[Object]:
    return limit_range.get("spec", {}).get("limits") or ()


def _defaults(limit_range: Object) -> tuple[Resources, Resources]:
    """Return the default requests and limits of a container; missing ones are derived from the others."""
    requests: Resources = {}
    limits: Resources = {}
    for item in _items(limit_range):
        if item.get("type") == "Container":
            limit = (item.get("max") or {}) | (item.get("default") or {})
            limits |= limit
            requests |= (item.get("min") or {}) | limit | (item.get("defaultRequest") or {})
    return requests, limits


def _fill(container: Object, kind: str, values: Resources, room: Room) -> list[str]:
    present = (container.get("resources") or {}).get(kind) or {}
    missing = {name: value for name, value in values.items() if name not in present}
    if missing:
        room.take(sum(len(name) + len(str(value)) + 6 for name, value in missing.items()))
        container.setdefault("resources", {})[kind] = present | missing
    return sorted(missing)


# -- bounds -----------------------------------------------------------------------------------------------------------
def pod_problems(pod: Object, totals: tuple[Resources, Resources], limit_range: Object) -> Iterator[str]:
    """Yield the violations of one LimitRange by a pod of these `pod_totals`, and "" for each comparison that finds none."""
    spec = pod["spec"]
    for item in _items(limit_range):
        kind, limits = item.get("type", ""), {bound: sorted((item.get(bound) or {}).items()) for bound in _BOUNDS}
        if kind == "Container":
            for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                yield from _check(kind, limits, container.get("resources") or {})
        elif kind == "Pod":
            yield from _check(kind, limits, dict(zip(("requests", "limits"), totals, strict=True)))


def claim_problems(claim: Object, limit_range: Object) -> Iterator[str]:
    """Yield the violations of one LimitRange by the request of a persistent volume claim, and "" for each other comparison."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    for item in _items(limit_range):
        if item.get("type") != "PersistentVolumeClaim":
            continue
        for bound, word, wrong in (("min", "minimum", _less), ("max", "maximum", _more)):
            for name, enforced in sorted((item.get(bound) or {}).items()):
                text = f"{word} {name} usage per PersistentVolumeClaim is {quantity.canonical(enforced)}"
                if name not in requests:
                    yield f"{text}.  No request is specified"
                elif wrong(requests[name], enforced):
                    yield f"{text}, but request is {quantity.canonical(requests[name])}"
                else:
                    yield ""


def _less(a: quantity.Quantity, b: quantity.Quantity) -> bool:
    return quantity.parse(a) < quantity.parse(b)


def _more(a: quantity.Quantity, b: quantity.Quantity) -> bool:
    return quantity.parse(a) > quantity.parse(b)


def _check(kind: str, enforced_by: Mapping[str, list[tuple[str, Any]]], resources: Resources) -> Iterator[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    bounds: tuple[tuple[str, str, str, Callable[[Any, Any], bool], Resources, Resources], ...] = (
        ("min", "minimum", "request", _less, requests, limits),
        ("max", "maximum", "limit", _more, limits, requests),
    )
    for bound, word, first, wrong, main, other in bounds:
        second = "limit" if first == "request" else "request"
        for name, enforced in enforced_by[bound]:
            text = f"{word} {name} usage per {kind} is {quantity.canonical(enforced)}"
            if name not in main:
                yield f"{text}.  No {first} is specified"
            elif wrong(main[name], enforced):
                yield f"{text}, but {first} is {quantity.canonical(main[name])}"
            elif name in other and wrong(other[name], enforced):
                yield f"{text}, but {second} is {quantity.canonical(other[name])}"
            else:
                yield ""
    for name, enforced in enforced_by["maxLimitRequestRatio"]:
        text = f"{name} max limit to request ratio per {kind} is {quantity.canonical(enforced)}"
        request, limit = (quantity.parse(r.get(name, 0)) for r in (requests, limits))
        if not request:
            yield f"{text}, but no request is specified or request is 0"
        elif not limit:
            yield f"{text}, but no limit is specified or limit is 0"
        elif limit / request > quantity.parse(enforced):
            yield f"{text}, but provided ratio is {limit / request:.6f}"
        else:
            yield ""
