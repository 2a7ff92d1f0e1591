"""Random changes of a few Services and their endpoints, the same for each seed."""

import random

from kube.api import core_v1, discovery_v1
from netproxy.endpoints import NodeView
from netproxy.model import ServicePort
from netproxy.service_table import ServiceTable
from tests.support.services import endpoint, port, service, slice_of

NAMES = [f"s{number}" for number in range(6)]


class Churn:
    """Keeps a ServiceTable and changes it by chance."""

    def __init__(self, seed: int) -> None:
        self.table = ServiceTable(NodeView("node-1"))
        self._services: dict[str, core_v1.Service] = {}
        self._slices: dict[str, discovery_v1.EndpointSlice] = {}
        self._chance = random.Random(seed)

    def step(self) -> None:
        """Make one change."""
        chance = self._chance
        name = chance.choice(NAMES)
        number = int(name[1:])
        match chance.randrange(5):
            case 0:
                self.table.delete_service(f"default/{name}")
                self._services.pop(f"default/{name}", None)
            case 1:
                self.table.delete_slice(slice_of(name))
                self._slices.pop(name, None)
            case 2:
                endpoints = [
                    endpoint(f"10.244.1.{ip}", node=chance.choice(["node-1", "node-2"]), ready=chance.random() < 0.8)
                    for ip in chance.sample(range(2, 9), chance.randrange(4))
                ]
                self._slices[name] = slice_of(name, *endpoints)
                self.table.set_slice(self._slices[name])
            case _:
                changed = service(
                    name,
                    f"10.96.5.{number}",
                    port("http", 80, node_port=30000 + number),
                    type=chance.choice(["ClusterIP", "NodePort", "LoadBalancer"]),
                    ingress=(f"198.51.100.{number}",),
                    external_traffic_policy=chance.choice(["Local", "Cluster"]),
                    internal_traffic_policy=chance.choice(["Local", "Cluster"]),
                    session_affinity=chance.choice(["None", "ClientIP"]),
                    load_balancer_source_ranges=chance.choice([[], ["203.0.113.0/24"]]),
                )
                self._services[f"default/{name}"] = changed
                self.table.set_service(f"default/{name}", changed)

    async def plan(self) -> dict[str, tuple[ServicePort, ...]]:
        """Return the whole desired state, planned anew."""
        fresh = ServiceTable(NodeView("node-1"))
        for key, each in self._services.items():
            fresh.set_service(key, each)
        for slice_ in self._slices.values():
            fresh.set_slice(slice_)
        return await fresh.take_changes()
