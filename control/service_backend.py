"""Where a Service's traffic goes when the server itself is the client: one of its ready endpoints, taken at random.

The server dials endpoints and not the cluster IP, so it needs no proxy on its machine, only a way to the pods.
"""

from __future__ import annotations

import random
from typing import Any

from control.admission.lookup import Lookup
from kube import errors

Object = dict[str, Any]
SLICES = "endpointslices.discovery.k8s.io"
SERVICE_NAME = "kubernetes.io/service-name"


def backend(lookup: Lookup, namespace: str, name: str, port: str) -> tuple[str, int]:
    """Return address and port for a Service's port, named by its name or number ("": its only one).

    Raises 404 where there is no such Service, and 503 where it has no such port or nobody to answer.
    """
    service = lookup.get("services", namespace, name)
    if service is None:
        raise errors.not_found("", "services", name)
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", "")), int(port or 443)
    return _endpoint(lookup, namespace, name, _port_name(service, port))


def _port_name(service: Object, wanted: str) -> str:
    ports = (service.get("spec") or {}).get("ports") or []
    if not wanted and len(ports) == 1:
        return str(ports[0].get("name", ""))
    for port in ports:
        if wanted in (port.get("name"), str(port.get("port"))):
            return str(port.get("name", ""))
    raise errors.unavailable(f'no service port "{wanted}" found for service "{service["metadata"]["name"]}"')


def _endpoint(lookup: Lookup, namespace: str, name: str, port_name: str) -> tuple[str, int]:
    ready: list[tuple[str, int]] = []
    for found in lookup.list(SLICES, namespace):
        if (found["metadata"].get("labels") or {}).get(SERVICE_NAME) != name:
            continue
        ports = [p["port"] for p in found.get("ports") or [] if p.get("name", "") == port_name and p.get("port")]
        for endpoint in found.get("endpoints") or []:
            if ports and (endpoint.get("conditions") or {}).get("ready", True):
                ready += [(address, ports[0]) for address in endpoint.get("addresses") or []]
    if not ready:
        raise errors.unavailable(f'no endpoints available for service "{name}"')
    return random.choice(ready)
