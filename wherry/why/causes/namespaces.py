"""Finds why a namespace hangs in Terminating."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from kube.api import apiregistration_v1, core_v1
from kube.object_names import name_of
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.subject import kind_by_target
from wherry.why.times import ago, parsed

ALL_KINDS = "kubectl api-resources --verbs=list --namespaced -o name"
_REMAINING = re.compile(r"([a-z0-9.-]{1,253}) has ([0-9]+) resource instances")


async def causes(diagnosis: Diagnosis, namespace: core_v1.Namespace) -> Sequence[Cause]:
    """Return why a namespace that was deleted still exists."""
    if namespace.metadata.deletion_timestamp is None:
        return ()
    conditions = {
        each.type: each for each in (namespace.status.conditions if namespace.status else ()) if each.status == "True"
    }
    since = ago(parsed(namespace.metadata.deletion_timestamp), diagnosis.reader.now)
    about = reference(namespace)
    for type_ in ("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure"):
        if type_ in conditions:
            return await _discovery(diagnosis, namespace, conditions[type_].message or "")
    if "NamespaceFinalizersRemaining" in conditions:
        return await _finalizers(diagnosis, namespace, conditions)
    if "NamespaceDeletionContentFailure" in conditions:
        message = conditions["NamespaceDeletionContentFailure"].message or ""
        return [Cause(f"its objects cannot be deleted: {message}", commands.kubectl("get", about, "-o", "yaml"), about)]
    if "NamespaceContentRemaining" in conditions:
        message = conditions["NamespaceContentRemaining"].message or ""
        return [
            Cause(f"it was deleted {since}, and its objects have not ended yet: {message}", about=about, waits=True)
        ]
    others = [each for each in (namespace.spec.finalizers if namespace.spec else []) if each != "kubernetes"]
    if others:
        text = f"it was deleted {since}, and its finalizer {others[0]} has not been removed by the program that sets it"
        return [Cause(text, commands.kubectl("get", about, "-o", "yaml"), about)]
    return [Cause(f"it was deleted {since}, and its objects are being deleted", about=about, waits=True)]


async def _discovery(diagnosis: Diagnosis, namespace: core_v1.Namespace, message: str) -> Sequence[Cause]:
    """Return why the server does not know all kinds of objects that the namespace may hold: an extension server is down."""
    for service in await diagnosis.reader.all(apiregistration_v1.APIService):
        if found := await diagnosis.causes(service):
            text = f"the objects of API {name_of(service)} cannot be deleted: {found[0].text}"
            return [msgspec.structs.replace(found[0], text=text)]
    text = f"the kinds of the server's objects cannot be read: {message}"
    return [Cause(text, "kubectl get apiservices", reference(namespace))]


async def _finalizers(
    diagnosis: Diagnosis, namespace: core_v1.Namespace, conditions: dict[str, core_v1.NamespaceCondition]
) -> Sequence[Cause]:
    """Return the first object whose finalizers block the namespace."""
    remaining = conditions.get("NamespaceContentRemaining")
    named = name_of(namespace)
    for target, _ in _REMAINING.findall(remaining.message or "" if remaining is not None else ""):
        kind = await kind_by_target(diagnosis.reader.client, target)
        for obj in await diagnosis.reader.all(kind, named) if kind is not None else ():
            if not obj.metadata.finalizers:
                continue
            finalizer, about = obj.metadata.finalizers[0], reference(obj)
            text = f"its {about} has the finalizer {finalizer}, which the program that sets it has not removed"
            return [Cause(text, commands.patch(about, {"metadata": {"finalizers": None}}, merge=True), about)]
    message = conditions["NamespaceFinalizersRemaining"].message or ""
    return [
        Cause(
            message,
            f"{ALL_KINDS} | xargs -n1 {commands.words('kubectl', 'get', '-n', named)}",
            reference(namespace),
        )
    ]
