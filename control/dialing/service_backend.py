"""Selects the endpoint if the server itself is a Service's client: a ready endpoint of one of its slices, at random.

The server dials endpoints and not the cluster IP, so it needs no proxy on its machine, only a way to the pods.
"""

from __future__ import annotations

import random

from control.interfaces.lookup import Objects
from kube import errors
from kube.json_object import Object

SLICES = "endpointslices.discovery.k8s.io"
SERVICE_NAME = "kubernetes.io/service-name"


async def backend(lookup: Objects, namespace: str, name: str, port: str, *, only_pods: bool = False) -> tuple[str, int]:
    """Return address and port for a Service's port, named by its name or number ("": its only one).

    Raises 404 if there is no such Service, and 503 where it has no such port or nobody to answer, or is an
    ExternalName, which would lead anywhere that its author likes. `only_pods` goes to the namespace's pods alone, for
    callers who choose the Service (upstream: pkg/registry/core/service/storage, isValidAddress).
    """
    service = lookup.get("services", namespace, name)
    if service is None:
        raise errors.not_found("", "services", name)
    if (service.get("spec") or {}).get("type") == "ExternalName":
        raise errors.unavailable('unsupported service type "ExternalName"')
    port_name = _port_name(service, port)
    async for found in lookup.indexed(SLICES, namespace, name):
        ready = _endpoints(found, port_name)
        random.shuffle(ready)
        for endpoint, address, number in ready:
            if not only_pods or _is_pods(lookup, namespace, endpoint, address):
                return address, number
    raise errors.unavailable(f'no endpoints available for service "{name}"')


def _port_name(service: Object, wanted: str) -> str:
    ports = (service.get("spec") or {}).get("ports") or []
    if not wanted and len(ports) == 1:
        return str(ports[0].get("name", ""))
    for port in ports:
        if wanted in (port.get("name"), str(port.get("port"))):
            return str(port.get("name", ""))
    raise errors.unavailable(f'no service port "{wanted}" found for service "{service["metadata"]["name"]}"')


def _endpoints(found: Object, port_name: str) -> list[tuple[Object, str, int]]:
    """Return the ready endpoints that a slice has of a port, each with an address and the port there."""
    ready: list[tuple[Object, str, int]] = []
    ports = [p["port"] for p in found.get("ports") or [] if p.get("name", "") == port_name and p.get("port")]
    for endpoint in (found.get("endpoints") or []) if ports else ():
        if (endpoint.get("conditions") or {}).get("ready", True):
            ready += [(endpoint, address, ports[0]) for address in endpoint.get("addresses") or []]
    return ready


def _is_pods(lookup: Objects, namespace: str, endpoint: Object, address: str) -> bool:
    """Return whether an endpoint's address is that of the pod it names, in the Service's namespace."""
    target = endpoint.get("targetRef") or {}
    if target.get("kind") != "Pod" or target.get("namespace") != namespace:
        return False
    pod = lookup.get("pods", namespace, target.get("name", ""))
    return pod is not None and any(own.get("ip") == address for own in (pod.get("status") or {}).get("podIPs") or ())
