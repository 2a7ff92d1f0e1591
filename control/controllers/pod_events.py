"""Enqueueing of the owners of pods, such as DaemonSets, when a pod changes.

A pod that is created or deleted settles what its owner expected. Owners whose selectors match look again at a pod
that has no controller. Upstream: addPod, updatePod and deletePod of the DaemonSet and StatefulSet controllers.
"""

from __future__ import annotations

from typing import Any

from control.controllers.expectations import Expectations
from control.controllers.ownership import controller_of, lost_by
from control.controllers.selector_index import CompiledSelectorIndex
from kube.api import core_v1
from kube.controller import Controller
from kube.informer import Change


class OwnedPodEvents:
    """A subscriber to pods that enqueues their owners of one kind, by namespace and name."""

    def __init__(
        self, kind: str, controller: Controller, expectations: Expectations, selectors: CompiledSelectorIndex[Any]
    ) -> None:
        self._kind, self._controller = kind, controller
        self._expectations, self._selectors = expectations, selectors

    def __call__(self, change: Change[core_v1.Pod]) -> None:
        """Enqueue whoever has to look at a pod."""
        pod = change.new
        if lost := lost_by(change, self._kind):
            self._controller.enqueue(lost)
        reference = controller_of(pod)
        if reference is None:
            if change.type != "DELETED":
                self._selectors.each(pod.metadata.namespace or "", pod.metadata.labels, self._controller.enqueue)
            return
        if reference.kind != self._kind:
            return
        key = f"{pod.metadata.namespace}/{reference.name}"
        if change.type == "ADDED":
            self._expectations.creation_observed(key)
        if change.type == "DELETED" or pod.metadata.deletion_timestamp is not None:
            self._expectations.deletion_observed(key, pod.metadata.uid or "")
        self._controller.enqueue(key)
