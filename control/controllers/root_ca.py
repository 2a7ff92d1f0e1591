"""Root CA publisher: every namespace has a ConfigMap kube-root-ca.crt, by which pods know the API server.

Upstream: pkg/controller/certificates/rootcacertpublisher.
"""

from __future__ import annotations

import msgspec

from control.controllers import metrics
from control.controllers.context import Context
from control.controllers.pod_control import namespace_terminating
from kube.api import core_v1, meta_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, Informer

NAME, KEY = "kube-root-ca.crt", "ca.crt"
DESCRIPTION = "kubernetes.io/description"
_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class RootCAPublisher:
    """Follows namespaces and the ConfigMaps of this one name."""

    def __init__(self, context: Context, root_ca: str) -> None:
        self._clock = context.clock
        self._client, self._root_ca = context.client, root_ca
        self._namespaces = context.informers.of(core_v1.Namespace)
        self._maps: Informer[core_v1.ConfigMap] = context.informers.filtered(
            core_v1.ConfigMap, field_selector=f"metadata.name={NAME}"
        )
        self.controller = Controller(
            "root CA publisher", self.reconcile, workers=2, queue="root_ca_cert_publisher", clock=context.clock
        )
        self._namespaces.subscribe(lambda change: self.controller.enqueue(change.key))
        self._maps.subscribe(self._map_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _map_changed(self, change: Change[core_v1.ConfigMap]) -> None:
        if change.type != "ADDED":
            self.controller.enqueue(change.new.metadata.namespace or "")

    async def reconcile(self, key: str) -> None:
        """Create or mend a namespace's ConfigMap."""
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        try:
            with metrics.ca_sync(self._clock):
                await self._write(key)
        except StatusError as error:
            if not error.already_exists and not error.not_found and not namespace_terminating(error):
                raise

    async def _write(self, key: str) -> None:
        found = self._maps.get(f"{key}/{NAME}")
        data = {KEY: self._root_ca}
        if found is None:
            metadata = meta_v1.ObjectMeta(name=NAME, namespace=key, annotations={DESCRIPTION: _TEXT})
            await self._client.create(core_v1.ConfigMap(metadata=metadata, data=data))
        elif found.data != data or found.metadata.annotations.get(DESCRIPTION) != _TEXT:
            annotations = {**found.metadata.annotations, DESCRIPTION: _TEXT}
            metadata = msgspec.structs.replace(found.metadata, annotations=annotations)
            await self._client.update(msgspec.structs.replace(found, metadata=metadata, data=data))
