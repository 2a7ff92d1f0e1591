"""Commands for `ipvsadm --restore` that change one set of virtual servers into another. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from netproxy.ipvs.state import Server, ServerConfig

HASHING = ("mh", "sh")
"""Schedulers that have flags."""


def server_commands(
    before: Mapping[Server, ServerConfig],
    after: Mapping[Server, ServerConfig],
    draining: Collection[tuple[Server, str]] = (),
    flags: Sequence[str] = (),
) -> str:
    """Return the lines for `ipvsadm --restore` that lead from one set of virtual servers to another.

    An endpoint that is gone keeps its connections: it gets weight 0 here and is removed when they have ended
    (`remove_endpoint`). UDP has no end to wait for. `draining` are those of weight 0. `flags` are the
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
            f"-{'e' if (server, endpoint) in draining else 'a'} {head} -r {endpoint} -m -w 1"
            for endpoint in sorted(new.endpoints - known)
        ]
        for endpoint in sorted(known - new.endpoints):
            lines.append(f"-d {head} -r {endpoint}" if server.protocol == "udp" else f"-e {head} -r {endpoint} -m -w 0")
    lines += [f"-D {option(server)} {server}" for server in before if server not in after]
    return "".join(f"{line}\n" for line in lines)


def without_scheduler(servers: Mapping[Server, ServerConfig]) -> dict[Server, ServerConfig]:
    """Return virtual servers of a hashing scheduler as if they had none: the kernel does not show a scheduler's flags, so
    they are set again at a start."""
    return {
        server: replace(each, scheduler="") if each.scheduler in HASHING else each for server, each in servers.items()
    }


def option(server: Server) -> str:
    """Return ipvsadm's option for a virtual server of this protocol."""
    return {"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}[server.protocol]


def remove_endpoint(server: Server, endpoint: str) -> str:
    """Return the line that removes an endpoint for good."""
    return f"-d {option(server)} {server} -r {endpoint}\n"
