"""Listings of what the kernel holds: as large as what the namespaces of a cluster may store."""

from __future__ import annotations

import json
from collections.abc import Callable

from netproxy.ipvs.kernel import parse_entries, parse_servers
from netproxy.nft.listing import decode, parse
from netproxy.xtables.restore_text import parse_save
from tests.support.cost_cases.inputs import cases

SERVERS: dict[str, Callable[[int], str]] = {
    "one": lambda size: (
        "TCP  0A600001:0050 rr\n"
        + "".join(f"  -> {0x0A000000 + n:08X}:0050      Masq    1      0          0\n" for n in range(size // 52))
    ),
    "many": lambda size: "".join(f"TCP  {0x0A600000 + n:08X}:0050 rr\n" for n in range(size // 22)),
}
ENTRIES: dict[str, Callable[[int], str]] = {
    "one set": lambda size: "".join(f"add KUBE-CLUSTER-IP 10.96.1.1,tcp:{n}\n" for n in range(size // 38)),
}
CHAINS: dict[str, Callable[[int], str]] = {
    "one": lambda size: "*nat\n:C - [0:0]\n" + "".join(f"-A C -j C{n}\n" for n in range(size // 12)),
    "many": lambda size: "*nat\n" + "".join(f":C{n} - [0:0]\n-A C{n} -j DROP\n" for n in range(size // 32)),
}
NFT: dict[str, Callable[[int], str]] = {
    "one set": lambda size: _listing([{"set": {"name": "s", "elem": [f"10.2.3.{n}" for n in range(size // 14)]}}]),
    "sets": lambda size: _listing([{"set": {"name": f"s{n}", "elem": ["10.2.3.4"]}} for n in range(size // 46)]),
    "rules": lambda size: _listing([{"rule": {"chain": "c", "expr": [{"drop": None}]}}] * (size // 52)),
}


def _listing(items: list[dict[str, object]]) -> str:
    return json.dumps({"nftables": items})


CASES = [
    *cases("virtual servers", SERVERS, lambda text: parse_servers(text, 4)),
    *cases("entries of sets", ENTRIES, lambda text: parse_entries(text, 4)),
    *cases("chains of iptables", CHAINS, parse_save),
    *cases("a table of nf_tables", NFT, lambda text: parse(decode(text))),
]
