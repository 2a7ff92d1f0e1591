"""A whole cluster of one node, measured from its cold start to its memory after load; see bench/inside.py."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.cluster import BUSYBOX, Cluster, cluster

DAEMONS = ("control", "agent", "netproxy", "supervisor")


def measure() -> dict[str, Any]:
    """Bring a cluster up, load it, take it down; times in seconds, memory in MiB (PSS, without containerd)."""
    with cluster(f"wherry-b{os.getpid()}") as made:
        result: dict[str, Any] = {"memory_fresh_mib": memory(made), "idle_cpu_percent": idle_cpu(made)}
        inside = made.host.run(
            sys.executable,
            "-m",
            "bench.inside",
            str(made.kubeconfig),
            BUSYBOX,
            timeout=570,
            env={"PYTHONPATH": os.getcwd()},
        )
        result.update(json.loads(inside.stdout.splitlines()[-1]))
        result.update(floor(made))
        result["pod_start_over_floor"] = round(result["pod_start_p50"] / result["floor_pod_start"], 2)
        ratio = result["burst_pods_per_second"] / result["floor_burst_pods_per_second"]
        result["burst_over_floor"] = round(ratio, 2)
        result["memory_after_load_mib"] = memory(made)
        result.update(cold_start(made))
        return result


def floor(made: Cluster) -> dict[str, float]:
    """Measure the container runtime alone, on the same machine in the same run (see bench/floor.py)."""
    endpoint = f"unix://{made.prefix}/run/wherry/containerd.sock"
    argv = (sys.executable, "-m", "bench.floor", endpoint, BUSYBOX)
    done = made.host.run(*argv, timeout=120, env={"PYTHONPATH": os.getcwd()})
    found: dict[str, float] = json.loads(done.stdout)
    return found


def pids(made: Cluster) -> dict[str, int]:
    found = {}
    for daemon in DAEMONS:
        found[daemon] = made.pid(daemon)
    return found


def memory(made: Cluster) -> float:
    """Return the proportional set size of all daemons of ours together."""
    total = 0
    for pid in pids(made).values():
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return round(total / 1024, 1)


def idle_cpu(made: Cluster, seconds: float = 10) -> float:
    """Return the processor time that the daemons use with nothing to do, in percent of one core."""

    def ticks() -> int:
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids(made).values()]
        return sum(int(user) + int(system) for user, system in (fields[11:13] for fields in stats))

    before = ticks()
    time.sleep(seconds)
    return round((ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds * 100, 2)


def cold_start(made: Cluster) -> dict[str, float]:
    """Stop everything and time a start: to /readyz, and to the first new pod Ready."""
    made.wherry("down", "--pods")
    began = time.perf_counter()
    made.wherry("up")
    return {"cold_up_command": time.perf_counter() - began}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
