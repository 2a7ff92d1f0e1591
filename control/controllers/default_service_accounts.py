"""ServiceAccounts: every active namespace has one called "default".

Pods cannot be created without it, so it is made the moment the namespace is seen. Tokens are not made here: nodes ask
for bound ones. Upstream: pkg/controller/serviceaccount.
"""

from __future__ import annotations

from control.controllers.context import Context
from control.controllers.pod_control import namespace_terminating
from kube.api import core_v1, meta_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change

NAMES = ("default",)


class ServiceAccountController:
    """Follows namespaces and ServiceAccounts."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._namespaces = context.informers.of(core_v1.Namespace)
        self._accounts = context.informers.of(core_v1.ServiceAccount)
        self.controller = Controller("serviceaccount", self.reconcile, workers=2, clock=context.clock)
        self._namespaces.subscribe(lambda change: self.controller.enqueue(change.key))
        self._accounts.subscribe(self._account_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _account_changed(self, change: Change[core_v1.ServiceAccount]) -> None:
        if change.type == "DELETED":
            self.controller.enqueue(change.new.metadata.namespace or "")

    async def reconcile(self, key: str) -> None:
        """Create what a namespace lacks."""
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        for name in NAMES:
            if self._accounts.get(f"{key}/{name}") is not None:
                continue
            try:
                metadata = meta_v1.ObjectMeta(name=name, namespace=key)
                await self._client.create(core_v1.ServiceAccount(metadata=metadata))
            except StatusError as error:
                if not error.already_exists and not error.not_found and not namespace_terminating(error):
                    raise
