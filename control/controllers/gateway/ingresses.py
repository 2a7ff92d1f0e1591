"""Reconciles the built-in gateway of all Ingresses, and writes their addresses."""

from __future__ import annotations

from collections.abc import Callable

from control.controllers.gateway import plan
from control.controllers.gateway.certificates import Certificates
from control.controllers.gateway.generated import GeneratedObjects
from control.controllers.gateway.host_records import HostRecords
from control.controllers.gateway.plan import Owner
from kube.api import networking_v1
from kube.client import Client
from kube.clock import Clock
from kube.events import EventRecorder
from kube.gateway.cluster import Cluster
from kube.gateway.ingress_gateway import IngressResult
from kube.gateway.names import HTTP, HTTPS, INGRESS
from kube.gateway.steps import completed
from kube.gateway.verdict import MOST_MESSAGE
from kube.informer import Informer
from kube.object_names import key_of, name_of, namespace_of


class Ingresses:
    """The Ingresses that have addresses. `changed` gets the keys of Ingresses whose status is to be reconciled."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        cluster: Cluster,
        generated: GeneratedObjects,
        certificates: Certificates,
        hosts: HostRecords,
        ingresses: Informer[networking_v1.Ingress],
        changed: Callable[[str], None],
    ) -> None:
        self._client, self._clock, self._recorder, self._cluster = client, clock, recorder, cluster
        self._generated, self._certificates, self._hosts = generated, certificates, hosts
        self._ingresses, self._changed = ingresses, changed
        self._served: dict[str, tuple[str, ...]] = {}
        """Keys of Ingresses, with the problems that were reported."""
        self._refused: frozenset[str] = frozenset()
        """Those of them that have no addresses, since other namespaces own all their hosts."""
        self._addresses: list[str] = []
        self.retry_seconds: float | None = None
        """Time until `reconcile` is to be called again."""

    async def prepare(self) -> IngressResult | None:
        """Compute the gateway, and record the certificates that it uses; None if there are no Ingresses."""
        if not self._cluster.served_ingresses():
            await completed(self._hosts.owners(()))
            return None
        result = await self._cluster.compute_ingresses()
        self._certificates.use(INGRESS, result.certificates)
        return result

    async def reconcile(self) -> int:
        """Bring the gateway's objects to what they should be, and have the statuses reconciled.

        Returns the number of routes and certificates that are served. Raises NoPort, StatusError.
        """
        result = await self.prepare()
        await self._hosts.write()
        self.retry_seconds = kept = self._hosts.seconds
        if result is None:
            self._certificates.use(INGRESS, ())
            await self._generated.remove(INGRESS)
            self._update({}, frozenset(), [])
            return 0
        ports = [HTTP, *([HTTPS] if any(each.tls for each in result.served) else [])]
        service = await self._generated.ensure(Owner(INGRESS, INGRESS), ports)
        addresses, now = self._addresses, self._clock.now()
        if service is not None:
            addresses = plan.addresses(service, now)
            if not addresses:
                self.retry_seconds = plan.BALANCER_SECONDS if kept is None else min(plan.BALANCER_SECONDS, kept)
        served = {key_of(each): result.problems.get(key_of(each), ()) for each in self._cluster.served_ingresses()}
        self._update(served, result.refused, addresses)
        return len(result.served[0].routes) + len(result.served)

    def _update(self, served: dict[str, tuple[str, ...]], refused: frozenset[str], addresses: list[str]) -> None:
        before = self._served
        changed = before.keys() ^ served.keys() if addresses == self._addresses else before.keys() | served.keys()
        changed |= self._refused ^ refused
        self._served, self._refused, self._addresses = served, refused, addresses
        for key in changed:
            self._changed(key)
        for key, problems in served.items():
            if problems and problems != before.get(key) and (ingress := self._ingresses.get(key)) is not None:
                message = "; ".join(problems)[:MOST_MESSAGE]
                self._recorder.event(ingress, "Warning", "NotServed", message)

    async def reconcile_status(self, key: str) -> None:
        """Write the addresses of an Ingress, none if it is not served any more. Raises StatusError."""
        ingress = self._ingresses.get(key)
        if ingress is None or ingress.metadata.deletion_timestamp is not None:
            return
        wanted = self._addresses if key in self._served and key not in self._refused else []
        balancer = ingress.status.load_balancer
        current = [each.ip for each in balancer.ingress] if balancer is not None else []
        if current == wanted:
            return
        listed = [{"ip": each} for each in wanted]
        body = {
            "metadata": {"uid": ingress.metadata.uid},
            "status": {"loadBalancer": {"ingress": listed or None}},
        }
        await self._client.patch(
            networking_v1.Ingress, name_of(ingress), namespace_of(ingress), body, subresource="status"
        )

    def serves(self, key: str) -> bool:
        """Return whether an Ingress has addresses of this gateway."""
        return key in self._served
