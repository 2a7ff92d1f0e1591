"""Faults to put into production code, each of which the rules have to find: proof that they can fail."""

from __future__ import annotations

from simulation.mutants.clients import CLIENTS
from simulation.mutants.controllers import CONTROLLERS
from simulation.mutants.registry import REGISTRY
from simulation.mutants.storage import STORAGE

MUTANTS = (*STORAGE, *CLIENTS, *REGISTRY, *CONTROLLERS)
SURVIVING: dict[str, str] = {
    "replayed-watches-miss-the-last-change": "watches from an old revision that is the last one before the present are rare",
    "deletions-ignore-the-revision": "needs a write between the check of a deletion and the deletion",
    "deletions-during-a-gap-are-missed": "needs a deletion while the informer of a leader lists again",
    "recreated-objects-are-taken-for-modified": "needs a deletion and a creation of one name while an informer is behind",
    "informers-list-stale-caches": "an informer lists only on its own member, whose cache it follows then",
    "expectations-are-ignored": "needs a change of a ReplicaSet that overtakes those of its pods",
    "evictions-need-no-disruption": "the validation of budgets refuses a negative number",
    "evictions-do-not-wait-for-the-budget": "the controller counts a changed budget within milliseconds",
    "node-ports-of-other-servers-are-free": "each server reads the stored Services before it assigns a port",
    "the-ledger-of-ports-is-overwritten": "needs two members that assign ports within the same milliseconds",
    "addresses-are-not-recorded": "needs two members that assign addresses within the same milliseconds",
    "bound-pods-are-bound-again": "a scheduler that was paused is fenced",
    "namespaces-that-end-accept-objects": "what is created there is taken back, since the same is checked after the write",
    "owners-out-of-sight-are-taken-for-gone": "needs the watch of an owner to be behind that of its dependents",
    "job-pods-of-deleted-jobs-keep-the-finalizer": "the Job's own deletion removes the finalizers first",
    "old-sets-of-a-scaled-deployment-stay": "the next step of the rolling update scales them down",
    "daemons-of-unfit-nodes-stay": "they are right again when the node is; nothing tells how long they may stay",
    "quotas-are-not-counted-again": "the departure of any object and five minutes cause a count too",
    "nodes-without-heartbeats-stay-ready": "nodes and leaders fail for ten minutes at most, so no shorter time is a fault",
    "evictions-by-taints-never-come": "likewise: pods tolerate a lost node for five minutes",
    "full-nodes-take-pods": "the scheduler prefers other nodes before the small one is full",
    "assumed-pods-take-no-room": "the same, within the milliseconds of a binding",
    "lost-sandboxes-are-kept": "a simulated container starts without a sandbox that is ready",
    "pods-that-restart-have-failed": "a simulated container restarts in the step in which it ends, before its status is sent",
}
"""Mutants that are not found within four seeds, and why."""
