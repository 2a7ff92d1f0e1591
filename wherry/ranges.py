"""The cluster's address ranges and a node's addresses: one, or one of each family (dual-stack), with commas between.

The first is the primary: the API server, cluster DNS and Services without an ipFamilyPolicy use its family. Functions raise
OptionError with what is wrong.
"""

from __future__ import annotations

from wherry import value_forms
from wherry.errors import OptionError, wrong
from wherry.value_forms import Address, Network

LEAST_ADDRESSES = 16
"""Addresses of a Service range: cluster DNS has the 10th."""
NODE_MASKS = {4: 24, 6: 64}
"""Prefix of a node's part of the pod range, unless the controllers' file has another."""


def networks(option: str, text: str) -> tuple[Network, ...]:
    """Read an option's ranges."""
    found: list[Network] = []
    for part in text.split(","):
        try:
            found.append(value_forms.network(part))
        except ValueError as error:
            raise OptionError([wrong(option, text, str(error))]) from error
    if len({network.version for network in found}) != len(found):
        raise OptionError([wrong(option, text, "one range, or one of IPv4 and one of IPv6")])
    return tuple(found)


def check(services: tuple[Network, ...], pods: tuple[Network, ...]) -> None:
    """Check that the ranges go together."""
    service_cidr, pod_cidr = "service-cidr", "pod-cidr"
    if [network.version for network in services] != [network.version for network in pods]:
        why = f"name ranges of the same families as --pod-cidr {text(pods)}, in the same order"
        raise OptionError([wrong(service_cidr, text(services), why, pod_cidr)])
    for service in services:
        if service.num_addresses < LEAST_ADDRESSES:
            why = f"it holds fewer than {LEAST_ADDRESSES} addresses: choose a larger range"
            raise OptionError([wrong(service_cidr, service, why)])
        for pod in pods:
            if service.version == pod.version and service.overlaps(pod):
                why = f"it overlaps with --pod-cidr {pod}: choose ranges that do not"
                raise OptionError([wrong(service_cidr, service, why, pod_cidr)])


def check_parts(pods: tuple[Network, ...]) -> None:
    """Check that the pod range can be divided among nodes."""
    for pod in pods:
        mask = NODE_MASKS[pod.version]
        if pod.prefixlen > mask:
            raise OptionError([wrong("pod-cidr", pod, f"each node gets a /{mask} of it: choose a larger range")])


def node_addresses(given: str, services: tuple[Network, ...], pods: tuple[Network, ...]) -> tuple[str, ...]:
    """Read a node's addresses, none of which may lie in the cluster's ranges."""
    found = _addresses("node-ip", given)
    for address in found:
        if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
            why = "pods and other nodes cannot reach this; name a routable address"
            raise OptionError([wrong("node-ip", address, why)])
        for option, taken in (("service-cidr", services), ("pod-cidr", pods)):
            for network in taken:
                if address in network:
                    why = f"this machine's address lies in --{option} {network}: choose another range or address"
                    raise OptionError([wrong("node-ip", address, why, option)])
    return tuple(map(str, found))


def cluster_dns(given: str, services: tuple[Network, ...]) -> str:
    """Return the addresses of cluster DNS, the 10th of each service range if none is given."""
    if not given:
        return ",".join(str(network[10]) for network in services)
    found = _addresses("cluster-dns", given)
    for address in found:
        if not any(address in network for network in services):
            why = f"it lies outside of the service range {text(services)}"
            raise OptionError([wrong("cluster-dns", address, why, "service-cidr")])
    return ",".join(map(str, found))


def _addresses(option: str, given: str) -> list[Address]:
    found: list[Address] = []
    for part in given.split(","):
        try:
            found.append(value_forms.address(part))
        except ValueError as error:
            raise OptionError([wrong(option, part.strip(), "not an IP address, such as 192.0.2.1")]) from error
    if len({address.version for address in found}) != len(found):
        raise OptionError([wrong(option, given, "one address, or one of IPv4 and one of IPv6")])
    return found


def text(found: tuple[Network, ...]) -> str:
    return ",".join(map(str, found))
