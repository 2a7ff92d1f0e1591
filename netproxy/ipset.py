"""The sets of the IPVS mode under upstream's names (pkg/proxy/ipvs/ipset.go), and the lines for `ipset restore`."""

from __future__ import annotations

from collections.abc import Collection

# Set -> what its entries are made of; bitmaps need a range.
SETS = {
    "KUBE-LOOP-BACK": "hash:ip,port,ip",
    "KUBE-CLUSTER-IP": "hash:ip,port",
    "KUBE-EXTERNAL-IP": "hash:ip,port",
    "KUBE-EXTERNAL-IP-LOCAL": "hash:ip,port",
    "KUBE-LOAD-BALANCER": "hash:ip,port",
    "KUBE-LOAD-BALANCER-LOCAL": "hash:ip,port",
    "KUBE-LOAD-BALANCER-FW": "hash:ip,port",
    "KUBE-LOAD-BALANCER-SOURCE-IP": "hash:ip,port,ip",
    "KUBE-LOAD-BALANCER-SOURCE-CIDR": "hash:ip,port,net",
    "KUBE-NODE-PORT-TCP": "bitmap:port",
    "KUBE-NODE-PORT-LOCAL-TCP": "bitmap:port",
    "KUBE-NODE-PORT-UDP": "bitmap:port",
    "KUBE-NODE-PORT-LOCAL-UDP": "bitmap:port",
    "KUBE-NODE-PORT-SCTP-HASH": "hash:ip,port",
    "KUBE-NODE-PORT-LOCAL-SCTP-HASH": "hash:ip,port",
    "KUBE-HEALTH-CHECK-NODE-PORT": "bitmap:port",
    "KUBE-IPVS-IPS": "hash:ip",
}


def set_name(name: str, family: int) -> str:
    """Return the kernel's name of a set: a set has one family, so IPv6 has its own (KUBE-6-CLUSTER-IP), cut at 31."""
    return name if family == 4 else name.replace("KUBE-", "KUBE-6-", 1)[:31]


def set_commands(before: Collection[tuple[str, str]], after: Collection[tuple[str, str]], family: int) -> str:
    """Return the lines for `ipset restore` that lead from one set of entries to another."""
    gone, come = set(before) - set(after), set(after) - set(before)
    lines = [f"add {set_name(name, family)} {entry}" for name, entry in sorted(come)]
    lines += [f"del {set_name(name, family)} {entry}" for name, entry in sorted(gone)]
    return "".join(f"{line}\n" for line in lines)


def create_sets(family: int) -> str:
    """Return the lines for `ipset restore -exist` that make every set that is missing."""
    lines = []
    for name, kind in SETS.items():
        options = " range 0-65535" if kind == "bitmap:port" else (" family inet6" if family == 6 else " family inet")
        more = "" if kind == "bitmap:port" else " maxelem 1048576"
        lines.append(f"create {set_name(name, family)} {kind}{options}{more}")
    return "".join(f"{line}\n" for line in lines)
