"""Addresses of a Service: EndpointSlices without Ready endpoints, traffic policies without local ones, load balancers."""

from __future__ import annotations

from collections.abc import Sequence

from kube.api import core_v1, discovery_v1
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference

SERVICE_NAME = "kubernetes.io/service-name"
MOST_NAMED = 3


async def endpoint_slices(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[discovery_v1.EndpointSlice]:
    """Return the EndpointSlices of a Service."""
    selector = f"{SERVICE_NAME}={name_of(service)}"
    return await diagnosis.reader.all(discovery_v1.EndpointSlice, namespace_of(service), label_selector=selector)


async def without_selector(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[Cause]:
    """Return why a Service whose EndpointSlices somebody else writes has no addresses."""
    slices = await endpoint_slices(diagnosis, service)
    about = reference(service)
    endpoints = [each for one in slices for each in one.endpoints]
    if not endpoints:
        text = "it has no selector, and nobody has created an EndpointSlice with addresses for it"
        return [Cause(text, commands.edit(about), about)]
    if not any(_ready(each) for each in endpoints):
        first = reference(next(one for one in slices if one.endpoints))
        text = f"it has no selector, and none of the {len(endpoints)} endpoints of its EndpointSlices is ready, as in {first}"
        return [Cause(text, commands.edit(first), first)]
    return _ports(service, slices)


async def slices(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[Cause]:
    """Return a cause if no EndpointSlice has a Ready endpoint, while pods are: the controller that writes them does not run."""
    found = await endpoint_slices(diagnosis, service)
    publishes = service.spec is not None and service.spec.publish_not_ready_addresses
    if any(_ready(each) or publishes for one in found for each in one.endpoints):
        return ()
    what = "has their addresses as ready" if any(one.endpoints for one in found) else "has their addresses"
    pods = "pods have addresses" if publishes else "pods are Ready"
    text = f"its {pods}, and no EndpointSlice {what} yet: if that lasts, no controllers are running"
    return [Cause(text, "kubectl get lease kube-controller-manager -n kube-system -o yaml", reference(service))]


async def local_traffic(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[Cause]:
    """Return a cause for nodes that drop connections because the traffic policy is Local and they have no endpoint."""
    spec, about = service.spec or core_v1.ServiceSpec(), reference(service)
    local = {
        each.node_name
        for one in await endpoint_slices(diagnosis, service)
        for each in one.endpoints
        if _ready(each) and each.node_name
    }
    fields = {
        "internalTrafficPolicy": spec.internal_traffic_policy == "Local",
        "externalTrafficPolicy": spec.external_traffic_policy == "Local" and spec.type == "NodePort",
    }
    if not local or not any(fields.values()):
        return ()
    nodes = sorted(name_of(each) for each in await diagnosis.reader.all(core_v1.Node) if name_of(each) not in local)
    shown = ", ".join(nodes[:MOST_NAMED]) + (f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else "")
    found = []
    for name, is_local in fields.items():
        if is_local and nodes:
            ports = ", ".join(str(port.node_port) for port in spec.ports if port.node_port)
            what = (
                f"connections to the node ports ({ports}) of"
                if name.startswith("external")
                else "connections of pods on"
            )
            text = f"{what} {shown} are dropped: {name} is Local, and there is no Ready pod of it there"
            found.append(Cause(text, commands.patch(about, {"spec": {name: "Cluster"}}), about, partial=True))
    return found


def load_balancer(service: core_v1.Service) -> Sequence[Cause]:
    """Return why a Service of type LoadBalancer has no address."""
    spec, about = service.spec or core_v1.ServiceSpec(), reference(service)
    status = service.status.load_balancer if service.status is not None else None
    if spec.type != "LoadBalancer" or (status is not None and status.ingress):
        return ()
    describe = commands.kubectl("describe", about)
    for each in service.status.conditions if service.status is not None else ():
        if each.status == "False" and each.message:
            return [Cause(f"it has no address of a load balancer: {each.message}", describe, about)]
    text = (
        "it has no address of a load balancer: the cluster has no program that gives one, or all nodes' ports are taken"
    )
    return [Cause(text, describe, about)]


def _ready(endpoint: discovery_v1.Endpoint) -> bool:
    """Return whether an endpoint gets connections; one that does not say so does."""
    return endpoint.conditions is None or endpoint.conditions.ready is not False


def _ports(service: core_v1.Service, slices: Sequence[discovery_v1.EndpointSlice]) -> Sequence[Cause]:
    names = {each.name or "" for one in slices for each in one.ports}
    for port in service.spec.ports if service.spec is not None else ():
        if (port.name or "") not in names:
            first = reference(slices[0])
            named = port.name or "without a name"
            text = f"no EndpointSlice has a port {named} for its port {port.port}: names have to be equal"
            return [Cause(text, commands.edit(first), first)]
    return ()
