"""Finds why extensions of the API do not work: aggregated APIs, definitions, webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kube.api import admissionregistration_v1, apiextensions_v1, apiregistration_v1
from kube.object_names import name_of
from wherry.why import commands
from wherry.why.causes.deletion import finalizers
from wherry.why.causes.webhook_failures import service_problem
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference

Webhooks = (
    admissionregistration_v1.ValidatingWebhookConfiguration | admissionregistration_v1.MutatingWebhookConfiguration
)


async def api_service(diagnosis: Diagnosis, obj: apiregistration_v1.APIService) -> Sequence[Cause]:
    """Return why an aggregated API is not available."""
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, diagnosis.reader.now)
    bad = next(
        (c for c in (obj.status.conditions if obj.status else ()) if c.type == "Available" and c.status != "True"), None
    )
    if bad is None:
        return ()
    target = obj.spec.service if obj.spec is not None else None
    about = reference(obj)
    if target is not None and (found := await service_problem(diagnosis, target.namespace or "", target.name or "")):
        return [msgspec.structs.replace(found, text=f"API {name_of(obj)} is not available: {found.text}")]
    text = f"API {name_of(obj)} is not available: {bad.message or bad.reason or ''}"
    return [Cause(text, commands.kubectl("describe", about), about)]


async def webhooks(diagnosis: Diagnosis, obj: Webhooks) -> Sequence[Cause]:
    """Return why calls of a configuration's webhooks fail."""
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, diagnosis.reader.now)
    about = reference(obj)
    for webhook in obj.webhooks:
        config = webhook.client_config
        target = config.service if config is not None else None
        if target is None:
            continue
        found = await service_problem(diagnosis, target.namespace or "", target.name or "")
        if found is not None:
            refuses = webhook.failure_policy != "Ignore"
            effect = "requests that it matches are refused" if refuses else "requests pass without it"
            text = f"webhook {webhook.name} does not answer, and {effect}: {found.text}"
            return [msgspec.structs.replace(found, text=text)]
        if config is not None and not config.ca_bundle:
            text = f"webhook {webhook.name} has no caBundle: the API server does not trust its certificate"
            return [Cause(text, commands.edit(about), about)]
    return ()


async def definition(diagnosis: Diagnosis, obj: apiextensions_v1.CustomResourceDefinition) -> Sequence[Cause]:
    """Return why a CustomResourceDefinition is not served, or not deleted."""
    about = reference(obj)
    conditions: dict[str, Any] = {each.type: each for each in (obj.status.conditions if obj.status else ())}
    if obj.metadata.deletion_timestamp is not None:
        ending = conditions.get("Terminating")
        blockers = finalizers(obj, diagnosis.reader.now)
        if ending is not None and ending.message and blockers:
            return [
                msgspec.structs.replace(
                    blockers[0], text=f"its objects are deleted first: {ending.message}", fix="", waits=True
                )
            ]
        return blockers
    for type_, what in (("NamesAccepted", "its names are taken"), ("Established", "it is not served")):
        found = conditions.get(type_)
        if found is not None and found.status == "False":
            return [Cause(f"{what}: {found.message or found.reason}", commands.edit(about), about)]
    wrong = conditions.get("NonStructuralSchema")
    if wrong is not None and wrong.status == "True":
        return [Cause(f"its schema is not structural: {wrong.message}", commands.edit(about), about)]
    return ()
