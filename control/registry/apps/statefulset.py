"""StatefulSets: defaults, columns and what may change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Column,
    containers_and_images,
    created,
    name_of,
    template_spec,
)
from control.registry.core.persistentvolumeclaim import default_claim
from control.registry.core.pod_defaults import default_template
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class StatefulSetStrategy(Strategy):
    columns = (NAME, Column("Ready", description="How many pods are ready."), AGE, CONTAINERS, IMAGES)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        if not spec.get("podManagementPolicy"):
            spec["podManagementPolicy"] = "OrderedReady"
        update = spec.setdefault("updateStrategy", {})
        if not update.get("type"):
            update["type"] = "RollingUpdate"
            update.setdefault("rollingUpdate", {})
        if update["type"] == "RollingUpdate" and update.get("rollingUpdate") is not None:
            if update["rollingUpdate"].get("partition") is None:
                update["rollingUpdate"]["partition"] = 0
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        for key in ("whenDeleted", "whenScaled"):
            if not retention.get(key):
                retention[key] = "Retain"
        for key, value in (("replicas", 1), ("revisionHistoryLimit", 10)):
            if spec.get(key) is None:
                spec[key] = value
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.update({"apiVersion": "v1", "kind": "PersistentVolumeClaim"})
            default_claim(claim)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0, "availableReplicas": 0}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        names, images = containers_and_images(template_spec(obj))
        ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
        return [name_of(obj), ready, age(created(obj), now), names, images]
