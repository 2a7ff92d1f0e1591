"""Faults to put into production code, each of which the rules have to find: proof that they can fail."""

from __future__ import annotations

from simulation.changed_imports import Mutant

SURVIVING = frozenset({"former-leaders-write"})
"""Mutants that are not found: a former leader's write fails if its object has changed since, and a pod is bound once."""
MUTANTS = (
    Mutant(
        "informers-miss-deletions",
        "kube.informer",
        "self._remove(key_of(event.object), event.object)",
        "pass",
    ),
    Mutant(
        "failed-keys-are-not-retried",
        "kube.workqueue",
        "self.add_after(key, min(BASE_DELAY * 2 ** min(failures, 30), MAX_DELAY))",
        "pass",
    ),
    Mutant(
        "former-leaders-write",
        "kube.leases",
        'if method != "GET" and not self._elector.in_time:',
        "if False:",
    ),
    Mutant(
        "created-pods-are-never-observed",
        "control.controllers.expectations",
        "found.creations -= count",
        "found.since = self._clock.monotonic()",
    ),
    Mutant(
        "quotas-are-not-enforced",
        "control.admission.resource_quota",
        "used[key] + value > hard[key]",
        "False",
    ),
    Mutant(
        "the-watch-cache-loses-changes",
        "control.storage.resource_cache",
        "        if event.revision <= self.recent.floor:\n",
        "        if event.revision <= self.recent.floor or event.revision % 40 == 0:\n",
    ),
)
