"""DeviceClasses: kinds of devices that administrators make ready for claims."""

from __future__ import annotations

from control.registry.checks import FieldErrors, each
from control.registry.resource.selectors import validate_selectors
from control.registry.resource.validation import MAX_CONFIGS, validate_configuration
from control.registry.strategy import Strategy
from kube import names
from kube.errors import FieldError, invalid_value
from kube.json_object import Object


class DeviceClassStrategy(Strategy):
    has_generation = True

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = validate_selectors(spec.get("selectors") or [], "spec.selectors")
        configs = spec.get("config") or []
        if len(configs) > MAX_CONFIGS:
            errors.append(FieldError("spec.config", "Too many", f"must have at most {MAX_CONFIGS} items", len(configs)))
        for index, config in enumerate(configs):
            errors += validate_configuration(config, f"spec.config[{index}]")
        return [*errors, *_extended_resource(spec.get("extendedResourceName"))]


def _extended_resource(name: str | None) -> FieldErrors:
    if name is None:
        return
    path, domain = "spec.extendedResourceName", name.partition("/")[0]
    yield from each(path, name, names.qualified_name(name))
    if "/" not in name or domain.endswith("kubernetes.io") or name.startswith("requests."):
        yield invalid_value(path, name, "must be a valid extended resource name")
