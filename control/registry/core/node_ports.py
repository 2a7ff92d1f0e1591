"""Node ports and health check ports of Services."""

from __future__ import annotations

from typing import Any

from control.registry.core.claims import Claims, refuse
from control.registry.core.pools import Exhausted, OutOfRange, Pool, Taken, port_offset
from control.registry.core.service_defaults import needs_health_check_port, needs_node_port
from control.registry.strategy import Object
from kube.errors import internal, invalid_value


class NodePorts:
    """Hands out ports of a range, the same on every node."""

    def __init__(self, node_ports: range) -> None:
        self.node_ports = node_ports
        self.ports = Pool(node_ports.start, len(node_ports), port_offset(len(node_ports)))

    def assign(self, obj: Object, held: set[int], claims: Claims) -> None:
        spec = obj["spec"]
        if needs_node_port(spec):
            self._assign_node_ports(obj, held, claims)
        if needs_health_check_port(spec):
            port = spec.get("healthCheckNodePort")
            try:
                if not port:
                    spec["healthCheckNodePort"] = self._any_port(claims)
                elif port not in held:
                    self.ports.claim(port, claims.owner)
                    claims.ports.append(port)
            except (Taken, OutOfRange) as error:
                why = self._why(error)
                raise internal(f"failed to allocate requested HealthCheck NodePort {port}: {why}") from None

    def _assign_node_ports(self, obj: Object, held: set[int], claims: Claims) -> None:
        # Ports that differ in protocol alone (DNS over UDP and TCP) share one node port.
        shared: dict[Any, int] = {}
        mine: set[tuple[int, Any]] = set()
        ports = obj["spec"].get("ports") or []
        for index, port in enumerate(ports):
            number = port.get("nodePort")
            if number:
                pair = (number, port.get("protocol"))
                if number not in held and (number not in claims.ports or pair in mine):
                    try:
                        self.ports.claim(number, claims.owner)
                        claims.ports.append(number)
                    except (Taken, OutOfRange) as error:
                        path = f"spec.ports[{index}].nodePort"
                        raise refuse(obj, invalid_value(path, number, self._why(error))) from None
                mine.add(pair)
                shared.setdefault(port.get("port"), number)
        for port in ports:
            if not port.get("nodePort"):
                number = shared.get(port.get("port"))
                if number is None or (number, port.get("protocol")) in mine:
                    number = self._any_port(claims)
                    shared.setdefault(port.get("port"), number)
                mine.add((number, port.get("protocol")))
                port["nodePort"] = number

    def _any_port(self, claims: Claims) -> int:
        try:
            number = self.ports.claim_any(claims.owner)
        except Exhausted:
            raise internal("failed to allocate a nodePort: range is full") from None
        claims.ports.append(number)
        return number

    def _why(self, error: Exception) -> str:
        if isinstance(error, Taken):
            return "provided port is already allocated"
        shown = f"{self.node_ports.start}-{self.node_ports.stop - 1}"
        return f"provided port is not in the valid range. The range of valid ports is {shown}"

    def clear(self) -> None:
        """Forget all owners."""
        self.ports.clear()

    def give_back(self, claims: Claims) -> None:
        for port in claims.ports:
            self.ports.free(port, claims.owner)
