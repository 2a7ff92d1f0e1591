"""Evaluates a Job's policies: for a failed pod (does it count, or fail the Job) and for success before all is done.

Upstream: pkg/controller/job/{pod_failure_policy,success_policy}.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.controllers.job import indexes
from kube.api import batch_v1, core_v1

COUNT, IGNORE, FAIL_JOB, FAIL_INDEX = "Count", "Ignore", "FailJob", "FailIndex"


def judge(policy: batch_v1.PodFailurePolicy | None, pod: core_v1.Pod) -> tuple[str, str]:
    """Return (action, message) for a failed pod; the first rule that matches decides."""
    for number, rule in enumerate(policy.rules if policy else ()):
        if rule.on_exit_codes is not None:
            hit = _matching_exit(rule.on_exit_codes, pod)
            if hit is not None:
                name, code = hit
                where = f"Container {name} for pod {pod.metadata.namespace}/{pod.metadata.name}"
                return (
                    rule.action,
                    f"{where} failed with exit code {code} matching {rule.action} rule at index {number}",
                )
        for pattern in rule.on_pod_conditions:
            for condition in pod.status.conditions:
                if (condition.type, condition.status) == (pattern.type, pattern.status or "True"):
                    who = f"Pod {pod.metadata.namespace}/{pod.metadata.name} has condition {condition.type}"
                    return rule.action, f"{who} matching {rule.action} rule at index {number}"
    return COUNT, ""


def _matching_exit(
    requirement: batch_v1.PodFailurePolicyOnExitCodesRequirement, pod: core_v1.Pod
) -> tuple[str, int] | None:
    for status in pod.status.init_container_statuses + pod.status.container_statuses:
        if requirement.container_name and requirement.container_name != status.name:
            continue
        ended = status.state.terminated if status.state else None
        if ended is None or ended.exit_code == 0:
            continue
        listed = ended.exit_code in requirement.values
        if listed is (requirement.operator == "In"):
            return status.name, ended.exit_code
    return None


def succeeded_early(policy: batch_v1.SuccessPolicy | None, done: indexes.Indexes, completions: int) -> str:
    """Return the message of the success policy rule that a Job meets; "" if it meets none."""
    if not done.intervals:
        return ""
    for number, rule in enumerate(policy.rules if policy else ()):
        named = indexes.parse(rule.succeeded_indexes, completions) if rule.succeeded_indexes else None
        hits = len(done & named) if named is not None else len(done)
        needed = rule.succeeded_count if rule.succeeded_count is not None else len(named or ())
        if needed and hits >= needed:
            return f"Matched rules at index {number}"
    return ""


class EarlySuccess:
    """Results of `succeeded_early` by the UID of the Job: rules of a megabyte are not read again until something changes."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, indexes.Indexes, int, str]] = {}

    def message(
        self,
        uid: str,
        generation: int,
        policy: batch_v1.SuccessPolicy | None,
        done: indexes.Indexes,
        completions: int,
    ) -> str:
        """Return the message of the success policy rule that a Job meets; "" if it meets none."""
        if policy is None:
            return ""
        known = self._known.get(uid)
        if known is not None and known[:3] == (generation, done, completions):
            return known[3]
        found = succeeded_early(policy, done, completions)
        self._known[uid] = generation, done, completions, found
        return found

    def forget(self, uid: str) -> None:
        """Forget a Job that was deleted."""
        self._known.pop(uid, None)


def restarts(pods: Sequence[core_v1.Pod]) -> int:
    """Add up the restarts of running pods, which count as failures where the kubelet restarts containers."""
    return sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in ("Running", "Pending")
        for status in pod.status.init_container_statuses + pod.status.container_statuses
    )
