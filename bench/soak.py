"""A long churn: 60 pods of every kind come and go while the agent and containerd are killed at random; nothing may stay.

    sudo scripts/bench soak                                   ten minutes
    python -m bench.soak --seconds 120 --pods 20 --seed 7     shorter, and the same kills and choices again

A watch notes every phase that a pod is in: it must never go back. At the end everything is deleted, and whatever of it is
left on the machine (sandboxes, mounts, network namespaces, links, cgroups, folders, logs) is listed; the exit code says
whether that was nothing. What was seen is printed as one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster, cluster, eventually
from tests.support.pod_churn import batch, traces

NAMESPACE = "soak"
VICTIMS = (("agent",), ("containerd",), ("agent", "containerd"))
KILL_SECONDS = (4.0, 25.0)
"""Between two kills."""
CLEAN_SECONDS = 180.0
"""How long the machine has to be clean after the last pod was deleted: orphans are swept once a minute."""
RANKS = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--pods", type=int, default=60)
    options.add_argument("--seed", type=int, default=int(time.time()))
    given = options.parse_args()
    with cluster(f"wherry-s{os.getpid()}") as made:
        found = soak(made, given.seconds, given.pods, random.Random(given.seed))
    print(json.dumps({"seed": given.seed, **found}, indent=1))
    sys.exit(1 if found["left"] or found["phases_that_went_back"] or found["tracebacks"] else 0)


def soak(made: Cluster, seconds: float, pods: int, chance: random.Random) -> dict[str, Any]:
    """Churn for so many seconds; return what was done and what was left."""
    before = traces(made)
    made.kubectl("create", "namespace", NAMESPACE)
    account = ("get", "serviceaccount", "default", "-n", NAMESPACE)
    eventually(lambda: made.kubectl(*account, check=False).returncode == 0, "the default service account")
    made.kubectl("create", "configmap", "words", "--from-literal=a=b", "-n", NAMESPACE)
    kills: Counter[str] = Counter()
    alive: list[str] = []
    number = 0
    with watching(made) as seen:
        end, next_kill = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            while len(alive) < pods:
                number += 1
                wanted = batch(number)
                alive += [p["metadata"]["name"] for p in wanted]
                manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
                made.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=manifest)
            if time.monotonic() >= next_kill:
                victims = chance.choice(VICTIMS)
                for daemon in victims:
                    made.kill(daemon)
                kills["+".join(victims)] += 1
                next_kill = time.monotonic() + chance.uniform(*KILL_SECONDS)
            going = chance.sample(alive, chance.randint(1, 12))
            force = ["--force"] if chance.random() < 0.2 else []
            made.kubectl("delete", "pods", *going, "-n", NAMESPACE, "--wait=false", *force)
            alive = [name for name in alive if name not in going]
            time.sleep(chance.uniform(0.0, 3.0))
        made.kubectl("delete", "namespace", NAMESPACE, "--timeout=150s", timeout=160)
    left = sorted(traces(made) - before)
    ended = time.monotonic()
    while left and time.monotonic() - ended < CLEAN_SECONDS:
        time.sleep(2)
        left = sorted(traces(made) - before)
    interrupted = leased(made, left) if left and all(line.startswith("snapshot ") for line in left) else []
    left = [line for line in left if line not in interrupted]
    return {
        "seconds": seconds,
        "pods": number * len(batch(0)),
        "kills": dict(kills),
        "left": left,
        "snapshots_that_containerd_leases_for_a_day": interrupted,
        "clean_after_seconds": round(time.monotonic() - ended, 1),
        "phases_that_went_back": went_back(seen),
        "tracebacks": made.log("agent").count("Traceback"),
        "agent_errors": [line for line in made.log("agent").splitlines() if " E " in line][:20],
    }


def leased(made: Cluster, snapshots: list[str]) -> list[str]:
    """Return the snapshots that nothing but containerd's own leases hold.

    containerd takes a lease of a day for what it is making. Killed in the middle it leaves that behind, whoever asked it;
    nothing in CRI shows such a snapshot or removes it. Shown by taking the leases away: what they alone held is gone then.
    """
    for lease in made.ctr("leases", "list", "-q").split():
        made.ctr("leases", "delete", "--sync", lease)
    time.sleep(2)
    there = traces(made)
    return [line for line in snapshots if line not in there]


@contextlib.contextmanager
def watching(made: Cluster) -> Iterator[Path]:
    """Have every version of every pod of the namespace written to a file."""
    path = made.prefix / "soak-watch.json"
    columns = "custom-columns=U:.metadata.uid,N:.metadata.name,P:.status.phase"
    argv = made.kubectl_argv("get", "pods", "-n", NAMESPACE, "--watch", "--no-headers", "-o", columns)
    with path.open("w") as out:
        process = made.host.popen(*argv, stdout=out.fileno())
        try:
            yield path
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)


def went_back(seen: Path) -> list[str]:
    """Return the pods of which a phase was seen after a later one."""
    latest: dict[str, str] = {}
    found = []
    for line in seen.read_text().splitlines():
        uid, name, phase = line.split()
        before = latest.get(uid, "Pending")
        if RANKS.get(phase, 0) < RANKS[before] or (RANKS[before] == 2 and phase != before):
            found.append(f"{name}: {before} -> {phase}")
        latest[uid] = phase
    return found


if __name__ == "__main__":
    main()
