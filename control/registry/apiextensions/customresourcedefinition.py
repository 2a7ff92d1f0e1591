"""CustomResourceDefinitions: their names' defaults and columns."""

from __future__ import annotations

from datetime import datetime

from control.registry.apiextensions.cleanup_finalizer import add_finalizer
from control.registry.apiextensions.stored import overlaps, readable
from control.registry.apiextensions.validation import validate_change, validate_definition, validate_status
from control.registry.checks import Errors
from control.registry.defaults import Defaults, absent
from control.registry.deletion_plan import Outcome
from control.registry.field_values import field_value
from control.registry.strategy import Strategy
from control.registry.table_cells import CREATED_AT, NAME
from kube.errors import FieldError, forbidden_field
from kube.json_object import Object

_NAMES = Defaults(
    ("singular", lambda names: names["kind"].lower()),
    ("listKind", lambda names: f"{names['kind']}List"),
)


class CustomResourceDefinitionStrategy(Strategy):
    columns = (NAME, CREATED_AT)
    field_defaults = Defaults(
        ("spec.conversion", absent({})),
        ("spec.conversion.strategy", "None"),
        ("spec.conversion.webhook.clientConfig.service.port", absent(443)),
    )
    allow_unconditional_update = False

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if names.get("kind"):
            _NAMES(names)
        super().default(obj)

    def prepare_create(self, obj: Object) -> None:
        stored = [v.get("name", "") for v in obj["spec"].get("versions") or () if v.get("storage")]
        obj["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        # A version that becomes the stored one is recorded, as objects may be stored in it from now on.
        status = dict(obj.get("status") or {})
        stored = dict.fromkeys(status.get("storedVersions") or ())
        stored |= dict.fromkeys(v.get("name") for v in obj["spec"].get("versions") or () if v.get("storage"))
        obj["status"] = {**status, "storedVersions": list(stored)}

    def plan_deletion(self, obj: Object, now: datetime) -> Outcome | None:
        """Delete an object that is no definition at once: nothing is served of it, and no update of it is valid."""
        return None if readable(obj) else "delete"

    def prepare_delete(self, obj: Object, now: datetime) -> None:
        add_finalizer(obj, now)

    def validate(self, obj: Object) -> list[FieldError]:
        return [*validate_definition(obj), *_overlap(obj)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return [*validate_definition(obj, old), *validate_change(obj, old)]

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_status(obj)


def _overlap(obj: Object) -> Errors:
    """Refuse a new definition whose objects would be stored among those of a built-in resource."""
    group, plural = field_value(obj, "spec.group") or "", field_value(obj, "spec.names.plural") or ""
    if not overlaps(group, plural):
        return []
    return [forbidden_field("spec.names.plural", f"objects of {plural}.{group} are stored by the built-in resource")]
