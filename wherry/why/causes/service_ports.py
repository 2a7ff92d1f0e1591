"""Ports of a Service that lead nowhere: names that pods do not have, numbers that they do not declare, headless ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube.api import core_v1
from wherry.why import commands
from wherry.why.model import Cause, reference

Declared = tuple[str, int]
"""A port of a container: its name, "" if it has none, and its number."""


def target(port: core_v1.ServicePort) -> int | str:
    """Return the name or the number of the pods' port that a Service's port leads to."""
    found = port.target_port if port.target_port is not None else port.port
    return int(found) if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= 5 else found


def number_at(pod: core_v1.Pod, port: core_v1.ServicePort) -> int | None:
    """Return the number of one pod's port that a Service's port leads to; None if the pod has no port of the name."""
    wanted = target(port)
    if isinstance(wanted, int):
        return wanted
    return next((number for name, number in declared(pod, port) if name == wanted), None)


def declared(pod: core_v1.Pod, port: core_v1.ServicePort) -> list[Declared]:
    """Return the ports that a pod's containers declare for the protocol of a Service's port."""
    protocol = port.protocol or "TCP"
    sidecars = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    return [
        (each.name or "", each.container_port)
        for container in (*pod.spec.containers, *sidecars)
        for each in container.ports
        if (each.protocol or "TCP") == protocol
    ]


def missing(service: core_v1.Service, pods: Sequence[core_v1.Pod]) -> Sequence[Cause]:
    """Return causes for ports of a Service whose name all or some of its pods do not have."""
    found = []
    for port in service.spec.ports if service.spec is not None else ():
        without = [pod for pod in pods if number_at(pod, port) is None]
        if without:
            found.append(_named(service, port, pods, without))
    return found


def undeclared(service: core_v1.Service, pods: Sequence[core_v1.Pod]) -> Sequence[Cause]:
    """Return causes for numbers of ports that the pods declare no port with, while they declare others.

    A program may listen on a port that is not declared, so that these causes come after those that are certain.
    """
    found = []
    for port in service.spec.ports if service.spec is not None else ():
        ports = _all(pods, port)
        if isinstance(target(port), int) and ports and target(port) not in {number for _, number in ports}:
            found.append(_other(service, port, ports))
    return found


def headless(service: core_v1.Service) -> Sequence[Cause]:
    """Return causes for ports of a headless Service that clients cannot use: nothing translates them."""
    spec = service.spec
    if spec is None or spec.cluster_ip != "None":
        return ()
    about = reference(service)
    return [
        Cause(
            f"it is headless (clusterIP None): its name leads to the pods' own addresses, where clients have to use port "
            f"{target(port)}, not {port.port}",
            commands.patch(about, {"spec": {"ports": [{"port": port.port, "targetPort": port.port}]}})
            if isinstance(target(port), str)
            else commands.edit(about),
            about,
            partial=True,
        )
        for port in spec.ports
        if isinstance(target(port), int) and target(port) != port.port
    ]


def _named(
    service: core_v1.Service, port: core_v1.ServicePort, pods: Sequence[core_v1.Pod], without: Sequence[core_v1.Pod]
) -> Cause:
    about, ports = reference(service), _all(pods, port)
    what = f"its port {port.port} leads to port {target(port)} of its pods"
    if not ports:
        return Cause(f"{what}, and they declare no ports", commands.edit(about), about)
    if len(without) == len(pods):
        return _other(service, port, ports)
    text = f"{what}, and {len(without)} of {len(pods)} pods have no port of that name, such as {reference(without[0])}"
    return Cause(text, commands.kubectl("get", reference(without[0]), "-o", "yaml"), about)


def _other(service: core_v1.Service, port: core_v1.ServicePort, ports: Iterable[Declared]) -> Cause:
    """Return the cause of a port that leads to a port that no pod declares, with the only one that they declare as its fix."""
    about = reference(service)
    shown = ", ".join(f"{number} ({name})" if name else str(number) for name, number in sorted(ports))
    text = f"its port {port.port} leads to port {target(port)} of its pods, which declare {shown}"
    numbers = {number for _, number in ports}
    key = {"port": port.port, **({"protocol": port.protocol} if port.protocol else {})}
    patch = {"spec": {"ports": [key | {"targetPort": min(numbers)}]}}
    return Cause(text, commands.patch(about, patch) if len(numbers) == 1 else commands.edit(about), about)


def _all(pods: Iterable[core_v1.Pod], port: core_v1.ServicePort) -> set[Declared]:
    return {each for pod in pods for each in declared(pod, port)}
