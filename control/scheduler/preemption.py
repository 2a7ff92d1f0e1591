"""DefaultPreemption: make room for a pod by evicting less important ones.

The victims on each node that eviction could help are searched in slices (victim_search.py). Of the nodes the one is chosen
whose victims matter least: fewest budgets violated, lowest top priority, lowest sum, fewest, latest start. Upstream:
framework/preemption.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.scheduler.algorithm import Algorithm
from control.scheduler.budgets import Budgets
from control.scheduler.cluster import Cluster
from control.scheduler.framework import Diagnosis, histogram
from control.scheduler.podinfo import PodInfo
from control.scheduler.unfinished import Unfinished
from control.scheduler.victim_search import VictimSearch
from control.scheduler.victims import Victims
from kube import disruption_target

NOT_ELIGIBLE = "not eligible"
"""Beginning of the message for a pod that may not preempt other pods, or no longer may."""
NAME = "DefaultPreemption"
"""Name of the plugin, and key of the search in a pod's cycle_state."""


def not_eligible(pod: PodInfo, cluster: Cluster) -> str:
    """Return why a pod may not preempt; "" where it may."""
    if pod.pod.spec.preemption_policy == "Never":
        return f"{NOT_ELIGIBLE} due to preemptionPolicy=Never."
    # The nomination may not have reached the API, or not have come back from it.
    name = cluster.nominations.node_of(pod.key) or pod.pod.status.nominated_node_name or ""
    nominated = cluster.nodes.get(name)
    if nominated is not None and any(p.priority < pod.priority and _preempted(p) for p in nominated.pods.values()):
        return f"{NOT_ELIGIBLE} due to a terminating pod on the nominated node."
    return ""


def _preempted(pod: PodInfo) -> bool:
    """Return whether a pod is being terminated because of a preemption."""
    return pod.pod.metadata.deletion_timestamp is not None and any(
        c.type == disruption_target.TYPE and c.status == "True" and c.reason == "PreemptionByScheduler"
        for c in pod.pod.status.conditions
    )


def explain(diagnosis: Diagnosis) -> str:
    """Return why preemption helps on no node."""
    reasons = [
        "Preemption is not helpful for scheduling" if r.unresolvable else "No preemption victims found for incoming pod"
        for r in diagnosis.rejections.values()
    ]
    return f"0/{diagnosis.nodes} nodes are available: {histogram(reasons)}."


def find(
    pod: PodInfo, diagnosis: Diagnosis, algorithm: Algorithm, cluster: Cluster, budgets: Budgets
) -> Victims | None:
    """Return the victims whose eviction lets the pod onto a node, or None; raises Unfinished."""
    search = finished_search(pod, diagnosis, algorithm, cluster, budgets)
    victims = choose_victims(search, search.found)
    del pod.cycle_state[NAME]
    return victims


def finished_search(
    pod: PodInfo, diagnosis: Diagnosis, algorithm: Algorithm, cluster: Cluster, budgets: Budgets
) -> VictimSearch:
    """Return the search for victims on each node that eviction could help.

    Raises Unfinished if that takes longer than a slice; the search is in the pod's cycle_state then.
    """
    search = pod.cycle_state.get(NAME)
    if not isinstance(search, VictimSearch):
        search = pod.cycle_state[NAME] = VictimSearch(pod, diagnosis, algorithm, cluster, budgets)
        search.advance()
    if not search.finished:
        raise Unfinished(search.run)
    return search


def choose_victims(search: VictimSearch, found: Sequence[Victims]) -> Victims | None:
    """Return the victims that matter least; raises Unfinished if none are right any more, and a search starts again."""
    victims = search.cheapest(found)
    if victims is None and found and search.restart():
        raise Unfinished(search.run)
    return victims
