"""Routes and addresses of the node's own, set with iproute2.

Every cluster address must end inside the cluster or nowhere. The pod range as a whole is unreachable, under the more
specific routes to this node's bridge and to other nodes. The service range leads to the loopback device: the
node can then open a connection to a cluster IP without any default route, translation sends it on to its endpoint,
and what nothing translates dies on loopback, also while the rules are gone. The route names the node's address as
source, since loopback's own would not do. All routes carry a protocol number, by which they are found again.

Not with a netlink library: a few commands at start do not justify its 24 MB of resident memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kube.process import run

PROTOCOL = 87
"""Our mark in rtm_protocol: not among those that the kernel or /etc/iproute2/rt_protos assign."""
METRIC = 65535


def _family(address: str) -> str:
    return "-6" if ":" in address else "-4"


async def keep_inside(cluster_cidrs: Sequence[str], service_cidrs: Sequence[str], source: str, mtu: int) -> None:
    """Install the routes for the pod and service ranges; `source` is the node's address or "", `mtu` in bytes."""
    for cidr in cluster_cidrs:
        family = _family(cidr)
        await run(
            ["ip", family, "route", "replace", "unreachable", cidr, "proto", str(PROTOCOL), "metric", str(METRIC)]
        )
    for cidr in service_cidrs:
        family = _family(cidr)
        named = ["src", source] if source and _family(source) == family else []
        route = [cidr, "dev", "lo", "proto", str(PROTOCOL), "metric", str(METRIC), "mtu", str(mtu), *named]
        await run(["ip", family, "route", "replace", *route])


async def add_local_address(address: str) -> None:
    """Make an address one of the node's own, on the loopback device; no error where it is already."""
    length = "128" if ":" in address else "32"
    await run(["ip", "link", "set", "lo", "up"])
    await run(["ip", "address", "replace", f"{address}/{length}", "dev", "lo", "scope", "host"])


async def remove_local_address(address: str) -> None:
    length = "128" if ":" in address else "32"
    await run(["ip", "address", "del", f"{address}/{length}", "dev", "lo"], check=False)


async def remove_routes() -> None:
    """Remove every route of ours."""
    for family in ("-4", "-6"):
        await run(["ip", family, "route", "flush", "proto", str(PROTOCOL)], check=False)


async def uplink_mtu(default: int = 1500) -> int:
    """Return the MTU of the device that the default route leads to, or `default` where there is no such route."""
    routes = json.loads((await run(["ip", "-j", "route", "show", "default"], check=False)).stdout or "[]")
    for route in routes:
        if "dev" not in route:
            continue
        links = json.loads((await run(["ip", "-j", "link", "show", "dev", route["dev"]], check=False)).stdout or "[]")
        if links:
            return int(links[0].get("mtu", default))
    return default


async def node_addresses() -> tuple[str, ...]:
    """Return the node's addresses of global scope."""
    found = json.loads((await run(["ip", "-j", "address", "show", "scope", "global"], check=False)).stdout or "[]")
    return tuple(address["local"] for link in found for address in link.get("addr_info", ()) if address.get("local"))


async def remove_bridge(name: str) -> None:
    """Remove the pods' bridge; no error where there is none."""
    await run(["ip", "link", "del", "dev", name], check=False)
