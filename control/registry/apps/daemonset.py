"""DaemonSets: defaults, columns and what may change."""

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
    labels_text,
    name_of,
    selector_text,
    template_spec,
)
from control.registry.core.pod_defaults import default_template
from control.registry.strategy import Object, Strategy
from control.registry.tables import age

_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


class DaemonSetStrategy(Strategy):
    columns = (
        NAME,
        Column("Desired", "integer", description="Nodes that should run the pod."),
        Column("Current", "integer", description="Nodes that run the pod and should."),
        Column("Ready", "integer", description="Nodes where the pod is ready."),
        Column("Up-to-date", "integer", description="Nodes with the newest template."),
        Column("Available", "integer", description="Nodes where the pod has been ready for long enough."),
        Column("Node Selector", description="Labels that choose the nodes."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        update = spec.setdefault("updateStrategy", {})
        if not update.get("type"):
            update["type"] = "RollingUpdate"
        if update["type"] == "RollingUpdate":
            rolling = update.setdefault("rollingUpdate", {})
            for key, value in (("maxUnavailable", 1), ("maxSurge", 0)):
                if rolling.get(key) is None:
                    rolling[key] = value
        if spec.get("revisionHistoryLimit") is None:
            spec["revisionHistoryLimit"] = 10

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = dict.fromkeys(
            ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
        )

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec, status, pod = obj.get("spec") or {}, obj.get("status") or {}, template_spec(obj)
        names, images = containers_and_images(pod)
        counts = [status.get(key, 0) for key in _COUNTS]
        where = labels_text(pod.get("nodeSelector"))
        return [
            name_of(obj),
            *counts,
            where,
            age(created(obj), now),
            names,
            images,
            selector_text(spec.get("selector")),
        ]
