"""A long churn: 60 pods of every kind come and go while daemons are killed and stopped at random; nothing may stay.

    sudo scripts/bench soak                                   ten minutes
    python -m bench.soak --seconds 120 --pods 20 --seed 7     shorter, and the same faults and choices again

Meanwhile clients write by compare-and-swap and watch: no acknowledged write may be lost, and each is reported once and in order
(tests/support/history.py). No pod may go back to a phase that it has left, and no container of a Deployment that is
left alone may be restarted. At the end everything is deleted, and whatever of it is left on the machine (sandboxes, mounts,
links, cgroups, folders, logs, processes, rules, threads, open files) is listed; the exit code says whether all was well.
What was seen is printed as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from typing import Any

from bench import signals
from bench.soak_faults import DAEMONS, Faults
from bench.soak_leaks import cleaned, grown, present, sizes
from bench.soak_site import Site, site
from tests.support.cluster import BUSYBOX, Cluster, cluster, eventually, prefix
from tests.support.history import History
from tests.support.kube import container_ids, wait_pods, web
from tests.support.pod_churn import batch

NAMESPACE, STEADY = "soak", "steady"
FAULT_SECONDS = (4.0, 25.0)
"""Between two faults."""
ANSWER_SECONDS = 120.0
"""Time that a command is retried while daemons are away."""
RANKS = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}
WRONG = (
    "history",
    "left",
    "daemons_that_grew",
    "phases_that_went_back",
    "service",
    "containers_that_restarted",
    "tracebacks",
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--pods", type=int, default=60)
    options.add_argument("--seed", type=int, default=int(time.time()))
    given = options.parse_args()
    print(f"seed {given.seed}", file=sys.stderr, flush=True)
    signals.end_in_order()
    name = f"wherry-s{os.getpid()}"
    with prefix(name) as folder, site(folder) as parts, cluster(name, folder) as made:
        found = soak(made, parts, given.seconds, given.pods, given.seed)
    print(json.dumps({"seed": given.seed, **found}, indent=1))
    sys.exit(1 if any(found[what] for what in WRONG) else 0)


def soak(made: Cluster, parts: Site, seconds: float, pods: int, seed: int) -> dict[str, Any]:
    """Churn for so many seconds; return what was done and what was left."""
    for namespace in (NAMESPACE, STEADY):
        made.kubectl("create", "namespace", namespace)
        account = ("get", "serviceaccount", "default", "-n", namespace)
        eventually(lambda account=account: made.kubectl(*account, check=False).returncode == 0, "the account")  # type: ignore[misc]
    address = web(made, STEADY, 2)
    made.kubectl("apply", "-n", STEADY, "-f", "-", input=json.dumps(user(parts)))
    wait_pods(made, STEADY, "app=files", 1)
    steady, before, daemons = container_ids(made), present(made), sizes(made)
    made.kubectl("create", "configmap", "words", "--from-literal=a=b", "-n", NAMESPACE)
    faults = Faults(made, parts, random.Random(f"faults {seed}"))
    history = History([made], "churn=yes", NAMESPACE, seconds + 900)
    wrong, number = "", 0
    try:
        with history.running():
            number = churn(made, seconds, pods, random.Random(seed), faults)
    except AssertionError as error:
        wrong = str(error)
    faults.over()
    insist(made, "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s")
    left, clean = cleaned(made, before)
    return {
        "seconds": seconds,
        "pods": number * len(batch(0)),
        "faults": dict(sorted(faults.done.items())),
        "writes": len(history.acknowledged),
        "history": wrong,
        "left": left,
        "clean_after_seconds": clean,
        "daemons_before": daemons,
        "daemons_that_grew": grown(made, daemons),
        "daemons_after": sizes(made),
        "phases_that_went_back": went_back(history.phases),
        "containers_that_restarted": sorted(set(steady.items()) ^ set(container_ids(made).items())),
        "service": sorted({made.http(address) for _ in range(20)} - answers(made)),
        "tracebacks": {d: n for d in DAEMONS if (n := made.log(d).count("Traceback"))},
        "agent_errors": [line for line in made.log("agent").splitlines() if " E " in line][:20],
    }


def user(parts: Site) -> dict[str, Any]:
    """Return a pod with a volume of the file server."""
    mounts = [{"name": "files", "mountPath": "/files"}]
    container = {"name": "c", "image": BUSYBOX, "command": ["sleep", "100000"], "volumeMounts": mounts}
    volume = {"name": "files", "hostPath": {"path": str(parts.files.path), "type": "Directory"}}
    metadata = {"name": "files", "labels": {"app": "files"}}
    spec = {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def churn(made: Cluster, seconds: float, pods: int, chance: random.Random, faults: Faults) -> int:
    """Create and delete pods, and do faults; return the number of batches."""
    alive: list[str] = []
    number, end, next_fault = 0, time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        while len(alive) < pods:
            number += 1
            wanted = batch(number)
            alive += [p["metadata"]["name"] for p in wanted]
            manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
            insist(made, "apply", "-n", NAMESPACE, "-f", "-", input=manifest)
        if time.monotonic() >= next_fault:
            faults.one()
            next_fault = time.monotonic() + chance.uniform(*FAULT_SECONDS)
        going = chance.sample(alive, chance.randint(1, 12))
        force = ["--force"] if chance.random() < 0.2 else []
        insist(made, "delete", "pods", *going, "-n", NAMESPACE, "--wait=false", "--ignore-not-found", *force)
        alive = [name for name in alive if name not in going]
        time.sleep(chance.uniform(0.0, 3.0))
    return number


def insist(made: Cluster, *arguments: str, input: str | None = None) -> None:
    """Run a kubectl command until it succeeds: the server may be away."""

    def done() -> bool:
        result = made.kubectl(*arguments, "--request-timeout=20s", input=input, check=False)
        assert result.returncode == 0, result.stderr
        return True

    eventually(done, arguments[0], ANSWER_SECONDS, every=0.5)


def answers(made: Cluster) -> set[str]:
    """Return what the steady pods may answer."""
    return {f"{pod['metadata']['name']} v1" for pod in made.get("pods", "-n", STEADY)["items"]}


def went_back(phases: dict[str, list[str]]) -> list[str]:
    """Return the pods of which a phase was seen after a later one."""
    found = []
    for name, seen in phases.items():
        ranks = [RANKS.get(phase, 0) for phase in seen]
        if ranks != sorted(ranks) or ranks.count(2) > 1:
            found.append(f"{name}: {' -> '.join(seen)}")
    return found


if __name__ == "__main__":
    main()
