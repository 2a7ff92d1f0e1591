"""Drops packets to the tunnel's port that do not come from a node's tunnel: table `inet wherry-tunnel` of nf_tables.

VXLAN does not authenticate senders. A machine that reaches the port could deliver any packet, from any pod's address, to pods,
past their network policies. The chains of the table, by hook:

- prerouting: a host port of a pod (the plugin portmap) does not translate packets to a node's tunnel port. In mode vxlan the
  pods of other nodes are reachable only by the tunnel: packets with their addresses from another device are dropped.
- input: drops packets between other addresses than nodes', and those that this node has translated to its own tunnel (for a
  Service with that endpoint): after another node has masqueraded them, they come from a node's address. IPVS translates at
  the same hook, so this chain follows it.
- forward, output: packets that pods send to a node's tunnel port, also through a Service, leave with the address of their
  node, so that node drops them, and likewise what it forwards for others (containers of another engine, virtual machines).
  Processes of the node have its address, too: packets get a mark when they enter the tunnel, which the kernel keeps on
  the packets that carry them, and unmarked packets to the port are dropped. To set a mark takes CAP_NET_ADMIN or CAP_NET_RAW.
- postrouting: drops what is masqueraded to the tunnel's port. Its sender would get packets of other nodes' tunnels, which
  connection tracking takes for replies.

Every mode of routes that may use a tunnel has the table. Each change writes the whole table, in one transaction.
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
    """Return the mark of packets that enter the tunnel; 0 in mode none, where other software may have a tunnel at the port."""
    if node_routes == "none":
        return 0
    return 1 << next(bit for bit in _MARK_BITS if bit != masquerade_bit)


def body(
    nodes: Iterable[Address], port: int, bridge: str, behind: Collection[str] = (), mark: int = 1 << _MARK_BITS[0]
) -> str:
    """Return nft's text for the table's contents; `behind` are ranges of pods whose packets come only by the tunnel."""
    to_tunnels = [f"udp dport {port} {ip} daddr @nodes{f} drop" for f, ip in _FAMILIES]
    strangers = [f"udp dport {port} {ip} saddr != @nodes{f} {ip} daddr @nodes{f} drop" for f, ip in _FAMILIES]
    return (
        _node_sets(nodes)
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


def _node_sets(nodes: Iterable[Address]) -> str:
    """Return the sets of the nodes' addresses, each of them once, as the kernel lists them."""
    known, sets = sorted(set(nodes), key=int), ""
    for family, _ in _FAMILIES:
        listed = ", ".join(str(each) for each in known if each.version == family)
        elements = f"elements = {{ {listed} }}; " if listed else ""
        sets += f"  set nodes{family} {{ type ipv{family}_addr; {elements}}}\n"
    return sets


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
        """Accept packets of these nodes, none of the pods of `bridge`; return whether this or the former table is in force."""
        return await self.write(body(nodes, port, bridge, behind, self._mark))


async def remove() -> None:
    """Remove the table; no error if there is none."""
    await static_table.remove(TABLE)
