"""Faults of the API server's rules: deletions, evictions, quotas, allocations, bindings and namespaces."""

from __future__ import annotations

from simulation.changed_imports import Mutant

DELETION, EVICTION = "control.registry.deletion_plan", "control.server.subresources.pods"
BUDGETS, QUOTA = "control.server.subresources.budgets", "control.admission.resource_quota"
LEDGER, ADDRESSES = "control.registry.core.service.port_ledger", "control.registry.core.service.addresses"

REGISTRY = (
    Mutant(
        "finalizers-are-ignored",
        DELETION,
        '    if outcome == "delete":\n        if not finalizers:\n',
        '    if outcome == "delete":\n        if finalizers is not None:\n',
    ),
    Mutant(
        "pods-are-removed-at-once",
        DELETION,
        '    if grace == 0:\n        return "delete"\n    _mark(metadata, grace, now)\n    return "mark"\n',
        '    return "delete"\n',
    ),
    Mutant("policies-of-deletions-are-ignored", DELETION, "return [*rest, wanted] if wanted", "return rest if wanted"),
    Mutant("evictions-ignore-budgets", EVICTION, "        if _needs_budget(pod):\n", "        if False:\n"),
    Mutant("evictions-take-no-disruption", BUDGETS, 'status["disruptionsAllowed"] -= 1', "pass"),
    Mutant("evictions-need-no-disruption", BUDGETS, "    if allowed == 0:\n", "    if allowed is None:\n"),
    Mutant(
        "evictions-do-not-wait-for-the-budget",
        BUDGETS,
        '(status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0)',
        "False",
    ),
    Mutant("quotas-are-not-enforced", QUOTA, "used[key] + value > hard[key]", "False"),
    Mutant("quotas-are-not-charged", QUOTA, "for name in sorted(charged):\n", "for name in ():\n"),
    Mutant(
        "node-ports-of-other-servers-are-free",
        "control.registry.core.service.allocator",
        "            for port in taken - lost:\n",
        "            for port in ():\n",
    ),
    Mutant(
        "the-ledger-of-ports-is-overwritten",
        LEDGER,
        "                await store.update(KEY, value, before.revision)\n",
        "                now = await store.get(KEY)\n"
        "                await store.update(KEY, value, now.revision if now else 0)\n",
    ),
    Mutant(
        "addresses-are-not-recorded",
        ADDRESSES,
        "            await context.create(_record_of(owner_of(obj), ip))\n",
        "            pass\n",
    ),
    Mutant("bound-pods-are-bound-again", EVICTION, '    elif spec.get("nodeName"):\n', "    elif False:\n"),
    Mutant(
        "namespaces-that-end-accept-objects",
        "control.admission.namespace_lifecycle",
        "if is_terminating(namespace):",
        "if False:",
    ),
)
