"""The lines for `ipvsadm --restore` and `ipset restore` that lead from one state to the next. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from netproxy.ipvs.state import Behaviour, Server

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


HASHING = ("mh", "sh")
"""Schedulers that have flags."""


def server_commands(
    before: Mapping[Server, Behaviour],
    after: Mapping[Server, Behaviour],
    ending: Collection[tuple[Server, str]] = (),
    flags: Sequence[str] = (),
) -> str:
    """Return the lines for `ipvsadm --restore` that lead from one set of virtual servers to another.

    An endpoint that is gone keeps its connections: it gets weight 0 here and is removed when they have ended
    (`retire`). UDP has no end to wait for. `ending` are those that have weight 0 now: they may be wanted again. `flags` are the
    scheduler's.
    """
    lines = []
    for server, new in after.items():
        old = before.get(server)
        head = f"{option(server)} {server}"
        if old is None or (old.scheduler, old.affinity) != (new.scheduler, new.affinity):
            persistent = f" -p {new.affinity}" if new.affinity else ""
            hashing = f" -b {','.join(flags)}" if flags else ""
            lines.append(f"-{'A' if old is None else 'E'} {head} -s {new.scheduler}{persistent}{hashing}")
        known = old.endpoints if old else frozenset()
        lines += [
            f"-{'e' if (server, endpoint) in ending else 'a'} {head} -r {endpoint} -m -w 1"
            for endpoint in sorted(new.endpoints - known)
        ]
        for endpoint in sorted(known - new.endpoints):
            lines.append(f"-d {head} -r {endpoint}" if server.protocol == "udp" else f"-e {head} -r {endpoint} -m -w 0")
    lines += [f"-D {option(server)} {server}" for server in before if server not in after]
    return "".join(f"{line}\n" for line in lines)


def without_flags(servers: Mapping[Server, Behaviour]) -> dict[Server, Behaviour]:
    """Return virtual servers of a hashing scheduler as if they had none: the kernel does not show a scheduler's flags, so
    they are set anew at a start."""
    return {
        server: replace(each, scheduler="") if each.scheduler in HASHING else each for server, each in servers.items()
    }


def option(server: Server) -> str:
    """Return ipvsadm's option for a virtual server of this protocol."""
    return {"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}[server.protocol]


def retire(server: Server, endpoint: str) -> str:
    """Return the line that removes an endpoint for good."""
    return f"-d {option(server)} {server} -r {endpoint}\n"


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
