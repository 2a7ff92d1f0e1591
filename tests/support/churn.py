"""Random changes of a few Services and their endpoints, the same for each seed."""

import random

from netproxy.endpoints import NodeView
from netproxy.service_table import ServiceTable
from tests.support.services import endpoint, port, service, slice_of

NAMES = [f"s{number}" for number in range(6)]


class Churn:
    """Keeps a ServiceTable and changes it by chance."""

    def __init__(self, seed: int) -> None:
        self.table = ServiceTable(NodeView("node-1"))
        self._chance = random.Random(seed)

    def step(self) -> None:
        """Make one change."""
        chance = self._chance
        name = chance.choice(NAMES)
        number = int(name[1:])
        match chance.randrange(5):
            case 0:
                self.table.delete_service(f"default/{name}")
            case 1:
                self.table.delete_slice(slice_of(name))
            case 2:
                endpoints = [
                    endpoint(f"10.244.1.{ip}", node=chance.choice(["node-1", "node-2"]), ready=chance.random() < 0.8)
                    for ip in chance.sample(range(2, 9), chance.randrange(4))
                ]
                self.table.set_slice(slice_of(name, *endpoints))
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
                self.table.set_service(f"default/{name}", changed)

    def plan(self) -> dict[str, object]:
        """Return the whole desired state."""
        return {f"default/{name}": self.table.plan(f"default/{name}") for name in NAMES}
