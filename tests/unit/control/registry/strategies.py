"""Runs objects through their strategies as the generic path does, and says what is wrong with them."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from control.registry import disabled_fields
from control.registry.ratcheting import problems_of_change, problems_of_creation
from control.registry.strategies import strategy_for
from control.registry.strategy import Strategy
from control.registry.strategy_context import Settings
from kube.json_object import Object
from kube.resources import by_kind

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def strategy_of(obj: Object, *gates: str) -> Strategy:
    resource = by_kind(obj["apiVersion"], obj["kind"])
    assert resource is not None
    return strategy_for(resource, Settings(gates=frozenset(gates)))


def created(obj: Object, *gates: str) -> Object:
    """Return an object as a create would store it, unless it is refused; `gates` are on."""
    obj, strategy = copy.deepcopy(obj), strategy_of(obj, *gates)
    strategy.default(obj)
    strategy.prepare_create(obj)
    disabled_fields.drop(strategy, obj, None)
    strategy.default(obj)
    return obj


def changed(old: Object, obj: Object, *gates: str, subresource: str = "") -> Object:
    """Return an object as an update of `old` would store it, unless it is refused."""
    obj, strategy = copy.deepcopy(obj), strategy_of(old, *gates)
    strategy.default(obj)
    if subresource:
        strategy.prepare_subresource(subresource, obj, old)
    else:
        strategy.prepare_update(obj, old)
    disabled_fields.drop(strategy, obj, old)
    strategy.default(obj)
    return obj


def problems(obj: Object, *gates: str) -> list[str]:
    """Return what a create says is wrong."""
    return [str(e) for e in problems_of_creation(strategy_of(obj, *gates), created(obj, *gates))]


def update_problems(old: Object, obj: Object, subresource: str = "", *gates: str) -> list[str]:
    """Return what an update of `old` (as stored) to `obj` says is wrong."""
    new = changed(old, obj, *gates, subresource=subresource)
    return [str(e) for e in problems_of_change(strategy_of(old, *gates), new, old, subresource)]


def cells(obj: Object) -> dict[str, Any]:
    """Return a table row as a mapping from column to cell."""
    strategy = strategy_of(obj)
    row = strategy.row(obj, NOW)
    assert len(row) == len(strategy.columns)
    return {column.name: cell for column, cell in zip(strategy.columns, row, strict=True)}


def pod(**spec: Any) -> Object:
    """Return a pod of one container; `spec` replaces parts of its spec."""
    base: Object = {"containers": [{"name": "c", "image": "nginx:1.27"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-02T11:55:00Z"},
        "spec": {**base, **spec},
    }


def container(**parts: Any) -> Object:
    return {"name": "c", "image": "nginx:1.27", **parts}


def workload(kind: str, group_version: str = "apps/v1", **spec: Any) -> Object:
    """Return a Deployment, ReplicaSet, ... whose selector chooses its template."""
    labels = {"app": "web"}
    base = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container()]}},
    }
    return {
        "apiVersion": group_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-02T11:55:00Z"},
        "spec": {**base, **spec},
    }


def service(**spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default", "creationTimestamp": "2026-01-02T11:55:00Z"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec},
    }
