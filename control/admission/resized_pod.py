"""The resources that a pod has or gets during a resize, for quotas: the most of requested, allocated and actual ones.

The node applies a new request later, and may never do so if it is infeasible there. Upstream: PodRequests and PodLimits of
component-helpers/resource with UseStatusResources. Resources of the pod as a whole are treated alike, as the scheduler does.
"""

from __future__ import annotations

from kube.json_object import Object
from kube.quantity import parse


def is_infeasible(pod: Object) -> bool:
    """Return whether a pod requests a resize that its node can never give it."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible" for c in conditions)


def effective_spec(pod: Object, *, requested: bool) -> Object:
    """Return a pod's spec with the resources that it has or gets; `requested`: also those that are infeasible."""
    spec: Object = pod["spec"]
    status: Object = pod.get("status") or {}
    reported = {
        each["name"]: each
        for kind in ("containerStatuses", "initContainerStatuses")
        for each in status.get(kind) or ()
        if each.get("resources") is not None
    }
    whole = spec.get("resources") is not None and status.get("resources") is not None
    if not reported and not whole:
        return spec
    requested = requested or not is_infeasible(pod)
    found = dict(spec)
    for kind in ("containers", "initContainers"):
        if containers := spec.get(kind):
            sidecars_only = kind == "initContainers"
            found[kind] = [
                _container(each, reported, sidecars_only=sidecars_only, requested=requested) for each in containers
            ]
    if whole:
        most = _resources(spec["resources"], status, requested=requested)
        # Resources that the pod as a whole does not name are those of its containers.
        found["resources"] = {
            kind: {name: most[kind].get(name, "0") for name in spec["resources"].get(kind) or ()} for kind in most
        }
    return found


def _container(container: Object, reported: dict[str, Object], *, sidecars_only: bool, requested: bool) -> Object:
    status = reported.get(container["name"])
    if status is None or (sidecars_only and container.get("restartPolicy") != "Always"):
        return container
    return container | {"resources": _resources(container.get("resources") or {}, status, requested=requested)}


def _resources(wanted: Object, status: Object, *, requested: bool) -> dict[str, Object]:
    actual, allocated = status["resources"], status.get("allocatedResources") or {}
    requests = [actual.get("requests") or {}, allocated, *([wanted.get("requests") or {}] if requested else [])]
    limits = [actual.get("limits") or {}, *([wanted.get("limits") or {}] if requested else [])]
    return {"requests": _most(requests), "limits": _most(limits)}


def _most(maps: list[Object]) -> Object:
    found: Object = {}
    for each in maps:
        for name, value in each.items():
            if name not in found or parse(value) > parse(found[name]):
                found[name] = value
    return found
