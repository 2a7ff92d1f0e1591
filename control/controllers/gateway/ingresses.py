"""Reconciles the built-in gateway of all Ingresses, and writes their addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from control.controllers.gateway import host_claims, plan
from control.controllers.gateway.dependencies import GatewayDependencies
from control.controllers.gateway.listening_nodes import Known
from control.controllers.gateway.plan import Owner
from control.controllers.gateway.port_users import MissingPorts
from kube.api import core_v1, networking_v1
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
        shared: GatewayDependencies,
        ingresses: Informer[networking_v1.Ingress],
        changed: Callable[[str], None],
    ) -> None:
        self._client, self._clock, self._recorder = shared.client, shared.clock, shared.recorder
        self._cluster, self._generated, self._certificates = shared.cluster, shared.generated, shared.certificates
        self._hosts, self._listening, self._users = shared.hosts, shared.listening, shared.users
        self._ingresses, self._changed = ingresses, changed
        self._served: dict[str, tuple[str, ...]] = {}
        """Keys of Ingresses, with the problems that were reported."""
        self._refused: frozenset[str] = frozenset()
        """Those of them that have no addresses, since other namespaces own all their hosts, or others have all their ports."""
        self._addresses: list[str] = []
        self._written: dict[str, Sequence[str | None]] = {}
        """The addresses in the statuses of Ingresses, by keys, as this controller left them."""
        self._kept_until: float | None = None
        """Time until which the ports are kept, if there are no Ingresses."""
        self._missing = MissingPorts()
        """The ports that the Service lacked last."""
        self.retry_seconds: float | None = None
        """Time until `reconcile` is to be called again."""

    def restore(self) -> None:
        """Record the addresses that stored statuses list."""
        self._written = {key_of(each): addresses_in(each) for each in self._cluster.served_ingresses()}
        listed = (address for addresses in self._written.values() for address in addresses)
        self._addresses = list(dict.fromkeys(address for address in listed if address))

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
        self.retry_seconds = self._hosts.seconds
        if result is None:
            await self._leave()
            return 0
        self._kept_until = None
        # Both from the first Ingress on: another Service could get a port that is released while a certificate is replaced.
        service = await self._generated.ensure(Owner(INGRESS, INGRESS), (HTTP, HTTPS))
        addresses, now = self._addresses, self._clock.now()
        if service is not None:
            given = plan.addresses(service, now)
            if not given:
                self._retry_after(plan.BALANCER_SECONDS)
            addresses = self._listed(result, service, given)
            self._missing = self._users.missing(service, now)
        served, without_ports = {}, set[str]()
        for each in self._cluster.served_ingresses():
            key, ports = key_of(each), _ports(each)
            problems = self._missing.problems(ports, key)
            served[key] = (*result.problems.get(key, ()), *problems)
            if self._missing.has_others and self._missing.ports >= ports.keys():
                without_ports.add(key)
        self._update(served, result.refused | without_ports, addresses)
        return len(result.served[0].routes) + len(result.served)

    def _listed(self, result: IngressResult, service: core_v1.Service, addresses: list[str]) -> list[str]:
        """Return those of the gateway's addresses at which it is served."""
        wanted = plan.places(service, self._generated.nodes, {each.port for each in result.served})
        known = Known(self._addresses, (HTTP, HTTPS))
        return self._listening.listed(Owner(INGRESS, INGRESS), addresses, wanted, known)[0]

    async def _leave(self) -> None:
        """Remove the gateway's objects some time after the last Ingress. Raises StatusError.

        Until then no other Service gets the ports, as no other namespace gets the host, of an Ingress that is being replaced.
        """
        self._certificates.use(INGRESS, ())
        self._update({}, frozenset(), [])
        now = self._clock.monotonic()
        if self._kept_until is None:
            self._kept_until = now + host_claims.KEPT_SECONDS
        left = self._kept_until - now
        if left > 0 and self._generated.has_service(INGRESS):
            self._retry_after(left)
        else:
            self._listening.forget(INGRESS)
            self._missing = MissingPorts()
            await self._generated.remove(INGRESS)

    def _retry_after(self, seconds: float) -> None:
        self.retry_seconds = seconds if self.retry_seconds is None else min(seconds, self.retry_seconds)

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
        """Write the addresses of an Ingress, and remove them if it is not served any more. Raises StatusError.

        The controller of another class may have written its own since the class changed: those are not removed.
        """
        ingress = self._ingresses.get(key)
        if ingress is None or ingress.metadata.deletion_timestamp is not None:
            self._written.pop(key, None)
            return
        listed, served = addresses_in(ingress), key in self._served and self._cluster.serves_ingress(ingress)
        wanted = self._addresses if served and key not in self._refused else []
        if listed != wanted and (served or listed == self._written.get(key)):
            await self._write(ingress, wanted)
        if served:
            self._written[key] = wanted
        else:
            self._written.pop(key, None)

    async def _write(self, ingress: networking_v1.Ingress, addresses: list[str]) -> None:
        metadata = {"uid": ingress.metadata.uid, "resourceVersion": ingress.metadata.resource_version}
        balancer = {"ingress": [{"ip": each} for each in addresses] or None}
        body = {"metadata": metadata, "status": {"loadBalancer": balancer}}
        await self._client.patch(
            networking_v1.Ingress, name_of(ingress), namespace_of(ingress), body, subresource="status"
        )

    def serves(self, key: str) -> bool:
        """Return whether an Ingress has addresses of this gateway."""
        return key in self._served


def addresses_in(ingress: networking_v1.Ingress) -> list[str | None]:
    """Return the addresses in the status of an Ingress."""
    balancer = ingress.status.load_balancer
    return [each.ip for each in balancer.ingress] if balancer is not None else []


def _ports(ingress: networking_v1.Ingress) -> dict[int, str]:
    """Return the ports that an Ingress needs, with what it needs them for."""
    return {HTTP: "HTTP", **({HTTPS: "HTTPS"} if ingress.spec.tls else {})}
