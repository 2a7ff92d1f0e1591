"""The downward API: a pod's own fields and resources as text, for environment variables and volumes.

Paths and formats are upstream's (pkg/fieldpath, pkg/api/v1/resource/helpers.go).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from agent.lifecycle import find_container
from kube.api import core_v1
from kube.quantity import MOST, Quantity, parse

_DEFAULTED = ("cpu", "memory", "ephemeral-storage")
"""Resources whose limit is that of the pod or the node if the container has none. Huge pages are never overcommitted."""
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


class FieldNotFound(Exception):
    """The path names nothing that the downward API gives."""


def field(pod: core_v1.Pod, path: str, *, host_ips: tuple[str, ...] = (), pod_ips: tuple[str, ...] = ()) -> str:
    """Return a field of the pod. Raise FieldNotFound."""
    metadata, spec = pod.metadata, pod.spec
    if match := _SUBSCRIPT.fullmatch(path):
        values = metadata.labels if match[1] == "labels" else metadata.annotations
        return values.get(match[2], "")
    match path:
        case "metadata.name":
            return metadata.name or ""
        case "metadata.namespace":
            return metadata.namespace or ""
        case "metadata.uid":
            return metadata.uid or ""
        case "metadata.labels":
            return format_map(metadata.labels)
        case "metadata.annotations":
            return format_map(metadata.annotations)
        case "spec.nodeName":
            return spec.node_name or ""
        case "spec.serviceAccountName":
            return spec.service_account_name or ""
        case "status.hostIP":
            return host_ips[0] if host_ips else ""
        case "status.hostIPs":
            return ",".join(host_ips)
        case "status.podIP":
            return pod_ips[0] if pod_ips else ""
        case "status.podIPs":
            return ",".join(pod_ips)
    raise FieldNotFound(f"unsupported fieldPath: {path}")


def default_limits(pod: core_v1.Pod, allocatable: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """Return the limits of a variable whose container has none: the pod's own, else the node's allocatable resources.

    Volumes use the latter alone (pkg/kubelet/kubelet_resources.go, pkg/volume/downwardapi).
    """
    own = pod.spec.resources.limits if pod.spec.resources is not None else {}
    return {**allocatable, **{name: own[name] for name in ("cpu", "memory") if parse(own.get(name, 0))}}


def resource(
    pod: core_v1.Pod,
    selector: core_v1.ResourceFieldSelector,
    defaults: Mapping[str, Quantity],
    container: core_v1.Container | core_v1.EphemeralContainer | None = None,
) -> str:
    """Return a container's request or limit in units of the divisor, rounded up; a missing limit is the default one."""
    if selector.container_name:
        found = find_container(pod, selector.container_name)
        if found is None:
            raise FieldNotFound(f"container {selector.container_name} not found")
        container = found[0]
    if container is None:
        raise FieldNotFound("a container name is required")
    part, _, name = selector.resource.partition(".")
    resources = container.resources or core_v1.ResourceRequirements()
    if part == "limits":
        quantity = resources.limits.get(name, 0)
        if name in _DEFAULTED and not parse(quantity):
            quantity = defaults.get(name, 0)
    elif part == "requests":
        quantity = resources.requests.get(name, resources.limits.get(name, 0))
    else:
        raise FieldNotFound(f"unsupported container resource : {selector.resource}")
    divisor = parse(selector.divisor) if selector.divisor is not None else Decimal(0)
    amount = parse(quantity) / (divisor or Decimal(1))
    return str(min(int(amount.to_integral_value(ROUND_CEILING)), MOST))


def format_map(values: Mapping[str, str]) -> str:
    """Write labels or annotations as key="value" lines, sorted, the value quoted as Go quotes."""
    return "\n".join(f"{key}={json.dumps(values[key], ensure_ascii=False)}" for key in sorted(values))
