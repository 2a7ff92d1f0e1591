"""Ports of a Service that lead nowhere: names that pods do not have, numbers that they do not declare, headless ones."""

from __future__ import annotations

from collections.abc import Sequence

from kube.api import core_v1
from wherry.why import commands
from wherry.why.causes.pod_ports import Declared, declared, of_pod, target
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference

MOST_SHOWN = 10
"""Ports that a text lists."""


async def missing(diagnosis: Diagnosis, service: core_v1.Service, pods: Sequence[core_v1.Pod]) -> Sequence[Cause]:
    """Return causes for ports of a Service whose name all or some of its pods do not have."""
    found = []
    for port in service.spec.ports if service.spec is not None else ():
        without = []
        for pod in pods:
            await diagnosis.time_slice.step()
            if (await of_pod(diagnosis, pod)).number_at(port) is None:
                without.append(pod)
        if without:
            found.append(_named(service, port, await _declared(diagnosis, pods, port), len(pods), without))
    return found


async def undeclared(diagnosis: Diagnosis, service: core_v1.Service, pods: Sequence[core_v1.Pod]) -> Sequence[Cause]:
    """Return causes for numbers of ports that the pods declare no port with, while they declare others.

    A program may listen on a port that is not declared, so that these causes come after those that are certain.
    """
    found = []
    for port in service.spec.ports if service.spec is not None else ():
        ports = await _declared(diagnosis, pods, port) if isinstance(target(port), int) else set()
        if ports and target(port) not in {number for _, number in ports}:
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
    service: core_v1.Service,
    port: core_v1.ServicePort,
    ports: set[Declared],
    number: int,
    without: Sequence[core_v1.Pod],
) -> Cause:
    """Return the cause of a port whose name some of a number of pods do not have, which declare `ports`."""
    about = reference(service)
    what = f"its port {port.port} leads to port {target(port)} of its pods"
    if not ports:
        return Cause(f"{what}, and they declare no ports", commands.edit(about), about)
    if len(without) == number:
        return _other(service, port, ports)
    text = f"{what}, and {len(without)} of {number} pods have no port of that name, such as {reference(without[0])}"
    return Cause(text, commands.kubectl("get", reference(without[0]), "-o", "yaml"), about)


def _other(service: core_v1.Service, port: core_v1.ServicePort, ports: set[Declared]) -> Cause:
    """Return the cause of a port that leads to a port that no pod declares, with the only one that they declare as its fix."""
    about = reference(service)
    first = sorted(ports)[:MOST_SHOWN]
    shown = ", ".join(f"{number} ({name})" if name else str(number) for name, number in first)
    shown += f" and {len(ports) - MOST_SHOWN} more" if len(ports) > MOST_SHOWN else ""
    text = f"its port {port.port} leads to port {target(port)} of its pods, which declare {shown}"
    numbers = {number for _, number in ports}
    key = {"port": port.port, **({"protocol": port.protocol} if port.protocol else {})}
    patch = {"spec": {"ports": [key | {"targetPort": min(numbers)}]}}
    return Cause(text, commands.patch(about, patch) if len(numbers) == 1 else commands.edit(about), about)


async def _declared(diagnosis: Diagnosis, pods: Sequence[core_v1.Pod], port: core_v1.ServicePort) -> set[Declared]:
    """Return the ports that pods declare for the protocol of a Service's port."""
    return await declared(diagnosis, pods, port.protocol or "TCP")
