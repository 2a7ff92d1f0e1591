"""Finds why an Ingress does not answer: its class, Services behind its paths, certificates, its program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kube.api import core_v1, networking_v1
from kube.gateway.ingresses import CLASS_ANNOTATION, DEFAULT_CLASS
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.causes import certificates
from wherry.why.causes.deletion import finalizers
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference


async def causes(diagnosis: Diagnosis, ingress: networking_v1.Ingress) -> Sequence[Cause]:
    """Return why requests for the hosts and paths of an Ingress fail."""
    if ingress.metadata.deletion_timestamp is not None:
        return finalizers(ingress, diagnosis.reader.now)
    if found := await _class(diagnosis, ingress):
        return found
    found = []
    for name, port in backends(ingress):
        found += await backend(diagnosis, namespace_of(ingress), name, port)
    for tls in ingress.spec.tls:
        if tls.secret_name:
            whose = f"hosts {', '.join(tls.hosts)}" if tls.hosts else "this Ingress"
            found += await certificates.of_secret(diagnosis, namespace_of(ingress), tls.secret_name, whose, tls.hosts)
    return sorted(found, key=lambda cause: cause.partial) or _unserved(diagnosis, ingress)


def backends(ingress: networking_v1.Ingress) -> Iterable[tuple[str, int | str]]:
    """Yield the Services behind an Ingress and their ports, each once."""
    rules = [path.backend for rule in ingress.spec.rules if rule.http is not None for path in rule.http.paths]
    services = [
        each.service for each in (ingress.spec.default_backend, *rules) if each is not None and each.service is not None
    ]
    pairs = [
        (each.name, (each.port.name or each.port.number or 0) if each.port is not None else 0) for each in services
    ]
    yield from dict.fromkeys(pairs)


async def backend(diagnosis: Diagnosis, namespace: str, name: str, port: int | str) -> list[Cause]:
    """Return why a Service behind a path or a route does not answer."""
    service = await diagnosis.reader.get(core_v1.Service, name, namespace)
    about = Reference("Service", name, namespace)
    if service is None:
        if not diagnosis.reader.missing(core_v1.Service, name, namespace):
            return []
        text = f"its backend is the Service {name} in {namespace}, which does not exist"
        return [Cause(text, commands.listing("services", namespace), about)]
    ports = service.spec.ports if service.spec is not None else []
    if port and not any(port in (each.port, each.name) for each in ports):
        shown = ", ".join(f"{each.port} ({each.name})" if each.name else str(each.port) for each in ports) or "none"
        return [
            Cause(f"its backend is port {port} of the Service {name}, which has {shown}", commands.edit(about), about)
        ]
    return [
        msgspec.structs.replace(each, text=f"its backend, the Service {name}: {each.text}")
        for each in (await diagnosis.causes(service))[:1]
        if not each.partial
    ]


async def _class(diagnosis: Diagnosis, ingress: networking_v1.Ingress) -> Sequence[Cause]:
    wanted = ingress.spec.ingress_class_name or ingress.metadata.annotations.get(CLASS_ANNOTATION)
    about = reference(ingress)
    classes = await diagnosis.reader.all(networking_v1.IngressClass)
    if wanted is None:
        if any(each.metadata.annotations.get(DEFAULT_CLASS) == "true" for each in classes):
            return ()
        text = "it names no IngressClass, and none of the cluster's is the default: no program serves it"
    elif not ingress.spec.ingress_class_name or not await diagnosis.reader.absent(networking_v1.IngressClass, wanted):
        return ()
    else:
        text = f"it names the IngressClass {wanted}, which does not exist: no program serves it"
    if not classes:
        return [Cause(f"{text}; the cluster has no IngressClass", commands.listing("ingressclasses"), about)]
    chosen = min(classes, key=lambda each: (each.metadata.annotations.get(DEFAULT_CLASS) != "true", name_of(each)))
    return [Cause(text, commands.patch(about, {"spec": {"ingressClassName": name_of(chosen)}}), about)]


def _unserved(diagnosis: Diagnosis, ingress: networking_v1.Ingress) -> Sequence[Cause]:
    status = ingress.status.load_balancer if ingress.status is not None else None
    if status is not None and status.ingress:
        return ()
    about = reference(ingress)
    text = (
        "it has no address yet: if that lasts, the program of its IngressClass does not run, or has no address itself"
    )
    return [Cause(text, commands.kubectl("describe", about), about)]
