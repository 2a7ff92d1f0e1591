"""Drops packets to the tunnel's port that are not from a node of the cluster, and those of pods.

VXLAN carries no proof of its sender: whoever reaches the port could have any packet, from any pod's address, delivered to
pods, past their network policies. So what comes to the port is dropped unless it is from a node's address to a node's.
A pod with the port as its host port (the plugin portmap) gets none of it: nothing may translate it.
Who sends to a node port, or to another address of a Service whose endpoint is the tunnel of the node that gets the packet, has
it translated here: after a node has masqueraded it, it looks like a node's. So what comes in must have been addressed to a
node's tunnel port from the start; what IPVS translates is seen after that.
What a pod sends leaves with its node's address, so each node drops what its pods send to another's port, by a Service too,
and what it forwards to the port for others (containers of another engine, virtual machines), which it may masquerade.
Sockets of the node have its address as well. So packets get a mark when they enter the tunnel, which the kernel keeps on the
packet that carries them, and others to a node's port are dropped: to set a mark needs CAP_NET_ADMIN or CAP_NET_RAW.
Who sends from the tunnel's port by a masquerade that keeps it, or by chance gets it, would be given what other nodes send
to the tunnel from the ports that he sends to: connection tracking takes these for answers. No such packet leaves the node.
In mode vxlan the pods of other nodes are behind the tunnel alone. Packets with their addresses as the source that come by
another device are dropped, for any machine of the network could send these.
The table of nf_tables is there wherever the mode allows a tunnel. It is written whole, in one transaction, when it changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from netproxy.nft import static_table
from netproxy.nft.hooks import AFTER_IPVS, BEFORE_DNAT, BEFORE_RAW, keep_destination
from netproxy.nft.static_table import StaticTable
from netproxy.podnet.node_routes import DEVICE
from netproxy.podnet.outside_guard import foreign
from netproxy.podnet.peers import Address

TABLE = "inet wherry-tunnel"
_MARK_BITS = 12, 11
"""The bit of the mark, and the one if the proxy masquerades by the first. portmap has 13, upstream's proxy and ours 14."""
_AFTER_ALL = 310
"""The priority of the chains at hook `postrouting`: the proxy and other programs use marks and translate until then (srcnat:
100). The kernel stores a connection after that, and none whose first packet is dropped."""
_FAMILIES = ((4, "ip"), (6, "ip6"))


def mark_of(masquerade_bit: int, node_routes: str) -> int:
    """Return the mark of packets that enter the tunnel; 0 if other software has the tunnel, possibly at the same port."""
    if node_routes == "none":
        return 0
    return 1 << next(bit for bit in _MARK_BITS if bit != masquerade_bit)


def body(
    nodes: Iterable[Address], port: int, bridge: str, behind: Collection[str] = (), mark: int = 1 << _MARK_BITS[0]
) -> str:
    """Return nft's text for what is in the table; `behind` are ranges of pods whose packets come by the tunnel alone."""
    known = sorted(nodes, key=lambda each: (each.version, int(each)))
    sets = {}
    for family in (4, 6):
        elements = ", ".join(str(each) for each in known if each.version == family)
        sets[family] = f"elements = {{ {elements} }}; " if elements else ""
    to_tunnels = [f"udp dport {port} {ip} daddr @nodes{f} drop" for f, ip in _FAMILIES]
    strangers = [f"udp dport {port} {ip} saddr != @nodes{f} {ip} daddr @nodes{f} drop" for f, ip in _FAMILIES]
    return (
        f"  set nodes4 {{ type ipv4_addr; {sets[4]}}}\n"
        f"  set nodes6 {{ type ipv6_addr; {sets[6]}}}\n"
        + _sources(behind, bridge)
        + static_table.chain(
            "prerouting",
            *(
                f"fib daddr type local udp dport {port} {ip} daddr @nodes{f} {keep_destination(f)}"
                for f, ip in _FAMILIES
            ),
            kind="nat",
            priority=BEFORE_DNAT,
        )
        + static_table.chain(
            "input",
            *(f"udp dport {port} {ip} {end} != @nodes{f} drop" for f, ip in _FAMILIES for end in ("saddr", "daddr")),
            *(
                f"udp dport {port} {ip} daddr @nodes{f} {what} drop"
                for f, ip in _FAMILIES
                for what in _translated(f, ip, port)
            ),
            priority=AFTER_IPVS,
        )
        + static_table.chain(
            "forward",
            *(f"{what} {to}" for to in to_tunnels for what in (f'iifname "{bridge}"', "ct status dnat")),
            *strangers,
        )
        # A packet that IPVS forwards leaves by this hook, from an address that is not the node's.
        + static_table.chain("output", *(f"ct status dnat {to}" for to in to_tunnels), *strangers)
        + static_table.chain(
            "postrouting",
            *(f"udp sport {port} {ip} saddr @nodes{f} ct status snat drop" for f, ip in _FAMILIES),
            priority=_AFTER_ALL,
        )
        + (_marks(port, f"0x{mark:08x}") if mark else "")
    )


def _translated(family: int, ip: str, port: int) -> tuple[str, str, str]:
    """Return matches of packets that were addressed to another port or address; ip_vs sets no status of the connection."""
    return "ct status dnat", f"ct original proto-dst != {port}", f"ct original {ip} daddr != @nodes{family}"


def _marks(port: int, mark: str) -> str:
    """Return the chains that mark what enters the tunnel, and drop what is sent to the port without."""
    unmarked = (f"udp dport {port} {ip} daddr @nodes{f} meta mark & {mark} != {mark} drop" for f, ip in _FAMILIES)
    return static_table.chain(
        "postrouting", f'oifname "{DEVICE}" meta mark set meta mark | {mark}', priority=_AFTER_ALL, name="marked"
    ) + static_table.chain("output", *unmarked, priority=BEFORE_RAW, name="unmarked")


def _sources(behind: Collection[str], bridge: str) -> str:
    """Return the sets and the chain for packets from pods of other nodes."""
    if not behind:
        return ""
    sets, rules = "", []
    for family, _ in _FAMILIES:
        if found := sorted(each for each in behind if (":" in each) == (family == 6)):
            sets += f"  set pods{family} {{ type ipv{family}_addr; flags interval; elements = {{ {', '.join(found)} }}; }}\n"
            rules.append(foreign((bridge, DEVICE), f"@pods{family}", family))
    return sets + static_table.chain("prerouting", *rules, priority=BEFORE_RAW, name="sources")


class TunnelGuard(StaticTable):
    """The table as last written."""

    def __init__(self, mark: int = 1 << _MARK_BITS[0]) -> None:
        self._mark = mark
        super().__init__(TABLE, "the tunnel to other nodes cannot be guarded, and is not used without")

    async def set(self, nodes: Iterable[Address], port: int, bridge: str, behind: Collection[str] = ()) -> bool:
        """Let these in, but not the pods of `bridge`; return whether the table, or the one before, is in force."""
        return await self.write(body(nodes, port, bridge, behind, self._mark))


async def remove() -> None:
    """Remove the table; no error if there is none."""
    await static_table.remove(TABLE)
