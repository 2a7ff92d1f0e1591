"""StatefulSets: defaults, columns and what may change."""

from __future__ import annotations

from control.registry.apps.workload import (
    not_decremented,
    validate_counts,
    validate_selected_template,
    validate_selector,
)
from control.registry.changes import same
from control.registry.checks import at_most_all, each, int_or_percent, non_negative, non_negative_fields, scaled_zero
from control.registry.core.claim_spec import claim_warnings, default_claim, validate_claim_spec
from control.registry.core.pod.defaults import default_template
from control.registry.core.pod.warnings import template_warnings
from control.registry.defaults import Defaults, absent
from control.registry.naming import label
from control.registry.strategy import Strategy
from control.registry.table_cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    READY,
)
from kube.errors import FieldError, forbidden_field, invalid_value, not_supported, required, too_many
from kube.json_object import Object
from kube.names import dns1123_label

_UPDATABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_TEMPLATE = ("spec.template.spec.", "spec.template.metadata.")
_MOST_CLAIM_TEMPLATES = 256
"""Claims of a pod, each an object for each replica; upstream has no limit."""
_FROZEN = "updates to statefulset spec for fields other than {} and {} are forbidden".format(
    ", ".join(f"'{key}'" for key in _UPDATABLE[:-1]), f"'{_UPDATABLE[-1]}'"
)


def _as_controlled(spec: Object) -> Object:
    """Return the spec with what the controller sets in pods: a volume for every claim template, no host names."""
    template = spec.get("template") or {}
    pod = {key: value for key, value in (template.get("spec") or {}).items() if key not in ("hostname", "subdomain")}
    claims = {(c.get("metadata") or {}).get("name") or "": None for c in spec.get("volumeClaimTemplates") or ()}
    if claims:
        added = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
        pod["volumes"] = [*added, *(v for v in pod.get("volumes") or () if (v.get("name") or "") not in claims)]
    return {**spec, "template": {**template, "spec": pod}}


def _validate_update_strategy(strategy: Object, path: str) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    where = f"{path}.rollingUpdate"
    if not kind:
        return [required(path)]
    if kind == "OnDelete":
        if rolling is None:
            return []
        return [invalid_value(where, rolling, "only allowed for updateStrategy 'RollingUpdate'")]
    if kind != "RollingUpdate":
        return [invalid_value(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")]
    errors = non_negative((rolling or {}).get("partition"), f"{where}.partition")
    away = (rolling or {}).get("maxUnavailable")
    if away is not None:
        errors += int_or_percent(away, f"{where}.maxUnavailable") + at_most_all(away, f"{where}.maxUnavailable")
        if scaled_zero(away):
            errors.append(invalid_value(f"{where}.maxUnavailable", away, "cannot be 0"))
    return errors


_ROLLING = Defaults(("rollingUpdate.partition", absent(0)))


class StatefulSetStrategy(Strategy):
    columns = (NAME, READY, AGE, CONTAINERS, IMAGES)
    field_defaults = Defaults(
        ("spec.podManagementPolicy", "OrderedReady"),
        ("spec.persistentVolumeClaimRetentionPolicy", absent({})),
        ("spec.persistentVolumeClaimRetentionPolicy.{whenDeleted,whenScaled}", "Retain"),
        ("spec.replicas", absent(1)),
        ("spec.revisionHistoryLimit", absent(10)),
    )
    name_rule = staticmethod(label)
    """A label, as names of pods and their hosts come from it."""

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        update = spec.setdefault("updateStrategy", {})
        if not update.get("type"):
            update["type"] = "RollingUpdate"
            update.setdefault("rollingUpdate", {})
        if update["type"] == "RollingUpdate":
            _ROLLING(update)
        super().default(obj)
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.update({"apiVersion": "v1", "kind": "PersistentVolumeClaim"})
            default_claim(claim)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0, "availableReplicas": 0}

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = self._validate_changeable(spec)
        for index, claim in enumerate((spec.get("volumeClaimTemplates") or ())[:_MOST_CLAIM_TEMPLATES]):
            errors += validate_claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
        service = spec.get("serviceName") or ""
        return errors + (each("spec.serviceName", service, dns1123_label(service)) if service else [])

    def _validate_changeable(self, spec: Object) -> list[FieldError]:
        """Check all but what cannot change."""
        errors = []
        policies = ("OrderedReady", "Parallel")
        if spec.get("podManagementPolicy") not in policies:
            detail = "must be 'OrderedReady' or 'Parallel'"
            errors.append(invalid_value("spec.podManagementPolicy", spec.get("podManagementPolicy"), detail))
        errors += _validate_update_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy")
        retention, path = (
            spec.get("persistentVolumeClaimRetentionPolicy") or {},
            "spec.persistentVolumeClaimRetentionPolicy",
        )
        for key in ("whenDeleted", "whenScaled"):
            if retention.get(key) not in ("Retain", "Delete"):
                errors.append(not_supported(f"{path}.{key}", retention.get(key), ("Retain", "Delete")))
        errors += non_negative_fields(spec, "spec", "replicas", "minReadySeconds")
        if (spec.get("ordinals") or {}).get("start") is not None:
            errors += non_negative(spec["ordinals"]["start"], "spec.ordinals.start")
        errors += validate_selector(spec, "spec", "statefulset")
        templates = len(spec.get("volumeClaimTemplates") or ())
        if templates > _MOST_CLAIM_TEMPLATES:
            return [*errors, too_many("spec.volumeClaimTemplates", templates, _MOST_CLAIM_TEMPLATES)]
        return [*errors, *validate_selected_template(_as_controlled(spec), "spec", "StatefulSet")]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        before, after = ({k: v for k, v in (o.get("spec") or {}).items() if k not in _UPDATABLE} for o in (old, obj))
        errors = self._validate_changeable(obj.get("spec") or {})
        if errors and self._validate_changeable(old.get("spec") or {}):  # the template of a wrong one is not checked
            errors = [error for error in errors if not error.path.startswith(_TEMPLATE)]
        if not same(before, after):
            errors.append(forbidden_field("spec", _FROZEN))
        return errors

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status, before = obj.get("status") or {}, old.get("status") or {}
        keys = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
        errors = non_negative_fields(status, "status", *keys, "observedGeneration", "collisionCount")
        errors += validate_counts(status, *keys[1:], ready="status.readyReplicas")
        return errors + not_decremented(status, before)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        found = template_warnings(obj, old)
        for index, claim in enumerate((obj.get("spec") or {}).get("volumeClaimTemplates") or ()):
            found += claim_warnings(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
        if ((obj.get("spec") or {}).get("revisionHistoryLimit") or 0) < 0:
            found.append(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is "
                "recommended"
            )
        return found
