"""Leaks after a soak: traces of pods on the machine, processes, rules, and daemons that grew."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

from agent.orphans.rules import sweeps_needed
from agent.orphans.sweep import PERIOD_SECONDS
from bench.soak_faults import DAEMONS
from kube import process_files
from tests.support.cluster import Cluster
from tests.support.pod_churn import traces

_REQUEST_TIMEOUT = 120.0
"""Seconds: the default of runtimeRequestTimeout."""
CLEAN_SECONDS = PERIOD_SECONDS * (sweeps_needed(_REQUEST_TIMEOUT, PERIOD_SECONDS) + 1)
"""Time that the machine has to be clean after the last pod was deleted: the agent removes orphans of a containerd that runs
on only after no request of their creation can be under way."""
GROWTH_SECONDS = 120.0
"""Time that a daemon has to give back what its last work took."""
MORE_THREADS, MORE_FILES, MORE_TASKS = 16, 24, 40
"""Threads, files and tasks of asyncio that a daemon may have more than at the start: pools, connections of the last minute."""
IPTABLES = ("filter", "mangle", "nat", "raw", "security")
"""Tables of iptables-nft: their rules are listed by iptables."""
PROXY_METRICS = "127.0.0.1:10249"
Sizes = dict[str, dict[str, int]]


def present(made: Cluster) -> set[str]:
    """List what there is of pods, processes and rules on the machine."""
    names = Counter(_name(pid) for pid in made.host.processes())
    found = traces(made) | {f"process {name} {n}" for name, count in names.items() for n in range(count)}
    for table in ("filter", "mangle"):
        rules = made.host.run("iptables", "-w", "-t", table, "-S").stdout.splitlines()
        found |= {f"rule {table} {rule}" for rule in rules}
    found |= nftables(made.host.run("nft", "--json", "list", "ruleset").stdout)
    return found


def nftables(ruleset: str) -> set[str]:
    """List the rules, sets and elements of a ruleset (JSON of nft), without handles, counters and remaining times.

    Equal rules of a chain are numbered. Elements that time out by themselves are left out.
    """
    names: Counter[str] = Counter()
    for entry in json.loads(ruleset)["nftables"]:
        for kind, value in entry.items():
            table = value.get("name" if kind == "table" else "table")
            if kind == "metainfo" or table in IPTABLES:
                continue
            own = {key: content for key, content in value.items() if key not in ("handle", "elem", "expr")}
            place = f"nftables {kind} {json.dumps(own, sort_keys=True)}"
            names[place] += kind != "rule"
            if kind == "rule":
                expressions = [part for part in value["expr"] if not {"counter", "quota"} & set(part)]
                names[f"{place} {json.dumps(expressions, sort_keys=True)}"] += 1
            for element in value.get("elem", ()) if isinstance(value.get("elem"), list) else ():
                if isinstance(element, dict) and "expires" in element.get("elem", {}):
                    continue
                if isinstance(element, dict) and "elem" in element:
                    element = element["elem"]["val"]
                names[f"{place} {json.dumps(element, sort_keys=True)}"] += 1
    return {f"{name} {n}" for name, count in names.items() for n in range(count)}


def cleaned(made: Cluster, before: set[str]) -> tuple[list[str], float]:
    """Wait until the machine is clean; return what is left, and the seconds that it took."""
    start = time.monotonic()
    while (left := sorted(present(made) - before)) and time.monotonic() - start < CLEAN_SECONDS:
        time.sleep(2)
    return left, round(time.monotonic() - start, 1)


def sizes(made: Cluster) -> Sizes:
    """Return each daemon's threads, open files, proportional set size (KiB) and tasks of asyncio."""
    found: Sizes = {}
    for daemon in DAEMONS:
        folder = Path(f"/proc/{made.pid(daemon)}")
        rollup = dict(line.split()[:2] for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
        found[daemon] = {
            "threads": len(os.listdir(folder / "task")),
            "files": len(os.listdir(folder / "fd")),
            "pss": int(rollup["Pss:"]),
        }
        if daemon != "containerd":
            found[daemon]["tasks"] = _tasks(made, daemon)
    return found


def _tasks(made: Cluster, daemon: str) -> int:
    """Return the number of asyncio tasks of a daemon, from its metrics."""
    if daemon == "netproxy":
        text = made.http(PROXY_METRICS, "/metrics")
    else:
        path = "/metrics" if daemon == "control" else f"/api/v1/nodes/{made.node}/proxy/metrics"
        text = made.kubectl("get", "--raw", path).stdout
    (value,) = (line.split()[1] for line in text.splitlines() if line.startswith("wherry_asyncio_tasks "))
    return int(float(value))


def grown(made: Cluster, before: Sizes) -> list[str]:
    """Wait until no daemon has more than it may have; return those that do."""
    start = time.monotonic()
    while (found := _grown(before, sizes(made))) and time.monotonic() - start < GROWTH_SECONDS:
        time.sleep(2)
    return found


def _grown(before: Sizes, after: Sizes) -> list[str]:
    allowed = {"threads": MORE_THREADS, "files": MORE_FILES, "tasks": MORE_TASKS}
    return [
        f"{daemon}: {before[daemon][what]} {what}, then {after[daemon][what]}"
        for daemon in DAEMONS
        if daemon != "containerd"  # Go starts threads as it likes
        for what, more in allowed.items()
        if after[daemon][what] > before[daemon][what] + more
    ]


def _name(pid: int) -> str:
    """Return a process's program; a shim's with the sandbox that it is of."""
    try:
        arguments = process_files.command_line(Path(f"/proc/{pid}")).decode(errors="replace").split("\0")
        name = process_files.name(Path(f"/proc/{pid}")).decode(errors="replace")
    except (OSError, ValueError):
        return "that has just ended"
    return f"{name} {arguments[arguments.index('-id') + 1]}" if "-id" in arguments else name
