"""LimitRanger: a namespace's LimitRanges set default requests and limits of containers, and limit requests.

Defaults are set on containers that have no values; then each container, the pod as a whole and each claim is compared with
minimum, maximum and the limit-to-request ratio. Messages are upstream's (plugin/pkg/admission/limitranger).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from control.admission.pod_resources import pod_totals
from control.admission.refusal import aggregate, refuse
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup
from kube import quantity
from kube.json_object import Object

ANNOTATION = "kubernetes.io/limit-ranger"
Resources = dict[str, Any]


class LimitRanger(Plugin):
    name = "LimitRanger"
    targets = ("pods", "persistentvolumeclaims")

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        if attributes.resource.target == "pods":  # a pod's resources change through `resize` alone
            return (attributes.operation, attributes.subresource) in (("CREATE", ""), ("UPDATE", "resize"))
        return attributes.concern("persistentvolumeclaims", "CREATE", "UPDATE")

    async def admit(self, attributes: Attributes) -> None:
        if attributes.resource.target == "pods" and attributes.operation == "CREATE":
            for limit_range in self._ranges(
                attributes.namespace
            ):  # `obj` of a large creation is decoded when it is needed
                if attributes.obj is not None and set_defaults(attributes.obj, limit_range):
                    attributes.changed(self.name, "spec.containers[*].resources")

    async def validate(self, attributes: Attributes) -> None:
        for limit_range in self._ranges(attributes.namespace):
            assert attributes.obj is not None
            if attributes.resource.target == "pods":
                problems = pod_problems(attributes.obj, limit_range)
            else:
                problems = claim_problems(attributes.obj, limit_range)
            if problems:
                raise refuse(attributes, aggregate(problems))

    def _ranges(self, namespace: str) -> list[Object]:
        return sorted(self._lookup.list("limitranges", namespace), key=lambda r: str(r["metadata"]["name"]))


# -- defaults ---------------------------------------------------------------------------------------------------------
def set_defaults(pod: Object, limit_range: Object) -> bool:
    """Set default resources of a pod's containers, and record them in an annotation; return whether there were any."""
    requests, limits = _defaults(limit_range)
    if not requests and not limits:
        return False
    notes: list[str] = []
    for part, label in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(part) or ():
            for kind, values in (("request", requests), ("limit", limits)):
                names = _fill(container, kind + "s", values)
                if names:
                    notes.append(f"{', '.join(names)} {kind} for {label} {container.get('name', '')}")
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = "LimitRanger plugin set: " + "; ".join(notes)
    return bool(notes)


def _defaults(limit_range: Object) -> tuple[Resources, Resources]:
    """Return the default requests and limits of a container; missing ones are derived from the others."""
    requests: Resources = {}
    limits: Resources = {}
    for item in limit_range.get("spec", {}).get("limits") or ():
        if item.get("type") == "Container":
            limit = (item.get("max") or {}) | (item.get("default") or {})
            limits |= limit
            requests |= (item.get("min") or {}) | limit | (item.get("defaultRequest") or {})
    return requests, limits


def _fill(container: Object, kind: str, values: Resources) -> list[str]:
    present = (container.get("resources") or {}).get(kind) or {}
    missing = {name: value for name, value in values.items() if name not in present}
    if missing:
        container.setdefault("resources", {})[kind] = present | missing
    return sorted(missing)


# -- bounds -----------------------------------------------------------------------------------------------------------
def pod_problems(pod: Object, limit_range: Object) -> list[str]:
    """Return the violations of one LimitRange by a pod."""
    spec, found = pod["spec"], []
    for item in limit_range.get("spec", {}).get("limits") or ():
        kind = item.get("type", "")
        if kind == "Container":
            for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                found += list(_check(item, kind, container.get("resources") or {}))
        elif kind == "Pod":
            requests, limits = pod_totals(spec)
            found += list(_check(item, kind, {"requests": requests, "limits": limits}))
    return found


def claim_problems(claim: Object, limit_range: Object) -> list[str]:
    """Return the violations of one LimitRange by the request of a persistent volume claim."""
    requests, found = (claim["spec"].get("resources") or {}).get("requests") or {}, []
    for item in limit_range.get("spec", {}).get("limits") or ():
        if item.get("type") != "PersistentVolumeClaim":
            continue
        for bound, word, wrong in (("min", "minimum", _less), ("max", "maximum", _more)):
            for name, enforced in sorted((item.get(bound) or {}).items()):
                text = f"{word} {name} usage per PersistentVolumeClaim is {quantity.canonical(enforced)}"
                if name not in requests:
                    found.append(f"{text}.  No request is specified")
                elif wrong(requests[name], enforced):
                    found.append(f"{text}, but request is {quantity.canonical(requests[name])}")
    return found


def _less(a: quantity.Quantity, b: quantity.Quantity) -> bool:
    return quantity.parse(a) < quantity.parse(b)


def _more(a: quantity.Quantity, b: quantity.Quantity) -> bool:
    return quantity.parse(a) > quantity.parse(b)


def _check(item: Object, kind: str, resources: Resources) -> Iterator[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    bounds: tuple[tuple[str, str, str, Callable[[Any, Any], bool], Resources, Resources], ...] = (
        ("min", "minimum", "request", _less, requests, limits),
        ("max", "maximum", "limit", _more, limits, requests),
    )
    for bound, word, first, wrong, main, other in bounds:
        second = "limit" if first == "request" else "request"
        for name, enforced in sorted((item.get(bound) or {}).items()):
            text = f"{word} {name} usage per {kind} is {quantity.canonical(enforced)}"
            if name not in main:
                yield f"{text}.  No {first} is specified"
            elif wrong(main[name], enforced):
                yield f"{text}, but {first} is {quantity.canonical(main[name])}"
            elif name in other and wrong(other[name], enforced):
                yield f"{text}, but {second} is {quantity.canonical(other[name])}"
    for name, enforced in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        text = f"{name} max limit to request ratio per {kind} is {quantity.canonical(enforced)}"
        request, limit = (quantity.parse(r.get(name, 0)) for r in (requests, limits))
        if not request:
            yield f"{text}, but no request is specified or request is 0"
        elif not limit:
            yield f"{text}, but no limit is specified or limit is 0"
        elif limit / request > quantity.parse(enforced):
            yield f"{text}, but provided ratio is {limit / request:.6f}"
