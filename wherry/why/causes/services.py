"""Finds why a Service does not answer: its selector, the readiness of its pods, its ports, network policies."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from kube.api import core_v1, discovery_v1
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.causes.deletion import finalizers
from wherry.why.causes.policies import blocked
from wherry.why.causes.scheduling import condition
from wherry.why.causes.workloads import of_pods
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.owners import template_owner

SERVICE_NAME = "kubernetes.io/service-name"


async def causes(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[Cause]:
    """Return why connections to a Service fail."""
    spec = service.spec or core_v1.ServiceSpec()
    if service.metadata.deletion_timestamp is not None:
        return finalizers(service, diagnosis.reader.now)
    if spec.type == "ExternalName":
        return ()
    if not spec.selector:
        return await _without_selector(diagnosis, service)
    return (
        await _selection(diagnosis, service, spec)
        or await _ports(diagnosis, service, spec)
        or await _policies(diagnosis, service, spec)
        or await _slices(diagnosis, service)
        or _load_balancer(service, spec)
    )


async def endpoint_slices(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[discovery_v1.EndpointSlice]:
    """Return the EndpointSlices of a Service."""
    selector = f"{SERVICE_NAME}={name_of(service)}"
    return await diagnosis.reader.all(discovery_v1.EndpointSlice, namespace_of(service), label_selector=selector)


async def _without_selector(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[Cause]:
    if any(each.endpoints for each in await endpoint_slices(diagnosis, service)):
        return ()
    text = "it has no selector, and nobody has created an EndpointSlice with addresses for it"
    return [Cause(text, commands.edit(reference(service)), reference(service))]


async def _selection(diagnosis: Diagnosis, service: core_v1.Service, spec: core_v1.ServiceSpec) -> Sequence[Cause]:
    """Return why there are no Ready pods behind a Service."""
    pods = await _pods(diagnosis, service, spec)
    if not pods:
        return [await _no_pods(diagnosis, service, spec.selector)]
    ready = [pod for pod in pods if (found := condition(pod, "Ready")) is not None and found.status == "True"]
    if ready or spec.publish_not_ready_addresses:
        return ()
    return await of_pods(diagnosis, pods)


async def _pods(diagnosis: Diagnosis, service: core_v1.Service, spec: core_v1.ServiceSpec) -> Sequence[core_v1.Pod]:
    text = ",".join(f"{key}={value}" for key, value in spec.selector.items())
    found = await diagnosis.reader.all(core_v1.Pod, namespace_of(service), label_selector=text)
    return [pod for pod in found if pod.status.phase not in ("Succeeded", "Failed")]


async def _no_pods(diagnosis: Diagnosis, service: core_v1.Service, selector: Mapping[str, str]) -> Cause:
    """Return the cause of a selector that selects nothing, with the pods that it was probably meant for."""
    about, namespace = reference(service), namespace_of(service)
    shown = ",".join(f"{key}={value}" for key, value in selector.items())
    others = await diagnosis.reader.all(core_v1.Pod, namespace)
    likely = _likely(others, selector, name_of(service))
    if likely is None:
        where = f"there are no pods in namespace {namespace}" if not others else f"no pod in {namespace} looks like it"
        return Cause(f"its selector {shown} selects no pod, and {where}", commands.listing("pods", namespace), about)
    labels = likely.metadata.labels
    meant = {key: labels[key] for key in selector if key in labels} or {
        key: value
        for key, value in labels.items()
        if not key.startswith(("pod-template-hash", "controller-revision-hash"))
    }
    values = ",".join(f"{key}={value}" for key, value in meant.items())
    owner = await template_owner(diagnosis.reader, likely)
    text = f"its selector {shown} selects no pod; the pods of {owner} have {values}"
    fix = shlex.join(["kubectl", "set", "selector", str(about), values, *commands.namespaced(namespace)])
    return Cause(text, fix, about)


def _likely(pods: Sequence[core_v1.Pod], selector: Mapping[str, str], name: str) -> core_v1.Pod | None:
    """Return the pod whose labels are the most like a selector, or whose name begins with the Service's."""

    def likeness(pod: core_v1.Pod) -> tuple[int, int, bool]:
        labels = pod.metadata.labels
        equal = sum(labels.get(key) == value for key, value in selector.items())
        alike = sum(key in labels and _alike(labels[key], value) for key, value in selector.items())
        return equal, alike, name_of(pod).startswith(name)

    best = max(pods, key=likeness, default=None)
    return best if best is not None and any(likeness(best)) else None


def _alike(one: str, other: str) -> bool:
    """Return whether two texts differ by at most two characters, or one begins with the other."""
    if one.startswith(other) or other.startswith(one):
        return True
    if abs(len(one) - len(other)) > 2:
        return False
    return sum(a != b for a, b in zip(sorted(one), sorted(other), strict=False)) <= 2 or set(one) == set(other)


async def _ports(diagnosis: Diagnosis, service: core_v1.Service, spec: core_v1.ServiceSpec) -> Sequence[Cause]:
    """Return a cause for a target port that the pods do not have."""
    pods, about = await _pods(diagnosis, service, spec), reference(service)
    declared = {
        (port.name or "", port.container_port)
        for pod in pods
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for port in container.ports
    }
    names, numbers = {name for name, _ in declared}, {number for _, number in declared}
    for port in spec.ports:
        target = port.target_port if port.target_port is not None else port.port
        missing = (
            target not in names if isinstance(target, str) and not target.isdigit() else int(target) not in numbers
        )
        if not declared and isinstance(target, str) and not target.isdigit():
            return [
                Cause(
                    f"its port {port.port} leads to port {target} of its pods, and they declare no ports",
                    commands.edit(about),
                    about,
                )
            ]
        if declared and missing:
            shown = ", ".join(f"{number} ({name})" if name else str(number) for name, number in sorted(declared))
            text = f"its port {port.port} leads to port {target} of its pods, which declare {shown}"
            patch = {"spec": {"ports": [{"port": port.port, "targetPort": min(numbers)}]}}
            return [Cause(text, commands.patch(about, patch) if len(numbers) == 1 else commands.edit(about), about)]
    return ()


async def _policies(diagnosis: Diagnosis, service: core_v1.Service, spec: core_v1.ServiceSpec) -> Sequence[Cause]:
    for pod in await _pods(diagnosis, service, spec):
        if found := await blocked(diagnosis, pod, spec.ports):
            return found
    return ()


async def _slices(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[Cause]:
    """Return a cause if no EndpointSlice has the Service's pods: the controller that writes them does not run."""
    if any(each.endpoints for each in await endpoint_slices(diagnosis, service)):
        return ()
    text = "its pods are Ready, and no EndpointSlice has their addresses yet: if that lasts, no controllers are running"
    return [Cause(text, "kubectl get lease kube-controller-manager -n kube-system -o yaml", reference(service))]


def _load_balancer(service: core_v1.Service, spec: core_v1.ServiceSpec) -> Sequence[Cause]:
    status = service.status.load_balancer if service.status is not None else None
    if spec.type != "LoadBalancer" or (status is not None and status.ingress):
        return ()
    for each in service.status.conditions if service.status is not None else ():
        if each.status == "False" and each.message:
            return [
                Cause(
                    f"it has no address of a load balancer: {each.message}",
                    commands.kubectl("describe", reference(service)),
                    reference(service),
                )
            ]
    text = (
        "it has no address of a load balancer: the cluster has no program that gives one, or all nodes' ports are taken"
    )
    return [Cause(text, commands.kubectl("describe", reference(service)), reference(service))]
