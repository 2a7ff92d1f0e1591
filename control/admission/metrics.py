"""Metrics of admission, with upstream's names and labels."""

from __future__ import annotations

from kube.counters import Counter, Histogram

_CONTROLLER = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
_LABELS = ("operation", "rejected", "type")
PLUGIN_SECONDS = Histogram(
    "apiserver_admission_controller_admission_duration_seconds",
    "Time that a plugin took.",
    "name",
    *_LABELS,
    buckets=_CONTROLLER,
)
STEP_SECONDS = Histogram(
    "apiserver_admission_step_admission_duration_seconds", "Time that a phase took.", *_LABELS, buckets=_CONTROLLER
)
WEBHOOK_SECONDS = Histogram(
    "apiserver_admission_webhook_admission_duration_seconds",
    "Time that a webhook took.",
    "name",
    *_LABELS,
    buckets=(0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0),
)
WEBHOOK_REQUESTS = Counter(
    "apiserver_admission_webhook_request", "Requests to webhooks.", "code", "name", "operation", "rejected", "type"
)
WEBHOOK_REJECTIONS = Counter(
    "apiserver_admission_webhook_rejection_count",
    "Requests refused by a webhook or for its failure.",
    "error_type",
    "name",
    "operation",
    "rejection_code",
    "type",
)
_CHECK = ("policy", "policy_binding", "error_type", "enforcement_action")
POLICY_CHECKS = Counter(
    "apiserver_validating_admission_policy_check", "Failed expressions of admission policies, by action.", *_CHECK
)
POLICY_SECONDS = Histogram(
    "apiserver_validating_admission_policy_check_duration_seconds",
    "Time that failed expressions of admission policies took, by action.",
    *_CHECK,
    buckets=(0.0000005, 0.001, 0.01, 0.1, 1.0),
)
WEBHOOK_FAIL_OPEN = Counter(
    "apiserver_admission_webhook_fail_open_count", "Webhooks that failed and were done without.", "name", "type"
)
