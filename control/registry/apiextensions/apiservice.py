"""APIServices: registration of group versions that another server serves."""

from __future__ import annotations

import base64

from control.registry.checks import each
from control.registry.defaults import Defaults, absent
from control.registry.naming import path_segment
from control.registry.strategy import OBJECT_META, Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, name_of
from kube import names
from kube.errors import FieldError, invalid_value, required
from kube.json_object import Object


def _service(service: Object | None) -> str:
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available(conditions: list[Object] | None) -> str:
    shown = "Unknown"
    for condition in conditions or ():
        if condition.get("type") == "Available":
            shown = condition.get("status", "")
            if shown == "False" and condition.get("reason"):
                shown = f"False ({condition['reason']})"
    return shown


class APIServiceStrategy(Strategy):
    status_keeps = OBJECT_META
    columns = (
        NAME,
        Column("Service", Field("spec.service", show=_service), "Who answers, Local for this server."),
        Column("Available", Field("status.conditions", show=_available), "Whether it does."),
        AGE,
    )
    allow_unconditional_update = False
    has_generation = False
    field_defaults = Defaults(("spec.service.port", absent(443)))
    name_rule = staticmethod(path_segment)
    """Any name, as that of the core group ends with a dot (`v1.`)."""

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        wanted = f"{spec.get('version', '')}.{spec.get('group', '')}"
        if name_of(obj) != wanted:
            detail = f'must be `spec.version+"."+spec.group`: "{wanted}"'
            errors.append(invalid_value("metadata.name", name_of(obj), detail))
        version, group = spec.get("version") or "", spec.get("group") or ""
        if not group and version != "v1":
            errors.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
        if group:
            errors += each("spec.group", group, names.dns1123_subdomain(group))
        errors += each("spec.version", version, names.dns1035_label(version))
        for key, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
            if not 0 < spec.get(key, 0) <= most:
                errors.append(invalid_value(f"spec.{key}", spec.get(key, 0), f"must be positive and less than {most}"))
        service = spec.get("service")
        if service is not None:
            errors += [required(f"spec.service.{key}") for key in ("namespace", "name") if not service.get(key)]
            port = service.get("port") or 443
            wrong = names.port_number(port)
            if wrong:
                errors.append(invalid_value("spec.service.port", port, f"port is not valid: {wrong[0]}"))
            if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
                detail = "may not be true if caBundle is present"
                errors.append(invalid_value("spec.insecureSkipTLSVerify", True, detail))
            return errors
        if spec.get("caBundle"):
            size = f"{len(base64.b64decode(spec['caBundle'] + '=='))} bytes"
            errors.append(invalid_value("spec.caBundle", size, "local APIServices may not have a caBundle"))
        if spec.get("insecureSkipTLSVerify"):
            detail = "local APIServices may not have insecureSkipTLSVerify"
            errors.append(invalid_value("spec.insecureSkipTLSVerify", True, detail))
        return errors
