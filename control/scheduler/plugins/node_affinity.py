"""NodeAffinity: nodeSelector and required node affinity filter, preferred terms score; a profile may add terms of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control.scheduler.configuration import ConfigurationError
from control.scheduler.framework import Rejection
from control.scheduler.node_selection import NodeSelection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube import serialize
from kube.api import core_v1


class NodeAffinity:
    name = "NodeAffinity"
    weight = 2
    normalized = "up"
    _rejection = Rejection(name, ("node(s) didn't match Pod's node affinity/selector",), unresolvable=True)
    _enforced = Rejection(name, ("node(s) didn't match scheduler-enforced node affinity",), unresolvable=True)

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        self._added: NodeSelection | None = None
        given = (args or {}).get("addedAffinity")
        if given:
            try:
                affinity = serialize.convert(given, core_v1.NodeAffinity)
            except ValueError as error:
                raise ConfigurationError(f"addedAffinity: {error}") from error
            # The added terms are judged as if a pod had them that wants nothing else.
            self._added = NodeSelection(core_v1.PodSpec(affinity=core_v1.Affinity(node_affinity=affinity)))

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Refuse a node that the profile's terms, the selector or the pod's required terms do not match."""
        if self._added is not None and not self._added.matches(node.node):
            return self._enforced
        return None if pod.selection.matches(node.node) else self._rejection

    def applies(self, pod: PodInfo) -> bool:
        """True if there are preferred terms."""
        return pod.selection.prefers or (self._added is not None and self._added.prefers)

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Add up the weights of the preferred terms that match."""
        added = self._added.weight(node.node) if self._added is not None else 0
        return added + pod.selection.weight(node.node)
