"""Finds why a Service does not answer: its selector, the readiness of its pods, its ports, network policies."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kube.api import apps_v1, core_v1
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.causes import policies, service_endpoints, service_ports
from wherry.why.causes.deletion import finalizers
from wherry.why.causes.scheduling import condition
from wherry.why.causes.workloads import of_pods
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.owners import template_owner

ENDED = ("Succeeded", "Failed")
WORKLOADS: tuple[type[Any], ...] = (apps_v1.Deployment, apps_v1.StatefulSet, apps_v1.DaemonSet)


async def causes(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[Cause]:
    """Return why connections to a Service fail."""
    spec = service.spec or core_v1.ServiceSpec()
    if service.metadata.deletion_timestamp is not None:
        return finalizers(service, diagnosis.reader.now)
    if spec.type == "ExternalName":
        return ()
    if not spec.selector:
        return await service_endpoints.without_selector(diagnosis, service)
    if found := await _selection(diagnosis, service, spec):
        return found
    pods = await pods_behind(diagnosis, service, spec)
    return [
        *await service_ports.missing(diagnosis, service, pods),
        *await policies.blocked(diagnosis, pods, spec.ports),
        *await service_endpoints.slices(diagnosis, service),
        *service_endpoints.load_balancer(service),
        *await service_ports.undeclared(diagnosis, service, pods),
        *await policies.limited(diagnosis, pods, spec.ports),
        *await service_endpoints.local_traffic(diagnosis, service),
        *service_ports.headless(service),
    ]


async def _selection(diagnosis: Diagnosis, service: core_v1.Service, spec: core_v1.ServiceSpec) -> Sequence[Cause]:
    """Return why there are no Ready pods behind a Service."""
    pods = await pods_behind(diagnosis, service, spec)
    if not pods:
        return [await _no_pods(diagnosis, service, spec.selector)]
    ready = [pod for pod in pods if (found := condition(pod, "Ready")) is not None and found.status == "True"]
    if ready or (spec.publish_not_ready_addresses and any(pod.status.pod_ip for pod in pods)):
        return ()
    return await of_pods(diagnosis, pods)


async def pods_behind(
    diagnosis: Diagnosis, service: core_v1.Service, spec: core_v1.ServiceSpec
) -> Sequence[core_v1.Pod]:
    """Return the pods that a Service's selector selects, without those that have ended."""
    text = ",".join(f"{key}={value}" for key, value in spec.selector.items())
    found = await diagnosis.reader.all(core_v1.Pod, namespace_of(service), label_selector=text)
    return [pod for pod in found if pod.status.phase not in ENDED]


async def _no_pods(diagnosis: Diagnosis, service: core_v1.Service, selector: Mapping[str, str]) -> Cause:
    """Return the cause of a selector that selects nothing, with the pods that it was probably meant for."""
    about, namespace = reference(service), namespace_of(service)
    shown = ",".join(f"{key}={value}" for key, value in selector.items())
    if found := await _meant_workload(diagnosis, namespace, selector):
        return found
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


async def _meant_workload(diagnosis: Diagnosis, namespace: str, selector: Mapping[str, str]) -> Cause | None:
    """Return why a workload whose pods the selector would select has none."""
    for kind in WORKLOADS:
        for each in await diagnosis.reader.all(kind, namespace):
            labels = each.spec.template.metadata.labels if each.spec and each.spec.template.metadata else {}
            if selector.items() <= labels.items() and (found := await diagnosis.causes(each)):
                text = f"{reference(each)}, whose pods it selects, has none: {found[0].text}"
                return msgspec.structs.replace(found[0], text=text)
    return None


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
