"""Fields of feature gates that are off: a write drops them unless the stored object uses the feature already.

As upstream's dropDisabledFields (pkg/api/pod/util.go, pkg/registry/*/strategy.go). A row names a gate, the fields that it
gates and the places that can contain them; `[*]` stands for every item of a list or every value of a map.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from control.registry.strategy import Strategy
from kube.json_object import Object

_TEMPLATES = {
    ("", "podtemplates"): "template.spec",
    ("", "replicationcontrollers"): "spec.template.spec",
    ("apps", "replicasets"): "spec.template.spec",
    ("apps", "deployments"): "spec.template.spec",
    ("apps", "daemonsets"): "spec.template.spec",
    ("apps", "statefulsets"): "spec.template.spec",
    ("batch", "jobs"): "spec.template.spec",
    ("batch", "cronjobs"): "spec.jobTemplate.spec.template.spec",
}
_POD = {("", "pods"): "spec"}
_POD_SPECS = {**_POD, **_TEMPLATES}
_SLICES = {("resource.k8s.io", "resourceslices"): "spec.devices[*]"}
_CONTAINERS = ("containers[*]", "initContainers[*]", "ephemeralContainers[*]")
_STATUSES = ("containerStatuses[*]", "initContainerStatuses[*]", "ephemeralContainerStatuses[*]")


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of one gate: paths below the place that each resource has them in."""

    gate: str
    places: dict[tuple[str, str], str]
    fields: Sequence[str]
    with_empty: bool = False
    """Drop the object that contained a field as well if nothing else is in it."""


ROWS = (
    Row("ContainerStopSignals", _POD_SPECS, [f"{c}.lifecycle.stopSignal" for c in _CONTAINERS], with_empty=True),
    Row("ClusterTrustBundleProjection", _POD_SPECS, ["volumes[*].projected.sources[*].clusterTrustBundle"]),
    Row("PodCertificateRequest", _POD_SPECS, ["volumes[*].projected.sources[*].podCertificate"]),
    Row("GenericWorkload", _POD_SPECS, ["schedulingGroup"]),
    Row("ImageVolumeWithDigest", {("", "pods"): "status"}, [f"{s}.volumeMounts[*].volumeStatus" for s in _STATUSES]),
    Row("DRANodeAllocatableResources", {("", "pods"): "status"}, ["nodeAllocatableResourceClaimStatuses"]),
    Row("DRANodeAllocatableResources", _SLICES, ["nodeAllocatableResourceMappings"]),
    Row(
        "DRAListTypeAttributes",
        _SLICES,
        [f"attributes[*].{values}" for values in ("bools", "ints", "strings", "versions")],
    ),
    Row(
        "MaxUnavailableStatefulSet",
        {("apps", "statefulsets"): "spec.updateStrategy.rollingUpdate"},
        ["maxUnavailable"],
    ),
)


def drop(strategy: Strategy, obj: Object, old: Object | None) -> None:
    """Drop the fields of gates that are off, except for those that `old` uses already."""
    resource = strategy.resource
    for gate, paths, with_empty in _rows(resource.group, resource.plural):
        if gate in strategy.settings.gates or not _uses(obj, paths) or (old is not None and _uses(old, paths)):
            continue
        for path in paths:
            _remove(obj, path, with_empty=with_empty)


_Path = tuple[str, ...]
_EACH = "[*]"


@functools.cache
def _rows(group: str, plural: str) -> list[tuple[str, list[_Path], bool]]:
    """Return the gates of a resource with the whole paths of their fields, as steps."""
    found = []
    for row in ROWS:
        place = row.places.get((group, plural))
        if place is not None:
            found.append((row.gate, [_steps(f"{place}.{field}") for field in row.fields], row.with_empty))
    return found


def _steps(path: str) -> _Path:
    return tuple(path.replace(_EACH, f".{_EACH}").split("."))


def _holders(value: Any, steps: _Path) -> Iterator[tuple[Any, Object]]:
    """Yield the objects that can contain the last step's field, each after the object that contains it."""
    level: list[tuple[Any, Any]] = [(None, value)]
    for step in steps[:-1]:
        below: list[tuple[Any, Any]] = []
        for _, found in level:
            if step == _EACH:
                items = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
                below += [(found, item) for item in items if item]
            elif isinstance(found, dict) and found.get(step):
                below.append((found, found[step]))
        level = below
    return ((above, found) for above, found in level if isinstance(found, dict))


def _uses(value: Object, paths: Sequence[_Path]) -> bool:
    return any(holder.get(steps[-1]) is not None for steps in paths for _, holder in _holders(value, steps))


def _remove(value: Object, steps: _Path, *, with_empty: bool) -> None:
    for above, holder in _holders(value, steps):
        if holder.pop(steps[-1], None) is not None and with_empty and not holder:
            above.pop(steps[-2])
