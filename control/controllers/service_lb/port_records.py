"""Records of ports that a Service holds without serving them at an address, in a condition of its status.

The addresses in the status list the ports that were granted. A Service without an address at the moment, as while no node is
ready, would lose them with the process: after a restart, a Service that waits for a port could get it. Only the controller
may write a Service's status, so what it reads there at the start is what it granted.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.controllers.service_lb import plan
from control.controllers.service_lb.ports import Port, ports_of, served_ports
from kube.api import core_v1, meta_v1
from kube.port_ranges import PortRanges

TYPE, REASON = "wherry/LoadBalancerPorts", "Reserved"


def granted_ports(service: core_v1.Service) -> list[Port]:
    """Return those of a Service's ports that it was granted, as its status shows."""
    served, reserved = set(served_ports(service)), _reserved(service)
    return [port for port in ports_of(service) if port in served or port[1] in reserved.get(port[0], ())]


def had_ports(service: core_v1.Service) -> bool:
    """Return whether a Service's status shows that it was granted ports."""
    return bool(plan.given(service)) or recorded(service)


def recorded(service: core_v1.Service) -> bool:
    """Return whether a Service's status records ports that no address lists."""
    return any(each.type == TYPE for each in service.status.conditions)


def conditions(service: core_v1.Service, ports: Iterable[Port], now: str) -> list[meta_v1.Condition]:
    """Return a Service's conditions with a record of some ports, without one if there are none."""
    message = text(ports)
    known = next((each for each in service.status.conditions if each.type == TYPE), None)
    others = [each for each in service.status.conditions if each.type != TYPE]
    if not message:
        return others
    since = known.last_transition_time if known is not None and known.status == "True" else now
    record = meta_v1.Condition(type=TYPE, status="True", reason=REASON, message=message, last_transition_time=since)
    return [*others, record]


def text(ports: Iterable[Port]) -> str:
    """Return ports in the form `TCP 80,443,8000-8010; UDP 53`."""
    ranges: dict[str, list[list[int]]] = {}
    for protocol, number in sorted(ports):
        known = ranges.setdefault(protocol, [])
        if known and known[-1][1] == number - 1:
            known[-1][1] = number
        else:
            known.append([number, number])
    return "; ".join(f"{protocol} {','.join(map(_range, known))}" for protocol, known in ranges.items())


def _range(ends: list[int]) -> str:
    return f"{ends[0]}-{ends[1]}" if ends[0] != ends[1] else str(ends[0])


def _reserved(service: core_v1.Service) -> dict[str, frozenset[int]]:
    """Return the recorded ports by protocol; none of a text that is no record."""
    found: dict[str, frozenset[int]] = {}
    for each in service.status.conditions:
        for part in each.message.split("; ") if each.type == TYPE and each.status == "True" else ():
            protocol, _, listed = part.partition(" ")
            try:
                ranges = PortRanges.parse(listed).ranges
            except ValueError:
                return {}
            found[protocol] = frozenset(number for first, last in ranges for number in range(first, last + 1))
    return found
