"""Jobs: defaults, the generated selector, columns and what may change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.apps.workload import MISMATCH, validate_counts
from control.registry.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    SELECTOR,
    Column,
    containers_and_images,
    created,
    name_of,
    selector_text,
    template_spec,
)
from control.registry.checks import IMMUTABLE, label_selector, one_of, selects, unchanged
from control.registry.core.pod_defaults import default_template
from control.registry.core.pod_update import same
from control.registry.core.pod_warnings import template_warnings
from control.registry.core.podspec import validate_template
from control.registry.strategy import Object, Strategy
from control.registry.tables import age, human_duration
from kube.clock import parse_time
from kube.errors import FieldError, invalid_value, not_supported, required

UID_LABEL, NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
LEGACY_UID_LABEL, LEGACY_NAME_LABEL = "controller-uid", "job-name"
MAX_INT32 = 2**31 - 1
# What is asked first is shown.
_STATUSES = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
)


def validate_job_spec(spec: Object, path: str, needs_selector: bool) -> list[FieldError]:
    """Check a job's spec, its own or a CronJob's template of one (which has no selector yet)."""
    counts = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    errors = validate_counts(spec, path, *counts, "backoffLimitPerIndex", "maxFailedIndexes")
    mode = spec.get("completionMode")
    if mode is not None:
        errors += one_of(mode, ("Indexed", "NonIndexed"), f"{path}.completionMode")
    if mode == "Indexed" and spec.get("completions") is None:
        detail = f"when completion mode is {mode}"
        errors.append(required(f"{path}.completions", detail))
    if spec.get("backoffLimitPerIndex") is not None and mode != "Indexed":
        detail = "requires indexed completion mode"
        errors.append(invalid_value(f"{path}.backoffLimitPerIndex", spec["backoffLimitPerIndex"], detail))
    template, selector = spec.get("template") or {}, spec.get("selector")
    if needs_selector:
        if selector is None:
            errors.append(required(f"{path}.selector"))
        else:
            errors += label_selector(selector, f"{path}.selector")
            labels = (template.get("metadata") or {}).get("labels") or {}
            if not selects(selector, labels):
                errors.append(invalid_value(f"{path}.template.metadata.labels", labels, MISMATCH))
    errors += validate_template(template, f"{path}.template")
    policy, where = (template.get("spec") or {}).get("restartPolicy"), f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        errors.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif policy and policy not in ("OnFailure", "Never"):
        errors.append(not_supported(where, policy, ("OnFailure", "Never")))
    failure = spec.get("podFailurePolicy")
    if failure is not None and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid_value(where, policy, detail))
    return errors


def _fixed_template(spec: Object, before: Object) -> Object:
    """Return the new template with what a suspended job may change put back: where its pods go."""
    template = dict(spec.get("template") or {})
    if not before.get("suspend"):
        return template
    pod, was = dict(template.get("spec") or {}), (before.get("template") or {}).get("spec") or {}
    for key in ("nodeSelector", "affinity", "tolerations", "schedulingGates"):
        if key in was:
            pod[key] = was[key]
        else:
            pod.pop(key, None)
    template["spec"] = pod
    if "metadata" in (before.get("template") or {}):
        template["metadata"] = before["template"]["metadata"]
    return template


class JobStrategy(Strategy):
    columns = (
        NAME,
        Column("Status", description="How the job stands."),
        Column("Completions", description="How many pods have completed, of how many."),
        Column("Duration", description="How long the job has run or ran."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        labels = (spec["template"].get("metadata") or {}).get("labels")
        if labels and not obj.setdefault("metadata", {}).get("labels"):
            obj["metadata"]["labels"] = dict(labels)
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        per_index = spec.get("backoffLimitPerIndex") is not None
        replacement = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"
        for key, value in (
            ("parallelism", 1),
            ("backoffLimit", MAX_INT32 if per_index else 6),
            ("completionMode", "NonIndexed"),
            ("suspend", False),
            ("manualSelector", False),
            ("podReplacementPolicy", replacement),
        ):
            if spec.get(key) is None:
                spec[key] = value
        for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                if not pattern.get("status"):
                    pattern["status"] = "True"

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}
        if not obj["spec"].get("manualSelector"):
            _generate_selector(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_job_spec(obj.get("spec") or {}, "spec", needs_selector=True)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        errors = self.validate(obj)
        elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
        if not elastic:
            errors += unchanged(spec, before, "completions", "spec.completions")
        errors += unchanged(spec, before, "selector", "spec.selector")
        if not same(_fixed_template(spec, before), before.get("template")):
            errors.append(invalid_value("spec.template", spec.get("template"), IMMUTABLE))
        for key in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
            errors += unchanged(spec, before, key, f"spec.{key}")
        return errors

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        template, was = (((o or {}).get("spec") or {}).get("template") for o in (obj, old))
        return template_warnings(template, was, "spec.template")

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        names, images = containers_and_images(template_spec(obj))
        return [
            name_of(obj),
            _status(obj),
            _completions(obj),
            _duration(obj, now),
            age(created(obj), now),
            names,
            images,
            selector_text(spec.get("selector")),
        ]


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
    end = parse_time(status["completionTime"]) if status.get("completionTime") else now
    return human_duration((end - parse_time(status["startTime"])).total_seconds())
