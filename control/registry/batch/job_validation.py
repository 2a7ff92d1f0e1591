"""Checks of a Job's spec, its own or that of a CronJob's template, and of the labels that the server generates."""

from __future__ import annotations

from control.registry.apps.workload import MISMATCH
from control.registry.batch.policies import validate_policies
from control.registry.checks import FieldErrors, domain_prefixed, label_selector, non_negative_fields, selects
from control.registry.core.pod.spec import validate_template
from control.registry.field_values import field_value
from kube.errors import FieldError, invalid_value, not_supported, required, too_long
from kube.json_object import Object

UID_LABEL, NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
LEGACY_UID_LABEL, LEGACY_NAME_LABEL = "controller-uid", "job-name"
MOST, MOST_WHEN_MANY = 100_000, 10_000


def validate_job_spec(spec: Object, path: str, *, needs_selector: bool) -> FieldErrors:
    """Check a job's spec, its own or a CronJob's template of one (which has no selector yet)."""
    keys = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    yield from non_negative_fields(spec, path, *keys, "backoffLimitPerIndex", "maxFailedIndexes")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    mode, manager = spec.get("completionMode"), spec.get("managedBy")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        yield not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        yield from _indexed(spec, path)
    for key in ("backoffLimitPerIndex", "maxFailedIndexes") if mode in (None, "NonIndexed") else ():
        if spec.get(key) is not None:
            yield invalid_value(f"{path}.{key}", spec[key], "requires indexed completion mode")
    if manager is not None:
        yield from _manager(manager, f"{path}.managedBy")
    yield from validate_policies(spec, path)
    template, selector = spec.get("template") or {}, spec.get("selector")
    if needs_selector:
        if selector is None:
            yield required(f"{path}.selector")
        else:
            yield from label_selector(selector, f"{path}.selector")
            labels = (template.get("metadata") or {}).get("labels") or {}
            if not selects(selector, labels):
                yield invalid_value(f"{path}.template.metadata.labels", labels or None, MISMATCH)
    yield from validate_template(template, f"{path}.template")
    policy, where = (template.get("spec") or {}).get("restartPolicy"), f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        yield required(where, 'valid values: "OnFailure", "Never"')
    elif policy and policy not in ("OnFailure", "Never"):
        yield not_supported(where, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid_value(where, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _indexed(spec: Object, path: str) -> FieldErrors:
    """Check how large an Indexed job may be."""
    completions, parallelism, failed = (spec.get(k) for k in ("completions", "parallelism", "maxFailedIndexes"))
    if completions is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if (parallelism or 0) > MOST:
        detail = f"must be less than or equal to {MOST} when completion mode is Indexed"
        yield invalid_value(f"{path}.parallelism", parallelism, detail)
    if completions is not None and failed is not None and failed > completions:
        yield invalid_value(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if (failed or 0) > MOST:
        yield invalid_value(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {MOST}")
    if (completions or 0) > MOST and spec.get("backoffLimitPerIndex") is not None:
        if failed is None:
            yield required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {MOST}")
        detail = (
            f"must be less than or equal to {MOST_WHEN_MANY} when completions are above {MOST} and used with backoff "
            "limit per index"
        )
        for key, value in (("parallelism", parallelism), ("maxFailedIndexes", failed)):
            if (value or 0) > MOST_WHEN_MANY:
                yield invalid_value(f"{path}.{key}", value, detail)


def _manager(manager: str, path: str) -> list[FieldError]:
    errors = domain_prefixed(manager, path)
    return errors + ([too_long(path, 63)] if len(manager) > 63 else [])


def validate_generated(spec: Object, metadata: Object) -> list[FieldError]:
    """Check that what the server would have generated was not given otherwise."""
    selector, labels = spec.get("selector"), field_value(spec, "template.metadata.labels") or {}
    if selector is None:
        return []
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    wanted = {LEGACY_UID_LABEL: uid, LEGACY_NAME_LABEL: name, UID_LABEL: uid, NAME_LABEL: name}
    errors = [
        invalid_value(f"spec.template.metadata.labels[{key}]", labels, f"must be '{value}'")
        for key, value in wanted.items()
        if labels.get(key) != value
    ]
    if not selects(selector, wanted):
        errors.append(invalid_value("spec.selector", selector, "`selector` not auto-generated"))
    return errors
