"""A cluster under hostile load: effect on well-behaved clients, and memory that remains afterwards.

    scripts/bench hostile [ATTACK...] [--seconds 15]        prints one JSON object; all attacks unless some are named

The attacks (bench/hostile_attacks.py) come from one client without credentials, or from one with few permissions: at the API
server (ConfigMaps of a namespace) or at the kubelet (metrics of nodes). It has the same address as everybody else. For each:
the 99th percentile of what clients wait for (bench/hostile_probes.py) while it is quiet and while the attack continues, in
milliseconds; and the attacked daemon's memory (proportional set size, MiB) before, at most, and after, when the attacker has
gone and the limits' times are over. `over` lists what is beyond the bounds: thrice the quiet time, 20 % more memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bench import signals
from bench.cluster import memory
from bench.hostile_attacks import ATTACKS, Targets
from tests.support.cluster import BUSYBOX, Cluster, cluster

PROBES = {
    "control": ("livez", "lease", "pod"),
    "agent": ("healthz", "lease", "pod"),
    "netproxy": ("proxy", "dns", "dns_tcp", "livez"),
}
DAEMONS = {"api": "control", "low": "control", "kubelet": "agent", "proxy": "netproxy", "dns": "netproxy"}
SLOWER, LARGER = 3.0, 1.2
SETTLE = 75.0
"""Seconds after an attack within which memory is given back: the longest limit's time, and one look at what is free."""
PATH = {"PYTHONPATH": os.getcwd()}
NAMESPACE, OBJECTS = "hostile", 1000
ROLE = f"""
apiVersion: v1
kind: List
items:
- {{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}
- {{apiVersion: v1, kind: Namespace, metadata: {{name: bench}}}}
- {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: low, namespace: {NAMESPACE}}}}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {{name: low, namespace: {NAMESPACE}}}
  rules: [{{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create]}}]
- {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: metrics, namespace: {NAMESPACE}}}}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {{name: hostile-metrics}}
  rules: [{{apiGroups: [""], resources: [nodes/metrics], verbs: [get]}}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {{name: hostile-metrics}}
  subjects: [{{kind: ServiceAccount, name: metrics, namespace: {NAMESPACE}}}]
  roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hostile-metrics}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {{name: low, namespace: {NAMESPACE}}}
  subjects: [{{kind: ServiceAccount, name: low, namespace: {NAMESPACE}}}]
  roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: low}}
"""


def program(module: str, *arguments: str) -> tuple[str, ...]:
    return sys.executable, "-m", module, *arguments


@contextlib.contextmanager
def largest(pids: dict[str, int]) -> Iterator[list[float]]:
    """Look at the memory of processes once a second."""
    found, stop = list[float](), threading.Event()

    def look() -> None:
        while not stop.wait(1):
            found.append(memory(pids))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        stop.set()
        looking.join()


def prepare(made: Cluster) -> Targets:
    """Make the client of few rights, and objects for it to list."""
    made.kubectl("apply", "-f", "-", input=ROLE)
    objects = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"object-{number}", "namespace": NAMESPACE},
            "data": {"key": "value" * 800},
        }
        for number in range(OBJECTS)
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    made.kubectl("create", "-f", "-", input=listed, timeout=300)
    low, metrics = (
        made.kubectl("create", "token", account, "-n", NAMESPACE, "--duration=2h").stdout.strip()
        for account in ("low", "metrics")
    )
    loopback = "127.0.0.1"
    return Targets(
        (loopback, 6443),
        (loopback, 10250),
        (loopback, 10256),
        ("10.96.0.10", 53),
        token=low,
        namespace=NAMESPACE,
        metrics_token=metrics,
    )


class Hostile:
    def __init__(self, made: Cluster, targets: Targets, seconds: float) -> None:
        self._made, self._seconds = made, seconds
        self._targets = json.dumps(asdict(targets))

    def _probe(self, names: tuple[str, ...], seconds: float) -> dict[str, float]:
        """Return the 99th percentile of each probe in seconds."""
        kubeconfig = str(self._made.kubeconfig)
        argv = program("bench.hostile_probes", kubeconfig, str(seconds), self._targets, BUSYBOX, *names)
        done = self._made.host.run(*argv, timeout=self._seconds + 200, env=PATH)
        found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
        return {name: sorted(times)[math.ceil(0.99 * len(times)) - 1] for name, times in found.items()}

    def warm_up(self) -> None:
        """Have everything done once that the daemons do the first time alone; it costs them memory for good."""
        for names in PROBES.values():
            self._probe(names, self._seconds)

    def memory(self) -> dict[str, float]:
        """Return the memory of each daemon that is attacked."""
        return {daemon: memory({daemon: self._made.pid(daemon)}) for daemon in PROBES}

    def measure(self, name: str) -> dict[str, Any]:
        """Measure one attack."""
        daemon = DAEMONS[name.partition("_")[0]]
        pids = {daemon: self._made.pid(daemon)}
        probes = PROBES[daemon]
        quiet = self._probe(probes, self._seconds)
        before = memory(pids)
        with self._attack(name), largest(pids) as peak:
            under = self._probe(probes, self._seconds)
        result: dict[str, Any] = {"attack": name, "daemon": daemon}
        over = []
        for probe in probes:
            ratio = round(under[probe] / quiet[probe], 2)
            result[probe] = {
                "quiet_p99_ms": round(quiet[probe] * 1e3, 1),
                "p99_ms": round(under[probe] * 1e3, 1),
                "ratio": ratio,
            }
            if ratio > SLOWER:
                over.append(f"{probe} {ratio}x")
        after = self._settled(pids, before)
        result["memory_mib"] = {
            "before": before,
            "most": max(before, *peak),
            "after": after,
            "ratio": round(after / before, 2),
        }
        if after > before * LARGER:
            over.append(f"memory {after / before:.2f}x")
        if self._made.pid(daemon) != pids[daemon]:
            over.append("restarted")
        result["over"] = over
        return result

    @contextlib.contextmanager
    def _attack(self, name: str) -> Iterator[None]:
        """Have an attack under way; one that failed is no attack that was withstood."""
        argv = program("bench.hostile_attacks", name, str(self._seconds + 15), self._targets)
        argv = (*self._made.host.enter, *argv)
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, env={**os.environ, **PATH}) as attacker:
            try:
                time.sleep(5)
                yield
                if attacker.wait() != 0:
                    raise SystemExit(f"the attack {name} failed")
            finally:
                attacker.kill()

    def _settled(self, pids: dict[str, int], before: float) -> float:
        """Return the memory when it is back, or when the time for that is over."""
        end = time.monotonic() + SETTLE
        while True:
            found = memory(pids)
            if found <= before * LARGER or time.monotonic() > end:
                return found
            time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"some of: {' '.join(ATTACKS)}")
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    unknown = [name for name in options.attacks if name not in ATTACKS]
    if unknown:
        raise SystemExit(f"no attack {unknown[0]}: {' '.join(ATTACKS)}")
    results = []
    signals.end_in_order()
    with cluster(f"wherry-b{os.getpid()}") as made:
        hostile = Hostile(made, prepare(made), options.seconds)
        hostile.warm_up()
        start = hostile.memory()
        for name in options.attacks or ATTACKS:
            results.append(hostile.measure(name))
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
        time.sleep(SETTLE)
        end = hostile.memory()
    over = {each["attack"]: each["over"] for each in results if each["over"]}
    # What attacks leave may add up; so do the pods and events of the probes, a thousand of them by the end.
    print(json.dumps({"attacks": results, "memory_at_start_mib": start, "memory_at_end_mib": end, "over": over}))


if __name__ == "__main__":
    main()
