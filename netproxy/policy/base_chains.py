"""Base chains of the policy table: select the packets that policies apply to, and those that always pass. No I/O.

A packet is judged where it is forwarded, after Services were translated, so a policy sees the pods that really talk.
IPVS forwards nothing: its packets come in by hook `input`, get the endpoint's address from ip_vs (priority 99) and leave by
hook `output`. There they still have the client's address, for masquerade comes later, and what the node itself sends has one
of its own. ip_vs's connection tracking, which the mode switches on, gives them the state of the connection to the endpoint.
Answers of endpoints are forwarded in every mode.

Each direction has a base chain of its own, for `accept` ends only its own: what may leave its sender is still judged for
its receiver. What the node sends to its pods or gets from them is never judged: kubelet's probes always arrive.
What a pod sends to itself passes if it comes from the bridge; a packet at hook `output` has no input device.

An address of this node's ranges that no pod is known to have is closed: a pod may have it already, and which policies select
that pod is known when the pod is. So no pod sends or gets anything before its policies are in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netproxy.nft.commands import family_keyword
from netproxy.policy.model import DIRECTIONS, EGRESS, INGRESS

IPVS_PREFIX = "ipvs-"
"""Of the names of chains at hook `output`."""
HOOKS = {
    EGRESS: "type filter hook forward priority -10 ;",
    INGRESS: "type filter hook forward priority -9 ;",
    f"{IPVS_PREFIX}{EGRESS}": "type filter hook output priority -10 ;",
    f"{IPVS_PREFIX}{INGRESS}": "type filter hook output priority -9 ;",
}
LOCAL_PODS, ITSELF = "local-pods", "itself"
OWN = {EGRESS: "saddr", INGRESS: "daddr"}
REACHES_ALL = {4: "fib daddr type { broadcast, multicast }", 6: "ip6 daddr ff00::/8"}
NEIGHBOURS = "{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert }"
"""Passes with hop limit 255 (RFC 4861), which only frames of the bridge have here: routing takes one off before the hook."""


def base_chains(
    family: int, pod_ranges: Iterable[str], *, bridge: str, isolated: bool, ipvs: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each base chain with its rules.

    `pod_ranges` are ranges of which only addresses of known pods may be used, also by connections of a pod that had one before.
    `isolated`: not everybody may send to every pod of `bridge`. A packet to a broadcast or multicast address reaches all of
    them, so then none of them gets it.
    """
    pod_ranges, ip = tuple(pod_ranges), family_keyword(family)
    neighbours = () if family == 4 else (f"ip6 hoplimit 255 icmpv6 type {NEIGHBOURS} accept",)
    established = "ct state established,related accept"
    for direction in DIRECTIONS:
        own = f"{ip} {OWN[direction]}"
        itself = f"{ip} saddr . {ip} daddr @{ITSELF} accept"
        unknown = [f"{own} {cidr} {own} != @{LOCAL_PODS}" for cidr in pod_ranges]
        judged: tuple[str, ...] = (f"{own} vmap @{direction}-pods",)
        if isolated and direction == INGRESS:
            judged = (*judged, f'oifname "{bridge}" {REACHES_ALL[family]} drop')
        from_bridge = f'iifname "{bridge}" {itself}'
        yield direction, (*neighbours, *(f"{match} drop" for match in unknown), established, from_bridge, *judged)
        if ipvs:
            foreign = (f"{match} fib saddr type != local drop" for match in unknown)
            yield (
                f"{IPVS_PREFIX}{direction}",
                (*neighbours, *foreign, established, "fib saddr type local accept", itself, *judged),
            )
