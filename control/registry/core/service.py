"""Services: addresses and ports are handed out before validation, so that what is validated is what is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.checks import one_of
from control.registry.core import service_table
from control.registry.core.allocation import ServiceAllocator
from control.registry.core.service_defaults import default_service, drop_disabled, keep_allocated
from control.registry.core.service_validation import validate_service, validate_service_update
from control.registry.naming import label1035
from control.registry.networking.ingress import validate_points
from control.registry.strategy import Context, Finish, Object, ReleaseContext, Settings, Strategy, keep
from kube.errors import FieldError, forbidden_field
from kube.resources import Resource


class ServiceStrategy(Strategy):
    returns_deleted = True
    allocates = True
    columns = service_table.COLUMNS
    allow_create_on_update = True
    has_generation = False

    def __init__(self, resource: Resource, settings: Settings = Settings()) -> None:  # noqa: B008 - it is frozen
        super().__init__(resource, settings)
        self.allocator = ServiceAllocator(settings.service_ranges, settings.node_ports, settings.shared_store)

    def default(self, obj: Object) -> None:
        default_service(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}

    def prepare_update(self, obj: Object, old: Object) -> None:
        keep(obj, old, "status")
        keep_allocated(obj, old)
        drop_disabled(obj, old)

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish | None:
        return await self.allocator.allocate(obj, old, context)

    async def release(self, obj: Object, context: ReleaseContext) -> None:
        await self.allocator.release(obj, context)

    def name_errors(self, name: str, prefix: bool = False) -> list[str]:
        return label1035(name, prefix)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_service(obj)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_service_update(obj, old)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = validate_points(obj.get("status") or {})
        points = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress")
        if points and (obj.get("spec") or {}).get("type") != "LoadBalancer":
            detail = "may only be used when `spec.type` is 'LoadBalancer'"
            return [forbidden_field("status.loadBalancer.ingress", detail)]
        for index, point in enumerate(points or ()):
            path, mode = f"status.loadBalancer.ingress[{index}].ipMode", point.get("ipMode")
            if mode is not None and not point.get("ip"):
                errors.append(forbidden_field(path, "may not be specified when `ip` is not set"))
            elif mode is not None:
                errors += one_of(mode, ("Proxy", "VIP"), path)
        return errors

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        spec = obj.get("spec") or {}
        found = []
        if spec.get("clusterIP") == "None" and spec.get("sessionAffinity") == "ClientIP":
            found.append("spec.SessionAffinity is ignored for headless services")
        if spec.get("externalIPs") and spec.get("type") == "ExternalName":
            found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
        if spec.get("externalName") and spec.get("type") != "ExternalName":
            found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
        return found

    def fields(self, obj: Object) -> dict[str, str]:
        spec = obj.get("spec") or {}
        return {"spec.clusterIP": spec.get("clusterIP") or "", "spec.type": spec.get("type") or ""}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return service_table.row(obj, now)
