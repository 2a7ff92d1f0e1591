"""Webhook configurations: whom the server asks before it stores something."""

from __future__ import annotations

import urllib.parse
from datetime import datetime
from typing import Any

from control.registry.admissionregistration.expressions import match_conditions
from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.checks import each, label_selector, one_of, port
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube import names
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required


def default_rules(rules: list[Object] | None) -> None:
    for rule in rules or ():
        if not rule.get("scope"):
            rule["scope"] = "*"


_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def qualified_webhook_name(name: str, path: str) -> list[FieldError]:
    """Check a name of at least three parts, a.b.c."""
    if not name:
        return [required(path)]
    errors = each(path, name, names.dns1123_subdomain(name))
    if not errors and name.count(".") < 2:
        errors.append(invalid_value(path, name, "should be a domain with at least three segments separated by dots"))
    return errors


def validate_rules(rules: list[Object] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, rule in enumerate(rules or ()):
        where = f"{path}[{index}]"
        errors += [
            required(f"{where}.{k}") for k in ("operations", "apiGroups", "apiVersions", "resources") if not rule.get(k)
        ]
        for number, operation in enumerate(rule.get("operations") or ()):
            if operation not in _OPERATIONS:
                errors.append(not_supported(f"{where}.operations[{number}]", operation, _OPERATIONS))
        if rule.get("scope") not in (None, "*", "Cluster", "Namespaced"):
            errors.append(not_supported(f"{where}.scope", rule["scope"], ("*", "Cluster", "Namespaced")))
        for key in ("apiGroups", "apiVersions"):
            if "*" in (rule.get(key) or ()) and len(rule[key]) > 1:
                detail = "if '*' is present, must not specify other " + (
                    "API groups" if key == "apiGroups" else "API versions"
                )
                errors.append(invalid_value(f"{where}.{key}", rule[key], detail))
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
    versions = webhook.get("admissionReviewVersions") or []
    where = f"{path}.admissionReviewVersions"
    if not versions:
        errors.append(required(where, "must specify one of v1, v1beta1"))
    elif not {"v1", "v1beta1"} & set(versions):
        errors.append(invalid_value(where, versions, "must include at least one of v1, v1beta1"))
    errors += match_conditions(webhook.get("matchConditions"), f"{path}.matchConditions")
    return errors + validate_client(webhook.get("clientConfig") or {}, f"{path}.clientConfig")


def validate_client(client: Object, path: str) -> list[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    if service is not None:
        errors = [required(f"{path}.service.{key}") for key in ("name", "namespace") if not service.get(key)]
        return errors + port(service.get("port") or 443, f"{path}.service.port")
    parts = urllib.parse.urlsplit(str(url))
    if parts.scheme != "https":
        detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
        return [invalid_value(f"{path}.url", parts.scheme, detail)]
    if not parts.netloc:
        detail = "host must be specified; desired format: https://host[/path]"
        return [invalid_value(f"{path}.url", parts.netloc, detail)]
    return []


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
