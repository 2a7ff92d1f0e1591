"""Faults of controllers, of the scheduler, and of the plans for pods on nodes."""

from __future__ import annotations

from simulation.changed_imports import Mutant

ROLLING, STATEFUL = "control.controllers.deployment.rolling", "control.controllers.statefulset.plan"
TALLY, JOB = "control.controllers.job.tally", "control.controllers.job.plan"
SLICES, BACKENDS = "control.controllers.endpoints.slice_plan", "control.controllers.endpoints.backends"
COLLECTOR, NAMESPACE = "control.controllers.garbage.collector", "control.controllers.namespace"
QUOTAS, DISRUPTION = "control.controllers.resource_quota", "control.controllers.disruption"

CONTROLLERS = (
    Mutant(
        "owners-out-of-sight-are-taken-for-gone",
        "control.controllers.garbage.owner_states",
        "if live is None or live.metadata.uid != owner.uid:",
        "if True:",
    ),
    Mutant(
        "dependents-of-deleted-owners-are-forgotten",
        "control.controllers.garbage.graph",
        "        yield {found for found in self._dependents.get(uid, ()) if found in self.items}\n",
        "        yield NOTHING\n",
    ),
    Mutant("dependents-are-never-orphaned", COLLECTOR, "        if item.orphans_dependents:\n", "        if False:\n"),
    Mutant("owners-do-not-wait-for-dependents", COLLECTOR, "blocking = self.graph.blocking(item.uid)", "blocking = ()"),
    Mutant("namespaces-end-with-content", NAMESPACE, "        if not remains.empty:\n", "        if False:\n"),
    Mutant(
        "namespaces-do-not-wait-for-pods",
        NAMESPACE,
        "    if remains.objects or remains.failures:\n        return remains\n",
        "",
    ),
    Mutant(
        "jobs-count-pods-twice", TALLY, " for pod in pods if FINALIZER in pod.metadata.finalizers}", " for pod in pods}"
    ),
    Mutant(
        "jobs-count-before-the-finalizer-is-gone",
        TALLY,
        "            tally.uncounted_succeeded.append(uid)\n",
        "            tally.succeeded += 1\n",
    ),
    Mutant(
        "jobs-start-too-many-pods",
        JOB,
        "wanted = max(0, min(completions - counted.all_succeeded, parallelism))",
        "wanted = parallelism if completions > counted.all_succeeded else 0",
    ),
    Mutant(
        "job-pods-of-deleted-jobs-keep-the-finalizer",
        "control.controllers.job.controller",
        "        if pod is None or tally.FINALIZER not in pod.metadata.finalizers:\n            return\n",
        "        return\n",
    ),
    Mutant(
        "rollouts-surge-too-far",
        ROLLING,
        "room = wanted(deployment) + max_surge(deployment) - revisions.total_wanted(sets)",
        "room = wanted(deployment)",
    ),
    Mutant(
        "rollouts-take-available-pods",
        ROLLING,
        "    least = wanted(deployment) - max_unavailable(deployment)\n",
        "    least = 0\n",
    ),
    Mutant(
        "old-sets-of-a-scaled-deployment-stay",
        ROLLING,
        "return [Resize(rs, 0) for rs in active(old)]\n    if",
        "return []\n    if",
    ),
    Mutant(
        "ordinals-do-not-wait",
        STATEFUL,
        "        if pod.metadata.deletion_timestamp is not None or not _available(sts, pod, now):\n",
        "        if False:\n",
    ),
    Mutant(
        "the-lowest-ordinal-goes-first",
        STATEFUL,
        "sorted(by_ordinal.keys() - present.keys(), reverse=True)",
        "sorted(by_ordinal.keys() - present.keys())",
    ),
    Mutant(
        "ordinals-are-deleted-without-grace",
        "control.controllers.statefulset.controller",
        'self._client.delete(core_v1.Pod, name_of(pod), namespace_of(pod), uid=pod.metadata.uid or "")',
        "self._client.delete(core_v1.Pod, name_of(pod), namespace_of(pod), grace_period_seconds=0)",
    ),
    Mutant(
        "daemons-of-unfit-nodes-stay",
        "control.controllers.daemonset.plan",
        "        result.delete += [pod for pod in here if pod.metadata.deletion_timestamp is None]\n",
        "        pass\n",
    ),
    Mutant("endpoints-ignore-readiness", SLICES, "(serving and not terminating)", "not terminating"),
    Mutant(
        "endpoints-miss-changes-of-pods",
        BACKENDS,
        "            if not moved and facts(old) == facts(new):\n",
        "            if not moved:\n",
    ),
    Mutant(
        "quotas-are-not-counted-again",
        QUOTAS,
        'if change.type == "DELETED" or (change.old is not None and _charge_changed(change.old, change.new)):',
        "if False:",
    ),
    Mutant(
        "budgets-count-pods-that-are-not-ready",
        DISRUPTION,
        " not in disrupted and pod_rules.is_ready(pod)",
        " not in disrupted",
    ),
    Mutant("budgets-miss-changes-of-pods", DISRUPTION, "self._pods.subscribe(self._pod_changed)", "pass"),
    Mutant(
        "nodes-without-heartbeats-stay-ready",
        "control.controllers.nodes.lifecycle",
        "        if elapsed >= grace:\n            conditions",
        "        if elapsed >= 1e9:\n            conditions",
    ),
    Mutant(
        "evictions-by-taints-never-come",
        "control.controllers.nodes.taint_eviction",
        "        await self._evict(pod)\n        self._scheduled.pop(key, None)\n",
        "        self._scheduled.pop(key, None)\n",
    ),
    Mutant(
        "full-nodes-take-pods",
        "control.scheduler.plugins.node_resources_fit",
        "            len(node.pods) < node.pod_capacity\n",
        "            node.pod_capacity\n",
    ),
    Mutant(
        "assumed-pods-take-no-room",
        "control.scheduler.cluster",
        "            pod.labels = {**pod.labels, **given}\n        self._add(pod, node)\n",
        "            pod.labels = {**pod.labels, **given}\n",
    ),
    Mutant(
        "containers-are-not-restarted",
        "agent.lifecycle.decisions",
        "            elif restarts(pod, container, record):\n                self._restart(container, record, Kind.MAIN)\n",
        "            elif False:\n                self._restart(container, record, Kind.MAIN)\n",
    ),
    Mutant(
        "lost-sandboxes-are-kept",
        "agent.lifecycle.decisions",
        "if not newest.ready or (not newest.ips and not newest.host_network):",
        "if not newest.ips and not newest.host_network:",
    ),
    Mutant("pods-that-restart-have-failed", "agent.status.phase", '    if restarting:\n        return "Running"\n', ""),
    Mutant(
        "statuses-leave-out-conditions",
        "agent.status.patch",
        '        if name == "conditions":\n            was, now = _our_conditions(was), _our_conditions(now)\n',
        '        if name == "conditions":\n            continue\n',
    ),
)
