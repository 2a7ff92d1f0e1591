"""Webhook configurations: whom the server asks before it stores something."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.admissionregistration.client_config import validate_client
from control.registry.admissionregistration.expressions import match_conditions
from control.registry.admissionregistration.rules import validate_rules
from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.checks import each, label_selector, one_of, repeated
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube import names
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required


def default_rules(rules: list[Object] | None) -> None:
    for rule in rules or ():
        if not rule.get("scope"):
            rule["scope"] = "*"


def qualified_webhook_name(name: str, path: str) -> list[FieldError]:
    """Check a name of at least three parts, a.b.c."""
    if not name:
        return [required(path)]
    errors = each(path, name, names.dns1123_subdomain(name))
    if not errors and name.count(".") < 2:
        errors.append(invalid_value(path, name, "should be a domain with at least three segments separated by dots"))
    return errors


def _versions(versions: list[str], path: str) -> list[FieldError]:
    """Check the versions of AdmissionReview that a webhook understands."""
    if not versions:
        return [required(path, "must specify one of v1, v1beta1")]
    errors: list[FieldError] = []
    again = repeated(versions)
    for index, version in enumerate(versions):
        if index in again:
            errors.append(invalid_value(f"{path}[{index}]", version, "duplicate version"))
        else:
            errors += each(f"{path}[{index}]", version, names.dns1035_label(version))
    if not {"v1", "v1beta1"} & set(versions):
        errors.append(invalid_value(path, versions, "must include at least one of v1, v1beta1"))
    return errors


def _validate_webhook(webhook: Object, path: str) -> list[FieldError]:
    errors = qualified_webhook_name(webhook.get("name") or "", f"{path}.name")
    errors += label_selector(webhook.get("namespaceSelector"), f"{path}.namespaceSelector")
    errors += label_selector(webhook.get("objectSelector"), f"{path}.objectSelector")
    errors += validate_rules(webhook.get("rules"), f"{path}.rules")
    errors += one_of(webhook.get("failurePolicy"), ("Fail", "Ignore"), f"{path}.failurePolicy", needed=False)
    errors += one_of(webhook.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", needed=False)
    effects = ("None", "NoneOnDryRun")
    errors += one_of(webhook.get("sideEffects"), effects, f"{path}.sideEffects")
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid_value(f"{path}.timeoutSeconds", seconds, detail))
    policy = webhook.get("reinvocationPolicy")
    if policy not in (None, "IfNeeded", "Never"):
        errors.append(not_supported(f"{path}.reinvocationPolicy", policy, ("IfNeeded", "Never")))
    errors += _versions(webhook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions")
    errors += match_conditions(webhook.get("matchConditions"), f"{path}.matchConditions")
    return errors + validate_client(webhook.get("clientConfig") or {}, f"{path}.clientConfig")


class WebhookConfigurationStrategy(Strategy):
    columns = (NAME, Column("Webhooks", "integer", description="How many webhooks there are."), AGE)
    allow_unconditional_update = False

    def default(self, obj: Object) -> None:
        for webhook in obj.get("webhooks") or ():
            for key, value in (("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("timeoutSeconds", 10)):
                if webhook.get(key) in (None, ""):
                    webhook[key] = value
            for key in ("namespaceSelector", "objectSelector"):
                if webhook.get(key) is None:
                    webhook[key] = {}
            if self.resource.kind.startswith("Mutating") and not webhook.get("reinvocationPolicy"):
                webhook["reinvocationPolicy"] = "Never"
            service = (webhook.get("clientConfig") or {}).get("service")
            if service is not None and service.get("port") is None:
                service["port"] = 443
            default_rules(webhook.get("rules"))

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, webhook in enumerate(obj.get("webhooks") or ()):
            path, name = f"webhooks[{index}]", webhook.get("name") or ""
            errors += _validate_webhook(webhook, path)
            if name in seen:
                errors.append(duplicate(f"{path}.name", name))
            seen.add(name)
        return errors

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), len(obj.get("webhooks") or ()), age(created(obj), now)]
