"""Addresses that a node may not write into its own status or those of its pods: the addresses of Services.

Others believe these statuses: load balancers, proxies and clients of the node would then send to the node what is for the
Service, or do not serve the Service's address any more. Upstream accepts any address. Only new addresses are checked, so an
object that has one stays writable. Addresses of load balancers count only for Services with a loadBalancerClass, because those
of others may be nodes' own, and external IPs do not count, because administrators set them to nodes' addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Collection, Iterable, Iterator

from control.interfaces.lookup import Lookup
from kube.ip_addresses import canonical, lenient, network
from kube.json_object import Object

NODE_ADDRESSES = ("InternalIP", "ExternalIP")
RANGES, RECORDS = "servicecidrs.networking.k8s.io", "ipaddresses.networking.k8s.io"


def of_node(node: Object) -> set[str]:
    """Return the IP addresses in a node's status."""
    listed = (node.get("status") or {}).get("addresses") or ()
    return _addresses(each.get("address") for each in listed if each.get("type") in NODE_ADDRESSES)


def of_pod(pod: Object) -> set[str]:
    """Return the addresses in a pod's status: its own and its node's."""
    status = pod.get("status") or {}
    listed = [*(status.get("podIPs") or ()), *(status.get("hostIPs") or ())]
    return _addresses([status.get("podIP"), status.get("hostIP"), *(each.get("ip") for each in listed)])


def of_services(lookup: Lookup, new: Collection[str]) -> str:
    """Return the first of new addresses that is, or may become, a cluster IP, with the reason; "" if none is."""
    for address in sorted(new):
        if found := _range_of(lookup, address):
            return f"{address}, which is in the range {found} of Services"
        if lookup.get(RECORDS, "", address) is not None:
            return f"{address}, which is the cluster IP of a Service"
    return ""


async def of_balancers(lookup: Lookup, new: Collection[str]) -> str:
    """Return the first of new addresses that a load balancer has, with its Service; "" if none is. Reads all Services."""
    balanced = {address: key async for key, address in _balanced(lookup)}
    found = next((address for address in sorted(new) if address in balanced), "")
    return f"{found}, which is a load balancer's address of Service {balanced[found]}" if found else ""


def _addresses(texts: Iterable[str | None]) -> set[str]:
    """Return the canonical forms of texts that are IP addresses."""
    found = set()
    for text in filter(None, texts):
        try:
            found.add(str(lenient(text)))
        except ValueError:
            continue  # validation judges it
    return found


def _range_of(lookup: Lookup, text: str) -> str:
    """Return the range of Services that an address is in, "" if there is none."""
    address = lenient(text)
    return next((str(each) for each in _ranges(lookup) if address in each), "")


def _ranges(lookup: Lookup) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for each in lookup.list(RANGES):
        for cidr in (each.get("spec") or {}).get("cidrs") or ():
            try:
                yield network(cidr)
            except ValueError:
                continue


async def _balanced(lookup: Lookup) -> AsyncIterator[tuple[str, str]]:
    """Yield the Services with a loadBalancerClass, each with each address of its load balancer."""
    async for service, _ in lookup.each("services", ""):
        if not (service.get("spec") or {}).get("loadBalancerClass"):
            continue
        for point in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if point.get("ip"):
                metadata = service["metadata"]
                yield f"{metadata.get('namespace')}/{metadata.get('name')}", canonical(point["ip"])
