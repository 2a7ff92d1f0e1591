"""Upstream's daemons and Wherry's, one after the other on the same machine, by the same client: the ratios are comparable
between machines.

    python -m bench.upstream [PART...]        prints one JSON object

Parts, as in bench/cluster.py: rss idle pod burst churn services; and api, as bench/api.py
(Wherry's objects in SQLite, its default).

Upstream is Kubernetes v1.20.2 with Debian's etcd, as `scripts/test --conformance` builds it: the newest that can be built from
a package index; with WHERRY_KUBERNETES the version in that folder (tests/conformance/upstream.py).
TLS, RBAC, the node authorizer, containerd, images, CNI plugins and pods are the same on both sides.
`ratios` are Wherry / upstream: below 1 is better for seconds, MiB and percent, above 1 for rates.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import api, signals
from bench import cluster as wherry
from tests.conformance import daemon_flags, daemons, running
from tests.conformance.upstream import chosen
from tests.support.addresses import own_address
from tests.support.cluster import cluster
from tests.support.etcd import etcd
from wherry import defaults

PARTS = ("rss", "idle", *wherry.INSIDE, "api")
API_SECONDS = 4


def measure_upstream(parts: list[str]) -> dict[str, Any]:
    """Put upstream's daemons where Wherry's were, and load them."""
    with cluster(f"wherry-u{os.getpid()}") as made, daemons.exchanged(made, daemons.ALL, dns=False) as theirs:
        return wherry.measure_in(made, theirs.pids, parts)


async def measure_api() -> dict[str, Any]:
    """Measure upstream's API server alone, as `bench.api` measures Wherry's: requests recorded in an audit log."""
    with tempfile.TemporaryDirectory(prefix="wherry-bench-") as name:
        directory = Path(name)
        policy, pid = directory / "audit.yaml", directory / "pid"
        policy.write_bytes(defaults.AUDIT_POLICY.read_bytes())
        async with etcd(directory / "etcd") as stored:
            bench = api.Bench(directory, API_SECONDS)
            argv = [
                str(chosen().binaries / "kube-apiserver"),
                *daemon_flags.api_server(directory / "pki", stored.servers[0], own_address(), bench.port),
                f"--audit-policy-file={policy}",
                f"--audit-log-path={directory}/audit.log",
            ]
            return await api.measure_server(bench, ["sh", "-c", f"printf $$ >{pid}; exec {shlex.join(argv)}"])


def ratio(ours: Any, theirs: Any) -> Any:
    """Return ours / theirs, of each figure that both have."""
    if isinstance(ours, dict):
        return {name: ratio(ours[name], theirs[name]) for name in ours if name in theirs and "floor" not in name}
    return round(ours / theirs, 3)


def main() -> None:
    parts = sys.argv[1:] or list(PARTS)
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise SystemExit(f"no part {unknown[0]}: {' '.join(PARTS)}")
    running.programs(daemons=True)
    signals.end_in_order()
    on_nodes = [part for part in parts if part != "api"]
    theirs, ours = (measure_upstream(on_nodes), wherry.measure(on_nodes)) if on_nodes else ({}, {})
    if on_nodes:  # shown, should the rest fail
        print(json.dumps({"upstream": theirs, "wherry": ours}), file=sys.stderr, flush=True)
    if "api" in parts:
        theirs["api"] = asyncio.run(measure_api())
        ours["api"] = asyncio.run(api.measure(API_SECONDS, on_etcd=False, audited=True))
    print(json.dumps({"upstream": theirs, "wherry": ours, "ratios": ratio(ours, theirs)}, indent=1))


if __name__ == "__main__":
    main()
