"""A long churn: 60 pods of every kind come and go while faults are drawn at random; nothing may stay.

    sudo scripts/bench soak                                   ten minutes
    python -m bench.soak --seconds 120 --pods 20 --seed 7     shorter, and the same faults and choices again
    python -m bench.soak --only "suspend all"                 one kind of fault (soak_faults.py, soak_kinds.py)
    python -m bench.soak --store etcd                         three members of etcd instead of a file

Meanwhile clients write by compare-and-swap and watch: no acknowledged write may be lost, and each is reported once and in order
(tests/support/history.py). No pod may go back to a phase that it has left, and no container of a Deployment that is
left alone may be restarted. At the end everything is deleted, and whatever of it is left on the machine (sandboxes, mounts,
links, cgroups, folders, logs, processes, rules, threads, open files) is listed; the exit code says whether all was well.
What was seen is printed as one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from bench import signals, soak_kinds, soak_tokens
from bench.soak_api import Unlistable, apply, insist
from bench.soak_etcd import Members, members
from bench.soak_faults import DAEMONS, Faults
from bench.soak_forbidden import Forbidden
from bench.soak_leaks import cleaned, grown, present, sizes
from bench.soak_preloaded import AGE, COMPILER
from bench.soak_pulls import Pulls, large_images
from bench.soak_second_agent import SecondAgent
from bench.soak_site import Site, site
from bench.soak_steady import NAMESPACE as STEADY
from bench.soak_steady import Steady
from tests.support.cluster import Cluster, cluster_on, eventually, prefix
from tests.support.history import History
from tests.support.host import host
from tests.support.pod_churn import batch

NAMESPACE = "soak"
FAULT_SECONDS = (4.0, 25.0)
"""Between two faults."""
FREE = 0.25
"""Part of the disk that must be free at the start: what others write meanwhile must not reach the agent's threshold."""
RANKS = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}
WRONG = (
    "history",
    "left",
    "daemons_that_grew",
    "phases_that_went_back",
    "service",
    "containers_that_restarted",
    "node",
    "pulls_that_failed",
    "invalid_tokens",
    "faults_that_failed",
    "tracebacks",
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--pods", type=int, default=60)
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--only", action="append", default=[], metavar="KIND", help="a kind of fault; may be repeated")
    options.add_argument("--store", choices=("sqlite", "etcd"), default="sqlite")
    given = options.parse_args()
    disk = shutil.disk_usage(tempfile.gettempdir())
    if disk.free < disk.total * FREE:
        sys.exit(
            f"{disk.free * 100 // disk.total} % of the disk is free: below 15 % the agent evicts pods; free some space"
        )
    print(f"seed {given.seed}", file=sys.stderr, flush=True)
    signals.end_in_order()
    with cluster_with_site(given.store) as (made, parts, stored):
        found = Soak(made, parts, stored, given).run()
    print(json.dumps({"seed": given.seed, **found}, indent=1))
    sys.exit(1 if any(found[what] for what in WRONG) else 0)


@contextlib.contextmanager
def cluster_with_site(store: str) -> Iterator[tuple[Cluster, Site, Members | None]]:
    """Bring up a cluster whose dependencies can fail."""
    name = f"wherry-s{os.getpid()}"
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(prefix(name))
        parts = stack.enter_context(site(folder))
        machine = stack.enter_context(host(name))
        stored = stack.enter_context(members(machine, folder / "etcd")) if store == "etcd" else None
        if parts.preloaded is None:
            print(f"there is no {COMPILER}: the clock is not set, and fsync does not fail", file=sys.stderr)
        else:
            parts.preloaded.set_clock(-AGE)
        environment = parts.preloaded.environment if parts.preloaded else {}
        made = stack.enter_context(cluster_on(machine, folder, *(stored.options if stored else ()), env=environment))
        if parts.preloaded is not None:
            parts.preloaded.set_clock(0)
        yield made, parts, stored


class Soak:
    """One run."""

    def __init__(self, made: Cluster, parts: Site, stored: Members | None, given: argparse.Namespace) -> None:
        self._made, self._site, self._given = made, parts, given
        self._steady = Steady(made, parts.files.path)
        self._history = History([made], "churn=yes", NAMESPACE, given.seconds + 1800, compacted=stored is not None)
        self._second = SecondAgent(made, self._history)
        self._stored = stored

    def run(self) -> dict[str, Any]:
        """Churn; return what was done and what was left."""
        made = self._made
        for namespace in (NAMESPACE, STEADY):
            made.kubectl("create", "namespace", namespace)
            account = ("get", "serviceaccount", "default", "-n", namespace)
            eventually(lambda account=account: made.kubectl(*account, check=False).returncode == 0, "the account")  # type: ignore[misc]
        made.kubectl("create", "configmap", "words", "--from-literal=a=b", "-n", NAMESPACE)
        with large_images(made) as images:
            pulls = Pulls(made, images, self._site.disks["containerd"], NAMESPACE)
            self._steady.start()
            before, daemons = present(made), sizes(made)
            done = self._faulty(self._faults(pulls), pulls)
            insist(made, "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s")
            left, clean = cleaned(made, before)
            return {
                **done,
                "left": left,
                "clean_after_seconds": clean,
                "daemons_before": daemons,
                "daemons_that_grew": grown(made, daemons),
                "daemons_after": sizes(made),
                **self._steady.wrong(),
                "tracebacks": {d: n for d in DAEMONS if (n := made.log(d).count("Traceback"))},
                "agent_errors": [line for line in made.log("agent").splitlines() if " E " in line][:20],
            }

    def _faults(self, pulls: Pulls) -> Faults:
        kinds = soak_kinds.of_site(self._site)
        kinds |= soak_kinds.of_pulls(pulls, self._site.disks["containerd"])
        kinds |= soak_kinds.of_unlistable(Unlistable(self._made, NAMESPACE))
        kinds |= soak_kinds.of_forbidden(Forbidden(self._made))
        kinds |= soak_kinds.of_second_agent(self._second)
        if self._stored is not None:
            kinds |= self._stored.kinds()
        suspend = self._site.preloaded.suspend if self._site.preloaded else lambda seconds: None
        chance = random.Random(f"faults {self._given.seed}")
        return Faults(self._made, kinds, chance, tuple(self._given.only), suspend)

    def _faulty(self, faults: Faults, pulls: Pulls) -> dict[str, Any]:
        """Churn and do faults until the time is over and nothing fails any more."""
        given, wrong, number = self._given, "", 0
        try:
            with self._history.running():
                try:
                    number = churn(self._made, given.seconds, given.pods, random.Random(given.seed), faults)
                    faults.over()
                finally:
                    faults.mend()
        except AssertionError as error:
            wrong = str(error)
        return {
            "seconds": given.seconds,
            "pods": number * len(batch(0)),
            "faults": dict(sorted(faults.done.items())),
            "writes": len(self._history.acknowledged),
            "history": wrong,
            "phases_that_went_back": went_back(self._history.phases, self._second.reported),
            "pulls_that_failed": pulls.waiting(),
            "invalid_tokens": soak_tokens.invalid(self._made, NAMESPACE),
            "faults_that_failed": faults.errors,
        }


def churn(made: Cluster, seconds: float, pods: int, chance: random.Random, faults: Faults) -> int:
    """Create and delete pods, and do faults; return the number of batches."""
    alive: list[str] = []
    number, end, next_fault = 0, time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        while len(alive) < pods:
            number += 1
            wanted = batch(number)
            alive += [p["metadata"]["name"] for p in wanted]
            apply(made, NAMESPACE, *wanted)
        if time.monotonic() >= next_fault:
            faults.one()
            next_fault = time.monotonic() + chance.uniform(*FAULT_SECONDS)
        going = chance.sample(alive, chance.randint(1, 12))
        force = ["--force"] if chance.random() < 0.2 else []
        insist(made, "delete", "pods", *going, "-n", NAMESPACE, "--wait=false", "--ignore-not-found", *force)
        alive = [name for name in alive if name not in going]
        time.sleep(chance.uniform(0.0, 3.0))
    return number


def went_back(phases: dict[str, list[str]], excused: set[str]) -> list[str]:
    """Return the pods of which a phase was seen after a later one, except for those that are excused."""
    found = []
    for name, seen in phases.items():
        if name in excused:
            continue
        ranks = [RANKS.get(phase, 0) for phase in seen]
        if ranks != sorted(ranks) or ranks.count(2) > 1:
            found.append(f"{name}: {' -> '.join(seen)}")
    return found


if __name__ == "__main__":
    main()
