"""DefaultBinder: bind through the API."""

from __future__ import annotations

from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.object_names import name_of, namespace_of


class DefaultBinder:
    name = "DefaultBinder"
    weight = 0

    def __init__(self, client: Client) -> None:
        self._client = client

    async def bind(self, info: PodInfo, node: str) -> bool:
        """Post the binding; raises StatusError."""
        pod = info.pod
        binding = core_v1.Binding(
            api_version="v1",
            kind="Binding",
            metadata=meta_v1.ObjectMeta(name=name_of(pod), namespace=namespace_of(pod), uid=info.uid),
            target=core_v1.ObjectReference(kind="Node", name=node),
        )
        await self._client.post(core_v1.Pod, name_of(pod), namespace_of(pod), "binding", binding)
        return True
