"""The cluster's address ranges and a node's addresses: one, or one of each family (dual-stack), with commas between.

The first is the primary: the API server, cluster DNS and Services without an ipFamilyPolicy use its family.
"""

from __future__ import annotations

import ipaddress

from wherry.errors import WherryError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def networks(option: str, text: str) -> tuple[Network, ...]:
    """Read an option's ranges; WherryError names what is wrong."""
    found: list[Network] = []
    for part in text.split(","):
        try:
            found.append(ipaddress.ip_network(part.strip()))
        except ValueError as error:
            raise WherryError(f"{option} {text}: {error}") from error
    if len({network.version for network in found}) != len(found):
        raise WherryError(f"{option} {text}: one range, or one of IPv4 and one of IPv6")
    return tuple(found)


def check(services: tuple[Network, ...], pods: tuple[Network, ...]) -> None:
    """Raise WherryError if the ranges do not go together."""
    if [network.version for network in services] != [network.version for network in pods]:
        raise WherryError(
            f"--service-cidr {text(services)} and --pod-cidr {text(pods)}: name ranges of the same families, in the same order"
        )
    for service in services:
        for pod in pods:
            if service.version == pod.version and service.overlaps(pod):
                raise WherryError(f"--service-cidr {service} and --pod-cidr {pod} overlap: choose ranges that do not")
    for service in services:
        if service.num_addresses < 16:
            raise WherryError(f"--service-cidr {service} holds fewer than 16 addresses: choose a larger range")


def node_addresses(given: str, taken: tuple[Network, ...]) -> tuple[str, ...]:
    """Read a node's addresses, none of which may lie in the cluster's ranges; WherryError names what is wrong."""
    found: list[Address] = []
    for part in given.split(","):
        try:
            found.append(ipaddress.ip_address(part.strip()))
        except ValueError as error:
            raise WherryError(f"--node-ip {part}: not an IP address") from error
    if len({address.version for address in found}) != len(found):
        raise WherryError(f"--node-ip {given}: one address, or one of IPv4 and one of IPv6")
    for address in found:
        if address.is_loopback or address.is_link_local or address.is_unspecified:
            raise WherryError(f"--node-ip {address}: pods and other nodes cannot reach this; name a routable address")
        for network in taken:
            if address in network:
                raise WherryError(
                    f"this machine's address {address} lies in {network}: choose another --service-cidr or --pod-cidr"
                )
    return tuple(map(str, found))


def cluster_dns(given: str, services: tuple[Network, ...]) -> str:
    """Return the addresses of cluster DNS, the 10th of each service range if none is given; WherryError else."""
    if not given:
        return ",".join(str(network[10]) for network in services)
    found: list[Address] = []
    for part in given.split(","):
        try:
            found.append(ipaddress.ip_address(part.strip()))
        except ValueError as error:
            raise WherryError(f"--cluster-dns {part}: not an IP address") from error
    if len({address.version for address in found}) != len(found):
        raise WherryError(f"--cluster-dns {given}: one address, or one of IPv4 and one of IPv6")
    for address in found:
        if not any(address in network for network in services):
            raise WherryError(f"--cluster-dns {address} lies outside of the service range {text(services)}")
    return ",".join(map(str, found))


def text(found: tuple[Network, ...]) -> str:
    return ",".join(map(str, found))
