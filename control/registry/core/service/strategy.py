"""Services: addresses and ports are allocated before validation, so that the stored object is validated."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.core.service import table
from control.registry.core.service.allocator import ServiceAllocator
from control.registry.core.service.defaults import default_service, drop_disabled, keep_allocated
from control.registry.core.service.validation import validate_service, validate_service_update
from control.registry.core.service.warnings import refused_ports, service_warnings
from control.registry.field_values import field_value
from control.registry.load_balancer_points import point_warnings, validate_points
from control.registry.naming import label
from control.registry.strategy import Strategy, keep
from control.registry.strategy_context import Context, Finish, ReleaseContext, Settings
from kube.errors import FieldError, forbidden_field
from kube.json_object import Object
from kube.port_ranges import reserved_ports
from kube.resources import Resource


class ServiceStrategy(Strategy):
    returns_deleted = True
    allocates = True
    columns = table.COLUMNS
    allow_create_on_update = True
    has_generation = False
    name_rule = staticmethod(label)

    def __init__(self, resource: Resource, settings: Settings = Settings()) -> None:  # noqa: B008 - it is frozen
        super().__init__(resource, settings)
        self.allocator = ServiceAllocator(settings.service_ranges, settings.node_ports, shared=settings.shared_store)

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

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_service(obj)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return list(validate_service_update(obj, old))

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        points = field_value(obj, "status.loadBalancer.ingress")
        if points and (obj.get("spec") or {}).get("type") != "LoadBalancer":
            detail = "may only be used when `spec.type` is 'LoadBalancer'"
            return [forbidden_field("status.loadBalancer.ingress", detail)]
        return validate_points(obj, old, with_mode=True)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        allowed, reserved = self.settings.load_balancer_ports, reserved_ports(self.settings.api_port)
        return service_warnings(obj) + refused_ports(obj, old, allowed, reserved)

    def status_warnings(self, obj: Object) -> list[str]:
        return point_warnings(obj)

    def fields(self, obj: Object) -> dict[str, str]:
        spec = obj.get("spec") or {}
        return {"spec.clusterIP": spec.get("clusterIP") or "", "spec.type": spec.get("type") or ""}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return table.row(obj, now)
