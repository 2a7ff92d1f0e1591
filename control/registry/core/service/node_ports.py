"""Node ports and health check ports of Services."""

from __future__ import annotations

from typing import Any

from control.event_loop.pacing import yield_to_loop
from control.registry.core.service.allocations import ServiceAllocations, refuse
from control.registry.core.service.defaults import needs_health_check_port, needs_node_port
from control.registry.core.service.pools import AlreadyAllocated, Exhausted, OutOfRange, Pool, port_offset
from kube.errors import internal, invalid_value
from kube.json_object import Object

_MANY = 63
"""Bits of a port's place in the list which are all set where the loop has its turn: once in 64 ports, a few milliseconds."""


class NodePorts:
    """Hands out ports of a range, the same on every node."""

    def __init__(self, node_ports: range) -> None:
        self.node_ports = node_ports
        self.ports = Pool(node_ports.start, len(node_ports), port_offset(len(node_ports)))

    async def assign(self, obj: Object, allocated: set[int], allocations: ServiceAllocations) -> None:
        """Claim the ports of a Service; each claim is made at once, so it may yield between two of them."""
        spec = obj["spec"]
        if needs_node_port(spec):
            await self._assign_node_ports(obj, allocated, allocations)
        if needs_health_check_port(spec):
            port = spec.get("healthCheckNodePort")
            try:
                if not port:
                    spec["healthCheckNodePort"] = self._any_port(allocations)
                elif port not in allocated:
                    self.ports.claim(port, allocations.owner)
                    allocations.ports.append(port)
            except (AlreadyAllocated, OutOfRange) as error:
                why = self._why(error)
                raise internal(f"failed to allocate requested HealthCheck NodePort {port}: {why}") from None

    async def _assign_node_ports(self, obj: Object, allocated: set[int], allocations: ServiceAllocations) -> None:
        # Ports that differ in protocol alone (DNS over UDP and TCP) share one node port.
        shared: dict[Any, int] = {}
        mine: set[tuple[int, Any]] = set()
        ours = set(allocations.ports)
        ports = obj["spec"].get("ports") or []
        for index, port in enumerate(ports):
            if index & _MANY == _MANY:
                await yield_to_loop()
            number = port.get("nodePort")
            if number:
                pair = (number, port.get("protocol"))
                if number not in allocated and (number not in ours or pair in mine):
                    try:
                        self.ports.claim(number, allocations.owner)
                        allocations.ports.append(number)
                        ours.add(number)
                    except (AlreadyAllocated, OutOfRange) as error:
                        path = f"spec.ports[{index}].nodePort"
                        raise refuse(obj, invalid_value(path, number, self._why(error))) from None
                mine.add(pair)
                shared.setdefault(port.get("port"), number)
        for index, port in enumerate(ports):
            if index & _MANY == _MANY:
                await yield_to_loop()
            if not port.get("nodePort"):
                number = shared.get(port.get("port"))
                if number is None or (number, port.get("protocol")) in mine:
                    number = self._any_port(allocations)
                    shared.setdefault(port.get("port"), number)
                mine.add((number, port.get("protocol")))
                port["nodePort"] = number

    def _any_port(self, allocations: ServiceAllocations) -> int:
        try:
            number = self.ports.claim_any(allocations.owner)
        except Exhausted:
            raise internal("failed to allocate a nodePort: range is full") from None
        allocations.ports.append(number)
        return number

    def _why(self, error: Exception) -> str:
        if isinstance(error, AlreadyAllocated):
            return "provided port is already allocated"
        shown = f"{self.node_ports.start}-{self.node_ports.stop - 1}"
        return f"provided port is not in the valid range. The range of valid ports is {shown}"

    def clear(self) -> None:
        """Forget all owners."""
        self.ports.clear()

    def free(self, allocations: ServiceAllocations) -> None:
        for port in allocations.ports:
            self.ports.free(port, allocations.owner)
