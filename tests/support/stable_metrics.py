"""Upstream's stable and beta metrics of v1.36, with their labels (test/instrumentation/testdata/stable-metrics-list.yaml).

Counters have the name of their series, `_total` where upstream has it. What is left out has its reason.
"""

from __future__ import annotations

_JOB_SYNC = "completion_mode result action"
_REQUEST = "verb group version resource subresource scope component"
_POD_RESOURCE = "namespace pod node scheduler priority resource unit"
_CHECK = "policy policy_binding error_type enforcement_action"
_LEVEL = "flow_schema priority_level"
_STATEFULSET = "statefulset_namespace statefulset_name pod_management_policy"

COUNTED: dict[str, str] = {
    "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds": "apiserver_id_hash status",
    "apiserver_authentication_config_controller_automatic_reloads_total": "apiserver_id_hash status",
    "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds": "apiserver_id_hash status",
    "apiserver_authorization_config_controller_automatic_reloads_total": "apiserver_id_hash status",
    "apiserver_requested_deprecated_apis": "group version resource subresource removed_release",
    "apiserver_validating_admission_policy_check_duration_seconds": _CHECK,
    "apiserver_validating_admission_policy_check_total": _CHECK,
    "job_controller_pod_failures_handled_by_failure_policy_total": "action",
    "apiserver_admission_controller_admission_duration_seconds": "name operation rejected type",
    "apiserver_admission_step_admission_duration_seconds": "operation rejected type",
    "apiserver_admission_webhook_admission_duration_seconds": "name operation rejected type",
    "apiserver_flowcontrol_request_wait_duration_seconds": f"{_LEVEL} execute",
    "cronjob_controller_job_creation_skew_duration_seconds": "",
    "job_controller_job_pods_finished_total": "completion_mode result",
    "job_controller_job_sync_duration_seconds": _JOB_SYNC,
    "job_controller_job_syncs_total": _JOB_SYNC,
    "job_controller_jobs_finished_total": "completion_mode result reason",
    "job_controller_terminated_pods_tracking_finalizer_total": "event",
    "node_collector_evictions_total": "zone",
    "scheduler_framework_extension_point_duration_seconds": "extension_point status profile",
    "scheduler_pending_pods": "queue",
    "scheduler_pod_scheduling_attempts": "",
    "scheduler_pod_scheduling_sli_duration_seconds": "attempts",
    "scheduler_preemption_attempts_total": "",
    "scheduler_preemption_victims": "",
    "scheduler_queue_incoming_pods_total": "queue event",
    "scheduler_schedule_attempts_total": "result profile",
    "scheduler_scheduling_attempt_duration_seconds": "result profile",
    "statefulset_controller_statefulset_max_unavailable": _STATEFULSET,
    "statefulset_controller_statefulset_unavailable_replicas": _STATEFULSET,
}
"""Metrics that the control plane's components count (kube.counters)."""

BUCKETS: dict[str, tuple[float, float, int]] = {
    "apiserver_validating_admission_policy_check_duration_seconds": (0.0000005, 1, 5),
    "cronjob_controller_job_creation_skew_duration_seconds": (1, 512, 10),
    "job_controller_job_sync_duration_seconds": (0.004, 65.536, 15),
    "scheduler_framework_extension_point_duration_seconds": (0.0001, 0.2048, 12),
    "scheduler_pod_scheduling_attempts": (1, 16, 5),
    "scheduler_pod_scheduling_sli_duration_seconds": (0.01, 5242.88, 20),
    "scheduler_preemption_victims": (1, 64, 7),
    "scheduler_scheduling_attempt_duration_seconds": (0.001, 16.384, 15),
    "apiserver_flowcontrol_request_wait_duration_seconds": (0, 30, 13),
    "apiserver_admission_webhook_admission_duration_seconds": (0.005, 25, 8),
}
"""First bound, last bound and number of buckets."""

BY_REQUEST: dict[str, str] = {
    "apiserver_current_inflight_requests": "request_kind",
    "apiserver_longrunning_requests": _REQUEST,
    "apiserver_request_duration_seconds": f"{_REQUEST} dry_run",
    "apiserver_request_total": f"{_REQUEST} dry_run code",
    "apiserver_response_sizes": _REQUEST,
}
"""Metrics of the API server's requests (control.server.metrics)."""

WRITTEN: dict[str, str] = {
    "apiserver_flowcontrol_current_executing_requests": _LEVEL,
    "apiserver_flowcontrol_current_executing_seats": "priority_level",
    "apiserver_flowcontrol_current_inqueue_requests": _LEVEL,
    "apiserver_flowcontrol_dispatched_requests_total": _LEVEL,
    "apiserver_flowcontrol_nominal_limit_seats": "priority_level",
    "apiserver_flowcontrol_rejected_requests_total": f"{_LEVEL} reason",
    "apiserver_storage_objects": "resource",
    "apiserver_storage_size_bytes": "storage_cluster_id",
    "container_cpu_usage_seconds_total": "container pod namespace",
    "container_memory_working_set_bytes": "container pod namespace",
    "container_start_time_seconds": "container pod namespace",
    "kube_pod_resource_limit": _POD_RESOURCE,
    "kube_pod_resource_request": _POD_RESOURCE,
    "kubernetes_feature_enabled": "name stage",
    "kubernetes_healthcheck": "name type",
    "kubernetes_healthchecks_total": "name status type",
    "node_cpu_usage_seconds_total": "",
    "node_memory_working_set_bytes": "",
    "pod_cpu_usage_seconds_total": "pod namespace",
    "pod_memory_working_set_bytes": "pod namespace",
    "prober_probe_total": "container namespace pod pod_uid probe_type result",
    "resource_scrape_error": "",
}
"""Metrics that are written at a scrape; tests of a running control plane and a running agent look at some."""

LEFT_OUT: dict[str, str] = {
    "apiserver_cel_compilation_duration_seconds": "not measured",
    "apiserver_cel_evaluation_duration_seconds": "not measured",
    "apiserver_validation_declarative_validation_mismatch_total": "there is one validation, not two to compare",
    "apiserver_validation_declarative_validation_panic_total": "there is one validation, not two to compare",
    "disabled_metrics_total": "about the registry of upstream's metrics library",
    "hidden_metrics_total": "about the registry of upstream's metrics library",
    "registered_metrics_total": "about the registry of upstream's metrics library",
}
