"""Extended resources backed by device classes: a pod requests `example.com/gpu: 1` and gets devices through a ResourceClaim.

The class names its resource (`spec.extendedResourceName`), or the resource names its class (`deviceclass.resource.
kubernetes.io/NAME`). On nodes whose device plugin has the resource nothing changes; on others the scheduler creates a claim for
the pod, with a request for each container and resource. Init containers share the devices of the containers after them.
Upstream: KEP 5004, dynamicresources/extendeddynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from control.scheduler.devices.requests import MOST_RESULTS
from kube.api import core_v1, meta_v1, resource_v1
from kube.object_names import name_of, namespace_of
from kube.pod_requests import amount

IMPLICIT = "deviceclass.resource.kubernetes.io/"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
_LONGEST_BASE = 57


class ExtendedResources:
    """Device class of each extended resource; the newest class if several name the same resource."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    def update(self, classes: Iterable[resource_v1.DeviceClass]) -> bool:
        """Store all classes; True if the class of a resource changed."""
        found: dict[str, str] = {}
        oldest_first = sorted(classes, key=name_of, reverse=True)
        oldest_first.sort(key=lambda c: c.metadata.creation_timestamp or "")
        for one in oldest_first:
            if one.spec.extended_resource_name:
                found[one.spec.extended_resource_name] = name_of(one)
        for one in oldest_first:
            found[IMPLICIT + name_of(one)] = name_of(one)
        changed, self._classes = found != self._classes, found
        return changed

    def class_of(self, resource: str) -> str | None:
        return self._classes.get(resource)

    def backs(self, resources: Iterable[str]) -> bool:
        """True if a class backs one of the resources."""
        return bool(self._classes) and any(resource in self._classes for resource in resources)


class ExtendedResourceRequests(msgspec.Struct):
    """Device requests of the claim that a pod needs on a node, and which container each of them is for."""

    requests: list[resource_v1.DeviceRequest] = msgspec.field(default_factory=list)
    mappings: list[core_v1.ContainerExtendedResourceRequest] = msgspec.field(default_factory=list)


def device_requests(pod: core_v1.Pod, resources: Mapping[str, str]) -> ExtendedResourceRequests:
    """Return the device requests for a pod; `resources` maps extended resources to their device classes.

    Of more requests than a claim may have devices not all are returned: the claim cannot be allocated anyway.
    """
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    first_main = len(pod.spec.init_containers)
    sidecars = {i for i, c in enumerate(pod.spec.init_containers) if c.restart_policy == "Always"}
    passing = [i for i in range(first_main) if i not in sidecars]
    lasting = [*sorted(sidecars), *range(first_main, len(containers))]
    found = ExtendedResourceRequests()
    for resource in sorted(resources):
        made: dict[int, resource_v1.DeviceRequest] = {}
        for index in [*lasting, *passing]:
            shares = index < first_main and index not in sidecars
            free = [made[i] for i in sorted(made) if i > index or i not in sidecars] if shares else []
            request = _request(containers[index], index, resource, resources[resource], free, found)
            if request is not None:
                made[index] = request
                found.requests.append(request)
                if len(found.requests) > MOST_RESULTS:
                    return found
    return found


def _request(
    container: core_v1.Container,
    index: int,
    resource: str,
    device_class: str,
    free: Iterable[resource_v1.DeviceRequest],
    found: ExtendedResourceRequests,
) -> resource_v1.DeviceRequest | None:
    asked = container.resources.requests if container.resources is not None else {}
    left = amount(resource, asked[resource]) if resource in asked else 0
    for other in free:
        if left <= 0:
            break
        left -= other.exactly.count or 1 if other.exactly is not None else 0
        found.mappings.append(_mapping(container, resource, other.name))
    if left <= 0:
        return None
    name = f"container-{index}-request-{sorted(asked).index(resource)}"
    found.mappings.append(_mapping(container, resource, name))
    exactly = resource_v1.ExactDeviceRequest(device_class_name=device_class, allocation_mode="ExactCount", count=left)
    return resource_v1.DeviceRequest(name=name, exactly=exactly)


def _mapping(container: core_v1.Container, resource: str, request: str) -> core_v1.ContainerExtendedResourceRequest:
    return core_v1.ContainerExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )


def claim_for(pod: core_v1.Pod, requests: list[resource_v1.DeviceRequest]) -> resource_v1.ResourceClaim:
    """Return the claim to create for a pod, which owns it."""
    owner = meta_v1.OwnerReference(
        api_version="v1", kind="Pod", name=name_of(pod), uid=pod.metadata.uid or "", controller=True
    )
    suffix = "-extended-resources-"
    metadata = meta_v1.ObjectMeta(
        namespace=namespace_of(pod),
        generate_name=name_of(pod)[: _LONGEST_BASE - len(suffix)] + suffix,
        annotations={ANNOTATION: "true"},
        owner_references=[owner],
    )
    spec = resource_v1.ResourceClaimSpec(devices=resource_v1.DeviceClaim(requests=requests))
    return resource_v1.ResourceClaim(metadata=metadata, spec=spec)


def is_claim_of(claim: resource_v1.ResourceClaim, pod: core_v1.Pod) -> bool:
    """True if the claim was created for the pod's extended resources; claims of other namespaces may name any pod."""
    return (
        namespace_of(claim) == namespace_of(pod)
        and claim.metadata.annotations.get(ANNOTATION) == "true"
        and any(
            ref.controller and (ref.kind, ref.uid) == ("Pod", pod.metadata.uid)
            for ref in claim.metadata.owner_references
        )
    )
