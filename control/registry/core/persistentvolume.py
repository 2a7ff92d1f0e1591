"""PersistentVolumes."""

from __future__ import annotations

from control.registry.changes import IMMUTABLE, differences, same, validate_immutable
from control.registry.checks import Errors, each, one_of
from control.registry.core.claim_spec import class_of, class_warnings, positive, validate_access_modes
from control.registry.core.deprecated import OLD_VOLUMES, OLD_VOLUMES_SPELLED, term_warnings
from control.registry.core.pod.placement import NODE_SELECTOR
from control.registry.core.pod.volumes import validate_source
from control.registry.defaults import Defaults, absent
from control.registry.field_values import field_value
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, UNSET, Column, Field, access_modes, name_of, phase
from kube.errors import forbidden_field, invalid_value, not_supported, required
from kube.json_object import Object
from kube.names import dns1123_subdomain
from kube.quantity import canonical

_BETA = {
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
}
"""Beta label -> the stable one."""
_RECLAIM = ("Delete", "Recycle", "Retain")
_NOT_SOURCES = (
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
)


def _claim(claim: Object | None) -> str:
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _stable(before: Object, after: Object | None) -> Object:
    """Return a stored node affinity with the stable labels that an update uses in the place of beta ones."""
    terms = field_value(before, "required.nodeSelectorTerms") or []
    given = field_value(after, "required.nodeSelectorTerms") or []
    if not terms or len(terms) != len(given):
        return before
    renamed = [
        {**term, **({"matchExpressions": _renamed(term, new)} if term.get("matchExpressions") else {})}
        for term, new in zip(terms, given, strict=True)
    ]
    return {**before, "required": {**before["required"], "nodeSelectorTerms": renamed}}


def _renamed(term: Object, new: Object) -> list[Object]:
    keys = {expression.get("key") for expression in new.get("matchExpressions") or ()}
    return [
        {**expression, "key": stable} if (stable := _BETA.get(expression.get("key"))) in keys else expression
        for expression in term["matchExpressions"]
    ]


class PersistentVolumeStrategy(Strategy):
    returns_deleted = True
    columns = (
        NAME,
        Column("Capacity", Field("spec.capacity.storage", show=lambda size: "0" if size is None else canonical(size))),
        Column("Access Modes", Field("spec.accessModes", show=access_modes)),
        Column("Reclaim Policy", Field("spec.persistentVolumeReclaimPolicy")),
        Column("Status", Field("", show=phase)),
        Column("Claim", Field("spec.claimRef", show=_claim)),
        Column("StorageClass", Field("", show=class_of)),
        Column("VolumeAttributesClass", Field("spec.volumeAttributesClassName", UNSET)),
        Column("Reason", Field("status.reason")),
        AGE,
        Column("VolumeMode", Field("spec.volumeMode", UNSET), priority=1),
    )
    has_generation = False
    field_defaults = Defaults(
        ("spec", absent({})),
        ("spec.persistentVolumeReclaimPolicy", "Retain"),
        ("spec.volumeMode", "Filesystem"),
        ("status", absent({})),
        ("status.phase", "Pending"),
        ("spec.hostPath.type", absent("")),
        ("spec.iscsi.iscsiInterface", "default"),
    )

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}
        if created := (obj.get("metadata") or {}).get("creationTimestamp"):
            obj["status"]["lastPhaseTransitionTime"] = created

    def validate(self, obj: Object) -> Errors:
        spec = obj.get("spec") or {}
        modes = spec.get("accessModes")
        errors = validate_access_modes(modes, "spec.accessModes") if modes else [required("spec.accessModes")]
        capacity = spec.get("capacity") or {}
        if not capacity:
            errors.append(required("spec.capacity"))
        if set(capacity) != {"storage"}:
            errors.append(not_supported("spec.capacity", capacity or None, ("storage",)))
        for name, size in capacity.items():
            errors += positive(size, f"spec.capacity[{name}]")
        errors += one_of(spec.get("persistentVolumeReclaimPolicy"), _RECLAIM, "spec.persistentVolumeReclaimPolicy")
        if spec.get("nodeAffinity") is not None:
            hard = spec["nodeAffinity"].get("required")
            if hard is None:
                errors.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
            else:
                errors += NODE_SELECTOR(hard, "spec.nodeAffinity.required")
        elif spec.get("local") is not None:
            errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
        errors += validate_source({k: v for k, v in spec.items() if k not in _NOT_SOURCES}, "spec", persistent=True)
        root = (spec.get("hostPath") or {}).get("path") == "/"
        if root and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
            detail = "may not be 'recycle' for a hostPath mount of '/'"
            errors.append(forbidden_field("spec.persistentVolumeReclaimPolicy", detail))
        for key in ("storageClassName", "volumeAttributesClassName"):
            if spec.get(key):
                errors += each(f"spec.{key}", spec[key], dns1123_subdomain(spec[key]))
        if spec.get("volumeAttributesClassName") is not None:
            if not spec["volumeAttributesClassName"]:
                errors.append(required("spec.volumeAttributesClassName", "an empty string is disallowed"))
            if spec.get("csi") is None:
                errors.append(required("spec.csi", "has to be specified when using volumeAttributesClassName"))
        return errors + one_of(spec.get("volumeMode"), ("Block", "Filesystem"), "spec.volumeMode", needed=False)

    def validate_update(self, obj: Object, old: Object) -> Errors:
        errors = self.validate(obj)
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        now, was = ({k: v for k, v in s.items() if k not in _NOT_SOURCES} for s in (spec, before))
        old_csi, new_csi = was.get("csi"), now.get("csi")
        if old_csi is not None and new_csi is not None and old_csi.get("controllerExpandSecretRef") is None:
            now["csi"] = {k: v for k, v in new_csi.items() if k != "controllerExpandSecretRef"}
        if not same(was, now):
            lines = ["spec.persistentvolumesource is immutable after creation", *differences(was, now)]
            errors.append(forbidden_field("spec.persistentvolumesource", "\n".join(lines)))
        errors += validate_immutable(spec, before, "volumeMode")
        if before.get("nodeAffinity") is not None and not same(
            _stable(before["nodeAffinity"], spec.get("nodeAffinity")), spec.get("nodeAffinity")
        ):
            why = f"{IMMUTABLE}, except for updating from beta label to GA"
            errors.append(invalid_value("nodeAffinity", spec.get("nodeAffinity"), why))
        if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
            detail = "update from non-nil value to nil is forbidden"
            errors.append(forbidden_field("spec.volumeAttributesClassName", detail))
        return errors

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        found = [] if old else class_warnings(obj)
        spec = obj.get("spec") or {}
        hard = field_value(spec, "nodeAffinity.required.nodeSelectorTerms") or ()
        for index, term in enumerate(hard):
            found += term_warnings(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]")
        for kind, text in OLD_VOLUMES.items():
            if spec.get(kind) is not None:
                found.append(f"spec.{OLD_VOLUMES_SPELLED.get(kind, kind)}: {text}")
        if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
            found.append(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the "
                "recommended approach is to use dynamic provisioning."
            )
        return found

    def fields(self, obj: Object) -> dict[str, str]:
        return {"name": name_of(obj)}
