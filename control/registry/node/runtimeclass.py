"""RuntimeClasses: the handler of the runtime for a pod, its overhead and its scheduling constraints."""

from __future__ import annotations

from control.registry.changes import validate_immutable
from control.registry.checks import labels, repeated, required_name
from control.registry.core.deprecated import OLD_LABELS
from control.registry.core.pod.placement import validate_tolerations
from control.registry.core.resources import amount_of, container_resource_name
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field
from kube.errors import FieldError, duplicate
from kube.json_object import Object
from kube.names import dns1123_label

_TOLERATION = ("key", "operator", "value", "effect")


class RuntimeClassStrategy(Strategy):
    columns = (NAME, Column("Handler", Field("handler"), "The runtime's handler."), AGE)
    allow_unconditional_update = False
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        handler = obj.get("handler") or ""
        errors = required_name("handler", handler, dns1123_label)
        for name, amount in ((obj.get("overhead") or {}).get("podFixed") or {}).items():
            path = f"overhead.limits[{name}]"  # upstream's path
            errors += container_resource_name(name, path) + amount_of(name, amount, path)
        scheduling, tolerations = obj.get("scheduling") or {}, (obj.get("scheduling") or {}).get("tolerations") or []
        errors += labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
        errors += validate_tolerations(tolerations, "scheduling.tolerations")
        again = sorted(repeated([[t.get(key) or "" for key in _TOLERATION] for t in tolerations]))
        return errors + [duplicate(f"scheduling.tolerations[{i}]", tolerations[i]) for i in again]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_immutable(obj, old, "handler")

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        selector = (obj.get("scheduling") or {}).get("nodeSelector") or {}
        return [f"scheduling.nodeSelector[{k}]: {OLD_LABELS[k]}" for k in sorted(selector) if k in OLD_LABELS]
