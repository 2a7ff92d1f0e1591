"""Claims the ports of a Service: gathers the node ports and host ports that they collide with.

A Service gets all of its ports or none, one that has some keeps these, and that of all Ingresses gets those that are free. Only
ports that the Service does not hold yet are compared with others, and none after the first that it cannot have: a Service may
have tens of thousands of ports, and is reconciled with every change of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from control.controllers.service_lb import host_ports, plan
from control.controllers.service_lb.host_ports import HostPorts, is_behind
from control.controllers.service_lb.plan import NoLoadBalancer
from control.controllers.service_lb.ports import LoadBalancerPorts, Port, node_ports_of, ports_of
from control.controllers.step_counter import StepCounter
from kube.api import core_v1
from kube.informer import Informer
from kube.object_names import key_of

NODE_PORT = "node-port"
"""Name of an index: Services by node port."""


def _node_ports(service: core_v1.Service) -> list[str]:
    return [f"{protocol}/{number}" for protocol, number in node_ports_of(service)]


def add_indexes(services: Informer[core_v1.Service], pods: Informer[core_v1.Pod]) -> None:
    """Add the indexes of Services by node port and of pods by host port."""
    services.add_index(NODE_PORT, _node_ports)
    host_ports.add_indexes(pods)


class PortClaims:
    """Ports of Services, and what else has ports of the nodes. `freed` is called with ports that a claim makes free."""

    def __init__(
        self,
        services: Informer[core_v1.Service],
        pods: HostPorts,
        ports: LoadBalancerPorts,
        freed: Callable[[Iterable[Port]], None] = lambda ports: None,
    ) -> None:
        services.add_index(NODE_PORT, _node_ports)
        self._services, self._pods, self._ports, self._freed = services, pods, ports, freed

    async def claim_all(self, key: str, service: core_v1.Service) -> str:
        """Claim the ports of a Service; return why it gets only some of them, "" if all. NoLoadBalancer if it gets none.

        A claim of additional ports that fails takes none from a Service: those that wait for its ports would get them.
        """
        ports = ports_of(service)
        try:
            self._freed(await self.claim(key, service, ports))
        except NoLoadBalancer as error:
            for port in ports if plan.takes_single_ports(service) else ():
                with suppress(NoLoadBalancer):
                    having = self._ports.granted(key).intersection(ports)
                    self._freed(await self.claim(key, service, having | {port}))
            if self._ports.granted(key).isdisjoint(ports):
                raise
            return str(error)
        return ""

    async def claim(self, key: str, service: core_v1.Service, ports: Collection[Port]) -> frozenset[Port]:
        """Claim ports of a Service instead of those that it has, and return those that become free.

        Raises NoLoadBalancer, whose message names the first port that the Service cannot have.
        """
        counter = StepCounter()
        pods, others = dict[Port, list[str]](), dict[Port, list[str]]()
        behind = dict[str, bool]()
        for port in sorted(self._ports.new(key, ports)):
            await counter.count()
            if self._ports.refusal(key, port):
                break
            others[port] = [key_of(each) for each in self._services.by_index(NODE_PORT, f"{port[0]}/{port[1]}")]
            pods[port] = []
            for pod in self._pods.users(port):
                user = key_of(pod)
                await counter.count(1 if user in behind else 1 + (len(service.spec.selector) >> 2))
                if user not in behind:
                    behind[user] = is_behind(pod, service)
                if not behind[user]:
                    pods[port].append(user)
            if pods[port] or set(others[port]) - {key}:
                break
        return self._ports.claim(key, ports, others, pods)
