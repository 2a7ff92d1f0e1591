"""Deployments: defaults, columns and what may change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    SELECTOR,
    Column,
    containers_and_images,
    created,
    name_of,
    selector_text,
    template_spec,
)
from control.registry.core.pod_defaults import default_template
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class DeploymentStrategy(Strategy):
    columns = (
        NAME,
        Column("Ready", description="How many pods are ready."),
        Column("Up-to-date", description="Pods that run the newest template."),
        Column("Available", description="Pods that have been ready for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        if spec.get("replicas") is None:
            spec["replicas"] = 1
        strategy = spec.setdefault("strategy", {})
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            for key in ("maxUnavailable", "maxSurge"):
                if rolling.get(key) is None:
                    rolling[key] = "25%"
        for key, value in (("revisionHistoryLimit", 10), ("progressDeadlineSeconds", 600)):
            if spec.get(key) is None:
                spec[key] = value

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        names, images = containers_and_images(template_spec(obj))
        return [
            name_of(obj),
            f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
            status.get("updatedReplicas", 0),
            status.get("availableReplicas", 0),
            age(created(obj), now),
            names,
            images,
            selector_text(spec.get("selector")),
        ]
