"""Jobs: defaults, the generated selector, columns and what may change."""

from __future__ import annotations

from datetime import datetime

from control.registry.batch.job_status import validate_job_status
from control.registry.batch.job_validation import (
    LEGACY_NAME_LABEL,
    LEGACY_UID_LABEL,
    MOST,
    MOST_WHEN_MANY,
    NAME_LABEL,
    UID_LABEL,
    validate_generated,
    validate_job_spec,
)
from control.registry.changes import IMMUTABLE, same, validate_immutable
from control.registry.checks import non_negative_fields, unique
from control.registry.core.pod.defaults import default_template
from control.registry.core.pod.update import restore_node_affinity
from control.registry.core.pod.warnings import pod_name_warnings, template_warnings
from control.registry.defaults import Defaults, absent
from control.registry.strategy import Strategy
from control.registry.table_cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    SELECTOR,
    Column,
    Field,
)
from control.registry.tables import between
from kube.errors import FieldError, invalid_value
from kube.json_object import Object
from kube.names import dns1123_label

MAX_INT32 = 2**31 - 1
# What is asked first is shown.
_STATUSES = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
)


def _rests(job: Object) -> bool:
    """Return whether a job is suspended, the controller has seen it, and no pod of it is active any more (KEP-5440)."""
    status = job.get("status") or {}
    conditions = status.get("conditions") or ()
    seen = any(c.get("type") == "Suspended" and c.get("status") == "True" for c in conditions)
    suspended = bool((job.get("spec") or {}).get("suspend"))
    return suspended and not status.get("active") and (seen or not status.get("startTime"))


def _fixed_template(spec: Object, old: Object) -> Object:
    """Return the new template with the old values of what a suspended job may change: placement and resource requests."""
    template, before = dict(spec.get("template") or {}), old.get("spec") or {}
    if not _rests(old):
        return template
    pod, was = dict(template.get("spec") or {}), (before.get("template") or {}).get("spec") or {}
    restore_node_affinity(pod, was)
    for key in ("nodeSelector", "tolerations", "schedulingGates"):
        if key in was:
            pod[key] = was[key]
        else:
            pod.pop(key, None)
    for kind in ("containers", "initContainers"):
        old_containers = was.get(kind) or []
        if len(old_containers) == len(pod.get(kind) or ()):
            pod[kind] = [
                {**c, "resources": h.get("resources")} for c, h in zip(pod.get(kind) or (), old_containers, strict=True)
            ]
    template["spec"] = pod
    if "metadata" in (before.get("template") or {}):
        template["metadata"] = before["template"]["metadata"]
    return template


def _status(job: Object) -> str:
    conditions = {c.get("type"): c.get("status") for c in (job.get("status") or {}).get("conditions") or ()}
    for condition, shown in _STATUSES:
        found = conditions.get(condition) == "True" if condition else job["metadata"].get("deletionTimestamp")
        if found:
            return shown
    return "Running"


def _completions(job: Object) -> str:
    spec, done = job.get("spec") or {}, (job.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _duration(job: Object, now: datetime) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    return between(status["startTime"], status.get("completionTime") or now)


def _backoff_limit(spec: Object) -> int:
    return 6 if spec.get("backoffLimitPerIndex") is None else MAX_INT32


def _replacement_policy(spec: Object) -> str:
    return "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"


class JobStrategy(Strategy):
    orphans_dependents = True
    orphan_warning = (
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
        "propagationPolicy=Orphan to suppress this warning"
    )
    columns = (
        NAME,
        Column("Status", Field("", show=_status), "How the job stands."),
        Column("Completions", Field("", show=_completions), "How many pods have completed, of how many."),
        Column("Duration", _duration, "How long the job has run or ran."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )
    field_defaults = Defaults(
        ("spec.parallelism", absent(1)),
        ("spec.backoffLimit", absent(_backoff_limit)),
        ("spec.completionMode", absent("NonIndexed")),
        ("spec.{suspend,manualSelector}", absent(False)),
        ("spec.podReplacementPolicy", absent(_replacement_policy)),
        ("spec.podFailurePolicy.rules[*].onPodConditions[*].status", "True"),
    )

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        labels = (spec["template"].get("metadata") or {}).get("labels")
        if labels and not obj.setdefault("metadata", {}).get("labels"):
            obj["metadata"]["labels"] = dict(labels)
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        super().default(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}
        if not obj["spec"].get("manualSelector"):
            _generate_selector(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        spec, metadata = obj.get("spec") or {}, obj.get("metadata") or {}
        errors = [] if spec.get("manualSelector") else validate_generated(spec, metadata)
        errors += validate_job_spec(spec, "spec", needs_selector=True)
        if spec.get("completionMode") == "Indexed" and spec.get("completions"):
            host = f"{metadata.get('name', '')}-{spec['completions'] - 1}"
            if dns1123_label(host):
                detail = f"will not able to create pod with invalid DNS label: {host}"
                errors.append(invalid_value("metadata.name", metadata.get("name", ""), detail))
        return errors

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status = obj.get("status") or {}
        errors = non_negative_fields(status, "status", "active", "succeeded", "failed", "ready", "terminating")
        seen: set[str] = set()
        for kind in ("succeeded", "failed"):
            for index, uid in enumerate((status.get("uncountedTerminatedPods") or {}).get(kind) or ()):
                path = f"status.uncountedTerminatedPods.{kind}[{index}]"
                errors += unique(path, uid, seen) if uid else [invalid_value(path, uid, "must not be empty")]
        return [*errors, *validate_job_status(obj, old)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        errors = list(validate_job_spec(spec, "spec", needs_selector=True))
        if spec.get("completionMode") != "Indexed":
            errors += validate_immutable(obj, old, "spec.completions")
        elif spec.get("completions") not in (None, before.get("completions"), spec.get("parallelism")):
            detail = "can only be modified in tandem with spec.parallelism"
            errors.append(invalid_value("spec.completions", spec["completions"], detail))
        errors += validate_immutable(obj, old, "spec.selector")
        if not same(_fixed_template(spec, old), before.get("template")):
            part, value = ".spec" if _rests(old) else "", spec.get("template") or {}
            errors.append(invalid_value(f"spec.template{part}", value.get("spec") if part else value, IMMUTABLE))
        keys = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
        return errors + validate_immutable(obj, old, *(f"spec.{key}" for key in keys))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        found = template_warnings(obj, old)
        if old is not None:
            return found
        spec, limits = obj.get("spec") or {}, []
        if (spec.get("completions") or 0) > MOST and (spec.get("parallelism") or 0) > MOST_WHEN_MANY:
            limits.append(
                "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
                "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
            )
        return pod_name_warnings(obj) + found + limits

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}


def _generate_selector(obj: Object) -> None:
    """Choose pods by the job's uid, so that no two jobs ever share one."""
    spec, metadata = obj["spec"], obj["metadata"]
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for key in (LEGACY_UID_LABEL, UID_LABEL):
        labels.setdefault(key, uid)
    for key in (LEGACY_NAME_LABEL, NAME_LABEL):
        labels.setdefault(key, name)
    if spec.get("selector") is None:
        spec["selector"] = {}
    spec["selector"].setdefault("matchLabels", {}).setdefault(UID_LABEL, uid)
