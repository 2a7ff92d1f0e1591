"""Finds why a Gateway or an HTTPRoute (gateway.networking.k8s.io) does not answer.

They are custom resources: read as JSON, in the version that the server prefers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kube.object_names import name_of, namespace_of
from wherry.errors import WherryError
from wherry.why import commands
from wherry.why.causes import certificates
from wherry.why.causes.deletion import finalizers
from wherry.why.causes.ingresses import backend
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference
from wherry.why.subject import CustomObject, served_kind

GROUP = "gateway.networking.k8s.io"
ROUTES = frozenset({"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"})


async def gateway(diagnosis: Diagnosis, obj: CustomObject) -> Sequence[Cause]:
    """Return why a Gateway does not serve its listeners."""
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, diagnosis.reader.now)
    about, name = reference(obj), str(obj.spec.get("gatewayClassName", ""))
    found = await _class(diagnosis, about, name)
    for listener in _dicts(obj.spec.get("listeners")):
        found += await _certificates(diagnosis, obj, listener)
    found += _false(about, "", obj.status.get("conditions"))
    for state in _dicts(obj.status.get("listeners")):
        if not any(each.about is not None and each.about.kind == "Secret" for each in found):
            found += _false(about, f"listener {state.get('name')}: ", state.get("conditions"))
    if not found and not obj.status.get("conditions"):
        text = f"no program has looked at it yet: if that lasts, the one of GatewayClass {name} does not run"
        return [Cause(text, commands.kubectl("get", Reference("GatewayClass", name, "", GROUP), "-o", "yaml"), about)]
    return sorted(found, key=lambda cause: cause.partial)


async def route(diagnosis: Diagnosis, obj: CustomObject) -> Sequence[Cause]:
    """Return why a route is attached to no listener, or why the Services behind it do not answer."""
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, diagnosis.reader.now)
    about, found = reference(obj), []
    for parent in _dicts(obj.spec.get("parentRefs")):
        found += await _parent(diagnosis, obj, parent)
    for rule in _dicts(obj.spec.get("rules")):
        for ref in _dicts(rule.get("backendRefs")):
            if ref.get("kind", "Service") == "Service" and not ref.get("group"):
                namespace = ref.get("namespace") or namespace_of(obj)
                name = str(ref.get("name", ""))
                if await _granted(diagnosis, obj, namespace, "Service", name):
                    causes = await backend(diagnosis, namespace, name, ref.get("port") or 0)
                    found += _within(namespace_of(obj), causes)
    if not found:
        for state in _dicts(obj.status.get("parents")):
            name = (state.get("parentRef") or {}).get("name", "")
            found += _false(about, f"Gateway {name}: ", state.get("conditions"))
    if not found and not obj.spec.get("parentRefs"):
        found.append(Cause("it names no Gateway (spec.parentRefs)", commands.edit(about), about))
    return found


async def _parent(diagnosis: Diagnosis, obj: CustomObject, parent: Mapping[str, Any]) -> list[Cause]:
    """Return why a route is not attached to one of its Gateways."""
    if parent.get("kind", "Gateway") != "Gateway" or parent.get("group", GROUP) != GROUP:
        return []
    name, namespace = str(parent.get("name", "")), parent.get("namespace") or namespace_of(obj)
    kind = await _kind(diagnosis, "gateways")
    found = await diagnosis.reader.get(kind, name, namespace) if kind is not None else None
    if found is None:
        if kind is None or not diagnosis.reader.missing(kind, name, namespace):
            return []
        text = f"it is for the Gateway {name} in {namespace}, which does not exist"
        return [Cause(text, commands.listing(f"gateways.{GROUP}", namespace), reference(obj))]
    section = parent.get("sectionName")
    listeners = [str(each.get("name")) for each in _dicts(found.spec.get("listeners"))]
    if section and section not in listeners:
        text = f"it is for the listener {section} of the Gateway {name}, which has {', '.join(listeners)}"
        return [Cause(text, commands.edit(reference(obj)), reference(obj))]
    return []


async def _class(diagnosis: Diagnosis, about: Reference, name: str) -> list[Cause]:
    kind = await _kind(diagnosis, "gatewayclasses")
    found = await diagnosis.reader.get(kind, name) if kind is not None else None
    if found is None:
        if kind is None or not diagnosis.reader.missing(kind, name):
            return []
        classes = sorted(name_of(each) for each in await diagnosis.reader.all(kind))
        text = f"it names the GatewayClass {name}, which does not exist: no program serves it"
        if not classes:
            return [Cause(f"{text}; the cluster has none", commands.listing(f"gatewayclasses.{GROUP}"), about)]
        return [Cause(text, commands.patch(about, {"spec": {"gatewayClassName": classes[0]}}, merge=True), about)]
    return _false(reference(found), f"its GatewayClass {name}: ", found.status.get("conditions"))


async def _certificates(diagnosis: Diagnosis, obj: CustomObject, listener: Mapping[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    for ref in _dicts((listener.get("tls") or {}).get("certificateRefs")):
        if ref.get("kind", "Secret") == "Secret" and not ref.get("group"):
            namespace, host = ref.get("namespace") or namespace_of(obj), listener.get("hostname")
            whose, hosts, name = (
                f"listener {listener.get('name')}",
                [str(host)] if host else [],
                str(ref.get("name", "")),
            )
            if await _granted(diagnosis, obj, namespace, "Secret", name):
                causes = await certificates.of_secret(diagnosis, namespace, name, whose, hosts)
                found += _within(namespace_of(obj), causes)
    return found


async def _granted(diagnosis: Diagnosis, obj: CustomObject, namespace: str, kind: str, name: str) -> bool:
    """Return whether an object may refer to one of a namespace; conditions say so of those that it may not."""
    own = namespace_of(obj)
    if namespace == own:
        return True
    grants = await _kind(diagnosis, "referencegrants")
    source = {"group": GROUP, "kind": obj.kind, "namespace": own}
    for each in await diagnosis.reader.all(grants, namespace) if grants is not None else ():
        targets = [to for to in _dicts(each.spec.get("to")) if (to.get("group", ""), to.get("kind")) == ("", kind)]
        if source in _dicts(each.spec.get("from")) and any(to.get("name") in (None, "", name) for to in targets):
            return True
    return False


def _within(namespace: str, causes: Sequence[Cause]) -> list[Cause]:
    """Return causes without commands that change what is another namespace's: whoever refers to it does not own it."""
    return [
        each
        if each.about is None or each.about.namespace == namespace
        else msgspec.structs.replace(each, fix=commands.kubectl("describe", each.about))
        for each in causes
    ]


async def _kind(diagnosis: Diagnosis, plural: str) -> type[Any] | None:
    try:
        return await served_kind(diagnosis.reader.client, f"{plural}.{GROUP}")
    except WherryError as error:
        diagnosis.reader.note(str(error))
        return None


def _false(about: Reference, before: str, conditions: Any) -> list[Cause]:
    """Return the first condition that should be True and is not, or that has no positive meaning and is True."""
    for each in _dicts(conditions):
        wrong = "True" if each.get("type") == "Conflicted" else "False"
        if each.get("status") == wrong and each.get("type") in ("Accepted", "ResolvedRefs", "Programmed", "Conflicted"):
            why = each.get("message") or each.get("reason") or "no reason is given"
            text = f"{before}its condition {each['type']} is {wrong} ({each.get('reason', '')}): {why}"
            return [Cause(text, commands.kubectl("get", about, "-o", "yaml"), about)]
    return []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
