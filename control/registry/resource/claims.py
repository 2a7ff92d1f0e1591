"""resource.k8s.io: devices that nodes offer, classes of them, and claims on them."""

from __future__ import annotations

from control.event_loop import offload
from control.registry.changes import validate_immutable
from control.registry.defaults import Defaults
from control.registry.field_values import field_value
from control.registry.resource.device_states import drop_deallocated
from control.registry.resource.slices import validate_slice
from control.registry.resource.validation import (
    asks_for_admin_access,
    validate_claim,
    validate_claim_status,
)
from control.registry.strategy import OBJECT_META, Strategy
from control.registry.strategy_context import Context, Finish
from control.registry.table_cells import AGE, NAME, Column, Field
from kube.errors import FieldError, StatusError, forbidden_field, invalid, invalid_value
from kube.json_object import Object

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_NOT_ADMIN = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"


async def _check_admin(kind: str, obj: Object, spec: Object, path: str, context: Context) -> None:
    """Raise StatusError if administrators' access is requested in a namespace that has none."""
    user, size = context.user.name, context.size
    asked = await offload.run(user, size, asks_for_admin_access, spec)
    if not asked:
        return
    metadata = obj.get("metadata", {})
    namespace = context.find("", "v1", "namespaces", "", metadata.get("namespace", ""))
    if namespace is not None and (namespace["metadata"].get("labels") or {}).get(ADMIN_LABEL) == "true":
        return
    raise await offload.run(user, size, _not_admin, kind, metadata.get("name", ""), path, asked)


def _not_admin(kind: str, name: str, path: str, asked: list[str]) -> StatusError:
    return invalid("resource.k8s.io", kind, name, [forbidden_field(f"{path}.{where}", _NOT_ADMIN) for where in asked])


_REQUEST = Defaults(("allocationMode", "ExactCount"), ("tolerations[*].operator", "Equal"))


def _default_requests(spec: Object | None) -> None:
    for request in field_value(spec, "devices.requests") or ():
        exactly = request.get("exactly")
        for part in [*([exactly] if exactly is not None else []), *(request.get("firstAvailable") or ())]:
            _REQUEST(part)
            if part["allocationMode"] == "ExactCount" and not part.get("count"):
                part["count"] = 1


def _state(claim: Object) -> str:
    status = claim.get("status") or {}
    states = ["deleted"] if claim.get("metadata", {}).get("deletionTimestamp") else []
    if status.get("allocation") is not None:
        states += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    return ",".join(states) or "pending"


class ResourceClaimStrategy(Strategy):
    status_keeps = OBJECT_META
    columns = (NAME, Column("State", Field("", show=_state), "Whether devices are allocated and in use."), AGE)
    has_generation = False

    def default(self, obj: Object) -> None:
        _default_requests(obj.get("spec"))

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish | None:
        if old is None:
            await _check_admin("ResourceClaim", obj, obj.get("spec") or {}, "spec", context)
        return None

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_claim(obj.get("spec") or {}, "spec")

    def prepare_status_update(self, obj: Object, old: Object) -> None:
        super().prepare_status_update(obj, old)
        drop_deallocated(obj.get("status") or {}, old.get("status") or {})

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status, old_status = obj.get("status") or {}, old.get("status") or {}
        before = old_status.get("allocation")
        errors = list(validate_claim_status(status, obj.get("spec") or {}, old_status))
        if before is not None and status.get("allocation") not in (None, before):
            errors.append(invalid_value("status.allocation", status["allocation"], "field is immutable"))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_immutable(obj, old, "spec")


class ResourceClaimTemplateStrategy(Strategy):
    has_generation = False

    def default(self, obj: Object) -> None:
        _default_requests((obj.get("spec") or {}).get("spec"))

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish | None:
        if old is None:
            spec = (obj.get("spec") or {}).get("spec") or {}
            await _check_admin("ResourceClaimTemplate", obj, spec, "spec.spec", context)
        return None

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_claim((obj.get("spec") or {}).get("spec") or {}, "spec.spec")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_immutable(obj, old, "spec")


class ResourceSliceStrategy(Strategy):
    columns = (
        NAME,
        Column("Node", Field("spec.nodeName")),
        Column("Driver", Field("spec.driver")),
        Column("Pool", Field("spec.pool.name")),
        AGE,
    )

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_slice(obj.get("spec") or {}, "spec")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = validate_slice(obj.get("spec") or {}, "spec", old.get("spec") or {})
        return errors + validate_immutable(obj, old, "spec.pool.name", "spec.driver", "spec.nodeName")

    def fields(self, obj: Object) -> dict[str, str]:
        spec = obj.get("spec") or {}
        return {f"spec.{key}": spec.get(key) or "" for key in ("nodeName", "driver")}
