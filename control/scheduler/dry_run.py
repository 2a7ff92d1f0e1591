"""Filters of one pod for one node, for a dry run that removes pods from that node and adds them again.

Every filter is evaluated again at each check, except for plugins that count all nodes: those with `dry_run` count once and
follow the pods that are removed and added (upstream: PreFilterExtensions).
"""

from __future__ import annotations

from control.scheduler.cluster import Cluster
from control.scheduler.framework import DryRunState, PreFilterRejected, Profile
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo


class DryRun:
    """One pod's filters. They are valid until the cluster changes by anything else than this dry run."""

    def __init__(self, pod: PodInfo, profile: Profile, cluster: Cluster) -> None:
        """Raises Unfinished."""
        self._pod, self._profile, self._cluster = pod, profile, cluster
        self._changes = cluster.changes
        self._following: dict[str, DryRunState | None] = {
            use.plugin.name: use.plugin.dry_run(pod, cluster)
            for use in profile.cluster
            if use.filters and hasattr(use.plugin, "dry_run")
        }
        self._states = [state for state in self._following.values() if state is not None]

    @property
    def valid(self) -> bool:
        """True if no pods or nodes have changed since."""
        return self._changes == self._cluster.changes

    def prepare(self, pod: PodInfo, node: NodeInfo) -> None:
        """Compare a pod of the node with selectors, before it is removed."""
        for state in self._states:
            state.prepare(pod, node)

    def remove(self, pod: PodInfo, node: NodeInfo) -> None:
        """Remove a pod from the node."""
        self._cluster.remove_for_dry_run(pod, node)
        for state in self._states:
            state.moved(pod, node, -1)

    def add(self, pod: PodInfo, node: NodeInfo) -> None:
        """Add a pod to the node."""
        self._cluster.add_for_dry_run(pod, node)
        for state in self._states:
            state.moved(pod, node, 1)

    def fits(self, node: NodeInfo) -> bool:
        """Return whether the pod passes every filter, without and with the pods that are nominated for the node."""
        if not self._passes(node):
            return False
        nominated = self._cluster.nominations.above(self._pod, node.name)
        if not nominated:
            return True
        for other in nominated:
            self.add(other, node)
        try:
            return self._passes(node)
        finally:
            for other in nominated:
                self.remove(other, node)

    def _passes(self, node: NodeInfo) -> bool:
        if any(plugin.filter(self._pod, node) is not None for plugin in self._profile.filters):
            return False
        for use in self._profile.cluster:
            if not use.filters:
                continue
            name = use.plugin.name
            try:
                state = (
                    self._following[name]
                    if name in self._following
                    else use.plugin.pre_filter(self._pod, self._cluster)
                )
            except PreFilterRejected:
                return False
            if state is not None and state.filter(node) is not None:
                return False
        return True
