"""Objects for tests of who owns which fields, in few words."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from control.patch.apply import track_update
from control.patch.schema import Node, of_object
from kube.api import apps_v1, core_v1
from kube.json_object import Object

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
DEPLOYMENT, POD, SERVICE, CONFIG_MAP = map(
    of_object, (apps_v1.Deployment, core_v1.Pod, core_v1.Service, core_v1.ConfigMap)
)
STATUS = frozenset({"status"})


def deployment(spec: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **metadata},
        "spec": yaml.safe_load(spec),
    }


def owners(obj: Object) -> dict[tuple[str, str], Any]:
    return {(m["manager"], m["operation"]): m["fieldsV1"] for m in obj["metadata"].get("managedFields", [])}


def updated(
    obj: Object, change: Object, manager: str, schema: Node = DEPLOYMENT, subresource: str = "", now: datetime = NOW
) -> Object:
    """Do an update of some top-level parts as a client would, with the bookkeeping."""
    new = copy.deepcopy({**obj, **change})
    new["metadata"] = {**copy.deepcopy(obj["metadata"]), **change.get("metadata", {})}
    new["metadata"]["managedFields"] = track_update(obj, new, manager, subresource, schema, now)
    return new


CONTAINERS = "{replicas: 3, template: {spec: {containers: [{name: app, image: 'nginx:1'}]}}}"
