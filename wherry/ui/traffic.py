"""The way of connections to a Service: its addresses, its ports, its endpoints, and which policies stop them.

The policies are evaluated by `wherry why`'s own functions, so that the picture and the story say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kube.api import core_v1, discovery_v1
from kube.client import Client
from kube.clock import SYSTEM
from kube.object_names import name_of, namespace_of
from wherry.why.causes import other_kinds, policies, services
from wherry.why.causes.finders import FINDERS
from wherry.why.causes.pod_ports import of_pod, target
from wherry.why.causes.service_endpoints import endpoint_slices
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause
from wherry.why.reading import Reader

MOST_ENDPOINTS, MOST_PORTS = 50, 20
"""Endpoints and ports of a picture."""
MOST_SERVICES, MOST_PODS = 300, 20
"""Services of a namespace whose policies are evaluated, and pods of each: those of one Service are mostly alike."""


async def picture(client: Client, namespace: str, name: str) -> dict[str, Any]:
    """Return the picture of a Service as JSON data. Raise StatusError if it cannot be read."""
    service = await client.get(core_v1.Service, name, namespace)
    diagnosis = _diagnosis(client)
    spec = service.spec or core_v1.ServiceSpec()
    slices = await endpoint_slices(diagnosis, service)
    pods = await services.pods_behind(diagnosis, service, spec) if spec.selector else ()
    by_name = {name_of(pod): pod for pod in pods}
    ports = spec.ports[:MOST_PORTS]
    found: list[dict[str, Any]] = []
    for one, endpoint in [(each, endpoint) for each in slices for endpoint in each.endpoints]:
        pod = by_name.pop(_pod_name(endpoint), None)
        shown = await _ports(diagnosis, one, pod, ports) if len(found) < MOST_ENDPOINTS else []
        found.append(_endpoint(endpoint) | {"ports": shown})
    found += [_waiting(pod) for pod in by_name.values()]
    causes = await diagnosis.causes(service)
    return {
        "type": spec.type or "ClusterIP",
        "addresses": _addresses(service, spec),
        "ports": [_port(each) for each in ports],
        "endpoints": found[:MOST_ENDPOINTS],
        "hidden": {
            "endpoints": max(0, len(found) - MOST_ENDPOINTS),
            "ports": max(0, len(spec.ports) - MOST_PORTS),
        },
        "causes": [_cause(each) for each in causes],
        "unknown": diagnosis.reader.unknown,
    }


async def stopped(client: Client, namespace: str) -> dict[str, Any]:
    """Return what network policies do to connections to the Services of a namespace, as JSON data."""
    diagnosis = _diagnosis(client)
    found: dict[str, list[dict[str, Any]]] = {}
    listed = await diagnosis.reader.all(core_v1.Service, namespace)
    pods = await diagnosis.reader.all(core_v1.Pod, namespace)
    for service in listed[:MOST_SERVICES]:
        spec = service.spec or core_v1.ServiceSpec()
        behind = [pod for pod in pods if spec.selector and spec.selector.items() <= pod.metadata.labels.items()]
        some = [pod for pod in behind if pod.status.phase not in services.ENDED][:MOST_PODS]
        closed = await policies.blocked(diagnosis, some, spec.ports)
        causes = closed or await policies.limited(diagnosis, some, spec.ports)
        if causes:
            found[name_of(service)] = [_cause(each) for each in causes]
        await diagnosis.time_slice.step()
    hidden = max(0, len(listed) - MOST_SERVICES)
    return {"services": found, "hidden": hidden, "unknown": diagnosis.reader.unknown}


def _diagnosis(client: Client) -> Diagnosis:
    return Diagnosis(Reader(client, SYSTEM.now()), FINDERS, other_kinds.causes)


def _addresses(service: core_v1.Service, spec: core_v1.ServiceSpec) -> list[dict[str, str]]:
    """Return what clients connect to, each with what it is."""
    if spec.type == "ExternalName":
        return [{"text": spec.external_name or "", "what": "name outside of the cluster, which DNS answers"}]
    found = [{"text": f"{name_of(service)}.{namespace_of(service)}.svc", "what": "name in the cluster"}]
    own = [each for each in spec.cluster_ips or [spec.cluster_ip or ""] if each and each != "None"]
    found += [{"text": each, "what": "cluster address"} for each in own]
    if not own:
        found[0]["what"] = "name in the cluster, of the pods themselves (headless)"
    found += [{"text": each, "what": "external address"} for each in spec.external_ips]
    if any(port.node_port for port in spec.ports):
        found.append({"text": "every node", "what": "node ports"})
    balancer = service.status.load_balancer if service.status is not None else None
    for each in balancer.ingress if balancer is not None else ():
        found.append({"text": each.ip or each.hostname or "", "what": "load balancer"})
    return found


def _port(port: core_v1.ServicePort) -> dict[str, Any]:
    return {
        "name": port.name or "",
        "port": port.port,
        "protocol": port.protocol or "TCP",
        "target": str(target(port)),
        "nodePort": port.node_port or 0,
    }


def _pod_name(endpoint: discovery_v1.Endpoint) -> str:
    reference = endpoint.target_ref
    return (reference.name or "") if reference is not None and reference.kind == "Pod" else ""


def _endpoint(endpoint: discovery_v1.Endpoint) -> dict[str, Any]:
    conditions = endpoint.conditions or discovery_v1.EndpointConditions()
    state = "ready" if conditions.ready is not False else "not ready"
    if conditions.terminating:
        state = "ending, serves while no other is ready" if conditions.serving else "ending"
    return {
        "address": ", ".join(endpoint.addresses),
        "node": endpoint.node_name or "",
        "pod": _pod_name(endpoint),
        "state": state,
    }


def _waiting(pod: core_v1.Pod) -> dict[str, Any]:
    """Return a pod that the selector selects and no EndpointSlice has."""
    return {
        "address": pod.status.pod_ip or "",
        "node": pod.spec.node_name or "",
        "pod": name_of(pod),
        "state": "in no EndpointSlice",
        "ports": [],
    }


async def _ports(
    diagnosis: Diagnosis, one: discovery_v1.EndpointSlice, pod: core_v1.Pod | None, ports: Sequence[core_v1.ServicePort]
) -> list[dict[str, Any]]:
    """Return the ports of an endpoint: the number of the Service's, the endpoint's own number, and what stops connections."""
    numbers = {each.name or "": each.port for each in one.ports}
    own = await of_pod(diagnosis, pod) if pod is not None else None
    isolated = pod is not None and bool(await policies.isolating(diagnosis, pod, policies.INGRESS))
    found: list[dict[str, Any]] = []
    for index, port in enumerate(ports):
        number = numbers.get(port.name or "") or (own.number_at(port) if own is not None else None)
        if number is None:
            continue
        closed = await policies.blocked(diagnosis, [pod], [port]) if isolated and pod is not None else ()
        some = await policies.limited(diagnosis, [pod], [port]) if isolated and pod is not None and not closed else ()
        state = "closed" if closed else "limited" if some else "open"
        why = next((each.text for each in (*closed, *some)), "")
        found.append({"of": index, "number": number, "state": state, "why": why})
    return found


def _cause(cause: Cause) -> dict[str, Any]:
    return {"text": cause.text, "fix": cause.fix, "partial": cause.partial, "waits": cause.waits}
