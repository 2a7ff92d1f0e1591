"""A Cluster of the gateway on an API in memory, for tests of what affects which Gateways."""

from __future__ import annotations

from typing import Any

from kube.api import core_v1, meta_v1, networking_v1
from kube.gateway.cluster import Cluster
from kube.gateway.informers import Informers
from kube.gateway.names import CONTROLLER
from kube.gateway.objects import Gateway, GatewayClass, HTTPRoute, ReferenceGrant
from kube.shared_informers import SharedInformers
from tests.support.clock import FakeClock, settle
from tests.support.gateways import ByAge, made
from tests.support.memory_api import MemoryAPI


class Followed:
    """A Cluster on an API in memory, and the keys that it has reported."""

    def __init__(self, api: MemoryAPI) -> None:
        self.api = api
        self.certificates: dict[str, Any] = {}
        self.affected: set[str] = set()
        self.referring: set[str] = set()
        """Namespaces whose references are to be followed."""
        self.informers = SharedInformers(api.client(), FakeClock())
        kinds = (
            GatewayClass,
            Gateway,
            HTTPRoute,
            ReferenceGrant,
            core_v1.Namespace,
            core_v1.Service,
            networking_v1.IngressClass,
            networking_v1.Ingress,
        )
        self.cluster = Cluster(
            Informers(*(self.informers.of(kind) for kind in kinds)),  # type: ignore[arg-type]
            lambda namespace, name: self.certificates.get(f"{namespace}/{name}", "missing"),
            ByAge(),
            self.affected.add,
            self.referring.add,
        )

    async def follow(self) -> None:
        """Follow references to what has changed until there are none."""
        while self.referring:
            await self.cluster.follow_references(self.referring.pop())

    async def put(self, *objects: Any) -> set[str]:
        """Store objects; return the keys that were reported."""
        self.affected.clear()
        for each in objects:
            self.api.put(each)
        await settle(50)
        await self.follow()
        return set(self.affected)

    async def remove(self, obj: Any) -> set[str]:
        self.affected.clear()
        self.api.remove(obj)
        await settle(50)
        await self.follow()
        return set(self.affected)

    async def served(self, key: str = "infra/web") -> list[str]:
        """Return the Services that a Gateway's routes go to, without namespace for those that cannot be used."""
        found = self.cluster.gateway(key)
        assert found is not None
        result = await self.cluster.compute(found)
        return [
            f"{each.namespace}/{each.service}"
            for listener in result.served
            for route in listener.routes
            for rule in route.rules
            for each in rule.backends
        ]


def namespace(name: str, **labels: str) -> core_v1.Namespace:
    return core_v1.Namespace(metadata=meta_v1.ObjectMeta(name=name, labels=labels))


def of_class(controller: str = CONTROLLER, **spec: Any) -> GatewayClass:
    return made(GatewayClass, "wherry", "", {"controllerName": controller, **spec})


def ingress_class(controller: str = CONTROLLER) -> networking_v1.IngressClass:
    return made(networking_v1.IngressClass, "wherry", "", {"controller": controller})
