"""Webhook configurations: whom the server asks before it stores something."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


def default_rules(rules: list[Object] | None) -> None:
    for rule in rules or ():
        if not rule.get("scope"):
            rule["scope"] = "*"


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

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), len(obj.get("webhooks") or ()), age(created(obj), now)]
