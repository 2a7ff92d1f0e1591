"""The topology manager: asks all providers where they could give something, merges the hints, has them give it.

With scope container each container is placed for itself, with scope pod all of them on one set of nodes. Where the
policy does not admit what came out of it, the pod fails (pkg/kubelet/cm/topologymanager/scope*.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.managers.errors import TopologyAffinityError
from agent.managers.hints import ANY, Hint, Hints, Merger
from kube.api import core_v1


class Provider(Protocol):
    """What gives resources that are somewhere: processors, memory, devices."""

    def pod_hints(self, pod: core_v1.Pod) -> Hints:
        """Say where everything of the pod could come from."""

    def container_hints(self, pod: core_v1.Pod, container: core_v1.Container) -> Hints:
        """Say where everything of a container could come from."""

    async def allocate(self, pod: core_v1.Pod, container: core_v1.Container, hint: Hint) -> None:
        """Give a container what it asks for. Raise AdmissionError."""


class TopologyManager:
    """One policy and scope over the providers, which are asked in their order."""

    def __init__(self, merger: Merger, scope: str, providers: Sequence[Provider]) -> None:
        self._merger, self._scope, self._providers = merger, scope, providers

    async def admit(self, pod: core_v1.Pod) -> None:
        """Have everything given that the pod's containers ask for. Raise AdmissionError."""
        whole: Hint | None = None
        if self._scope == "pod" and self._merger.policy != "none":
            whole = self._accept(*self._merger.merge(p.pod_hints(pod) for p in self._providers))
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            hint = whole
            if hint is None:
                if self._merger.policy == "none":
                    hint = ANY
                else:
                    offered = [p.container_hints(pod, container) for p in self._providers]
                    hint = self._accept(*self._merger.merge(offered))
            for provider in self._providers:
                await provider.allocate(pod, container, hint)

    def _accept(self, hint: Hint, admitted: bool) -> Hint:
        if not admitted:
            raise TopologyAffinityError
        return hint
