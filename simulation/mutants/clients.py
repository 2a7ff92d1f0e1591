"""Faults of informers, work queues, expectations and leases: among them stale, intermediate and unobserved states."""

from __future__ import annotations

from simulation.changed_imports import Mutant

INFORMER, QUEUE, LEASES = "kube.informer", "kube.workqueue", "kube.leases"
EXPECTATIONS = "control.controllers.expectations"

CLIENTS = (
    Mutant("informers-miss-deletions", INFORMER, "self._remove(key_of(event.object), event.object)", "pass"),
    Mutant("deletions-during-a-gap-are-missed", INFORMER, "self._objects.keys() - fresh.keys()", "set[str]()"),
    Mutant(
        "recreated-objects-are-taken-for-modified",
        INFORMER,
        "if old is not None and metadata_of(old).uid != metadata_of(obj).uid:",
        "if False:",
    ),
    Mutant(
        "informers-list-stale-caches",
        INFORMER,
        "self._kind, self._namespace, label_selector=self._labels, field_selector=self._fields, **self._options",
        'self._kind, self._namespace, label_selector=self._labels, field_selector=self._fields, resource_version="0", '
        "**self._options",
    ),
    Mutant(
        "failed-keys-are-not-retried",
        QUEUE,
        "self.add_after(key, min(BASE_DELAY * 2 ** min(failures, 30), MAX_DELAY))",
        "pass",
    ),
    Mutant(
        "changes-during-work-are-lost",
        QUEUE,
        "        if key in self._dirty:\n            self._append(key)\n",
        "        self._dirty.discard(key)\n",
    ),
    Mutant("delayed-work-is-lost", "kube.controller", "self.queue.add_after(key, again)", "pass"),
    Mutant(
        "created-pods-are-never-observed",
        EXPECTATIONS,
        "found.creations -= count",
        "found.since = self._clock.monotonic()",
    ),
    Mutant(
        "expectations-are-ignored",
        EXPECTATIONS,
        "if found.creations <= 0 and not found.deletions:",
        "if found:",
    ),
    Mutant("former-leaders-write", LEASES, 'if method != "GET" and not self._elector.in_time:', "if False:"),
    Mutant(
        "leaders-are-fenced-late",
        LEASES,
        "self._clock.boottime() - self._renewed < RENEW_SECONDS",
        "self._clock.boottime() - self._renewed < 10 * RENEW_SECONDS",
    ),
    Mutant(
        "leases-are-taken-early",
        LEASES,
        "expired = self._alone or seen > (spec.lease_duration_seconds or LEASE_SECONDS)",
        "expired = self._alone or seen > RETRY_SECONDS",
    ),
)
