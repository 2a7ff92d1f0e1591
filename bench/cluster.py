"""A whole cluster of one node, measured by its users' clocks; see bench/inside.py for what is measured as a client.

    python -m bench.cluster [PART...]        prints one JSON object; all parts unless some are named

Parts: rss (memory: fresh, after all else, and a minute after all of that is deleted), idle (CPU time with 20 pods that do
nothing), pod, burst, churn (each beside the container runtime alone, in the same run), services, probes (100 pods probed
every second), cold (a start).
Times are seconds, memory is MiB (proportional set size, without containerd).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import probes, signals
from bench.inside import NAMESPACE
from tests.support.cluster import BUSYBOX, Cluster, cluster, eventually

DAEMONS = ("control", "agent", "netproxy", "supervisor")
INSIDE = ("pod", "burst", "churn", "services")
PARTS = ("rss", "idle", *INSIDE, "probes", "cold")
IDLE_PODS = 20
EMPTIED_SECONDS = 60


def measure(parts: list[str]) -> dict[str, Any]:
    """Bring a cluster up, load it, take it down."""
    with cluster(f"wherry-b{os.getpid()}") as made:
        result = measure_in(made, lambda: {daemon: made.pid(daemon) for daemon in DAEMONS}, parts)
        if "pod" in parts or "burst" in parts:
            result.update(floor(made))
        if "pod" in parts:
            result["pod_start_over_floor"] = round(result["pod_start_p50"] / result["floor_pod_start"], 2)
        if "burst" in parts:
            ratio = result["burst_pods_per_second"] / result["floor_burst_pods_per_second"]
            result["burst_over_floor"] = round(ratio, 2)
        if "cold" in parts:
            result.update(cold_start(made))
        return result


def measure_in(made: Cluster, pids: Callable[[], dict[str, int]], parts: list[str]) -> dict[str, Any]:
    """Measure a cluster that is there, whose daemons these are."""
    result: dict[str, Any] = {}
    if "rss" in parts:
        result["memory_fresh_mib"] = memory(pids())
    if "idle" in parts:
        result["idle_cpu_percent"] = idle_cpu(made, pids)
    inside = [part for part in INSIDE if part in parts]
    if inside:
        argv = (sys.executable, "-m", "bench.inside", str(made.kubeconfig), BUSYBOX, *inside)
        done = made.host.run(*argv, timeout=570, env={"PYTHONPATH": os.getcwd()})
        result.update(json.loads(done.stdout.splitlines()[-1]))
    if "probes" in parts:
        result.update(probes.measure(made))
    if "rss" in parts:
        result["memory_after_load_mib"] = memory(pids())
        eventually(
            lambda: made.kubectl("get", "namespace", NAMESPACE, check=False).returncode != 0, "all is deleted", 120
        )
        time.sleep(EMPTIED_SECONDS)
        result["memory_emptied_mib"] = memory(pids())
    return result


def floor(made: Cluster) -> dict[str, float]:
    """Measure the container runtime alone, on the same machine in the same run (see bench/floor.py)."""
    endpoint = f"unix://{made.prefix}/run/wherry/containerd.sock"
    argv = (sys.executable, "-m", "bench.floor", endpoint, BUSYBOX)
    done = made.host.run(*argv, timeout=120, env={"PYTHONPATH": os.getcwd()})
    found: dict[str, float] = json.loads(done.stdout)
    return found


def memory(pids: dict[str, int]) -> float:
    """Return the proportional set size of these processes together, in MiB."""
    total = 0
    for pid in pids.values():
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return round(total / 1024, 1)


def ticks(pids: dict[str, int]) -> int:
    """Return the CPU time that these processes have used, in clock ticks."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids.values()]
    return sum(int(user) + int(system) for user, system in (fields[11:13] for fields in stats))


def idle_cpu(made: Cluster, pids: Callable[[], dict[str, int]], seconds: float = 20) -> float:
    """Return the CPU time that the daemons use while 20 pods do nothing, in percent of one core."""
    made.kubectl(
        "create", "deployment", "idle", f"--image={BUSYBOX}", f"--replicas={IDLE_PODS}", "--", "sleep", "1000000"
    )
    made.kubectl("rollout", "status", "deployment/idle", "--timeout=120s", timeout=130)
    time.sleep(15)  # what follows a start: the last statuses, events, a relist
    before = ticks(pids())
    time.sleep(seconds)
    used = round((ticks(pids()) - before) / os.sysconf("SC_CLK_TCK") / seconds * 100, 2)
    made.kubectl("delete", "deployment", "idle")
    made.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=true", timeout=120)
    eventually(lambda: made.ctr("tasks", "list", "-q") == "", "no container is left", 120)
    return used


def cold_start(made: Cluster) -> dict[str, float]:
    """Stop everything and time a start: the whole command, which waits until the node is Ready and DNS answers."""
    made.wherry("down", "--pods")
    began = time.perf_counter()
    made.wherry("up")
    return {"cold_up_command": time.perf_counter() - began}


def main() -> None:
    parts = sys.argv[1:] or list(PARTS)
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise SystemExit(f"no part {unknown[0]}: {' '.join(PARTS)}")
    signals.end_in_order()
    print(json.dumps(measure(parts), indent=1))


if __name__ == "__main__":
    main()
