"""Requests that are refused because a webhook could not be called: its configuration, and what is wrong with its Service."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kube.api import admissionregistration_v1, core_v1
from kube.object_names import name_of
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference

_FAILED = re.compile(r'failed calling webhook "([^"]+)": (.*)', re.S)
_TIMEOUT = re.compile(r"deadline exceeded|Client\.Timeout|timed? ?out", re.I)
_CERTIFICATE = re.compile(r"x509|certificate", re.I)
CONFIGURATIONS: tuple[type[Any], ...] = (
    admissionregistration_v1.ValidatingWebhookConfiguration,
    admissionregistration_v1.MutatingWebhookConfiguration,
)


async def webhook_failure(diagnosis: Diagnosis, message: str) -> Cause | None:
    """Return the cause of a message of the API server about a webhook that it could not call; None if it is about none."""
    failed = _FAILED.search(message)
    if failed is None:
        return None
    name, why = failed[1], failed[2].strip()
    for kind in CONFIGURATIONS:
        for configuration in await diagnosis.reader.all(kind):
            for webhook in configuration.webhooks:
                if webhook.name == name:
                    return await _of(diagnosis, configuration, webhook, why)
    text = f"webhook {name} cannot be called: {why}"
    return Cause(text, "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations")


async def _of(diagnosis: Diagnosis, configuration: Any, webhook: Any, why: str) -> Cause:
    about = reference(configuration)
    text = f"webhook {webhook.name} of {about} cannot be called"
    target = webhook.client_config.service if webhook.client_config is not None else None
    if target is not None and (found := await service_problem(diagnosis, target.namespace or "", target.name or "")):
        return msgspec.structs.replace(found, text=f"{text}: {found.text}")
    if _CERTIFICATE.search(why):
        return Cause(f"{text}: the API server does not trust its certificate: {why}", commands.edit(about), about)
    if _TIMEOUT.search(why):
        seconds = webhook.timeout_seconds or 10
        where = f"Service {target.name} in {target.namespace}" if target is not None else "its address"
        text = f"{text}: {where} does not answer within {seconds} s (timeoutSeconds): {why}"
        if target is not None:
            pods = commands.logs_of_service(target.name or "", target.namespace or "")
            return Cause(text, pods, about)
        return Cause(text, commands.edit(about), about)
    return Cause(f"{text}: {why}", commands.edit(about), about)


async def service_problem(diagnosis: Diagnosis, namespace: str, name: str) -> Cause | None:
    """Return why a Service that extends the API does not answer; None if it seems to."""
    service = await diagnosis.reader.get(core_v1.Service, name, namespace)
    if service is None:
        if not diagnosis.reader.missing(core_v1.Service, name, namespace):
            return None
        return Cause(f"its Service {name} in {namespace} does not exist", commands.listing("services", namespace))
    found = [each for each in await diagnosis.causes(service) if not each.partial]
    if not found:
        return None
    return msgspec.structs.replace(found[0], text=f"its Service {name_of(service)} in {namespace}: {found[0].text}")
