"""The topology manager: collects hints from all providers, merges them, and has the providers allocate accordingly.

With scope container each container is aligned separately, with scope pod all of them to one set of nodes. If the policy does
not admit the merged hint, the pod fails (pkg/kubelet/cm/topologymanager/scope*.go).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from agent.lifecycle import is_sidecar
from agent.managers.errors import TopologyAffinityError
from agent.managers.hints import ANY, Hint, Hints, Merger
from kube.api import core_v1


class Provider(Protocol):
    """A provider of resources with topology: processors, memory, devices."""

    def pod_hints(self, pod: core_v1.Pod) -> Hints:
        """Return hints for all resources of the pod."""

    def container_hints(self, pod: core_v1.Pod, container: core_v1.Container) -> Hints:
        """Return hints for all resources of a container."""

    async def allocate(self, pod: core_v1.Pod, container: core_v1.Container, hint: Hint, *, reused: bool) -> None:
        """Give a container what it requests; `save` is called after the last one. Raise AdmissionError.

        `reused`: it is there again for the containers after it, as that of an init container which is no sidecar.
        """

    async def save(self) -> None:
        """Write what was given since the last call. Raise AdmissionError if the pod must not run without it."""


class TopologyManager:
    """One policy and scope over the hint providers, in their order."""

    def __init__(self, merger: Merger, scope: str, providers: Sequence[Provider]) -> None:
        self._merger, self._scope, self._providers = merger, scope, providers

    async def admit(self, pod: core_v1.Pod) -> None:
        """Have everything given that the pod's containers request, and then written, once for all. Raise AdmissionError."""
        whole: Hint | None = None
        if self._scope == "pod" and self._merger.policy != "none":
            whole = self._accept(*self._merger.merge(p.pod_hints(pod) for p in self._providers))
        for number, container in enumerate((*pod.spec.init_containers, *pod.spec.containers)):
            reused = number < len(pod.spec.init_containers) and not is_sidecar(container)
            hint = whole
            if hint is None:
                if self._merger.policy == "none":
                    hint = ANY
                else:
                    provider_hints = [p.container_hints(pod, container) for p in self._providers]
                    hint = self._accept(*self._merger.merge(provider_hints))
            for provider in self._providers:
                await provider.allocate(pod, container, hint, reused=reused)
            await asyncio.sleep(0)
        for provider in self._providers:
            await provider.save()

    def _accept(self, hint: Hint, admitted: bool) -> Hint:  # noqa: FBT001 - called with a tuple
        if not admitted:
            raise TopologyAffinityError
        return hint
