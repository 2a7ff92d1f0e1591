"""Metrics of several controllers, with upstream's names, labels and buckets (pkg/controller/*/metrics).

Those of Jobs, nodes and StatefulSets are beside these controllers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kube.clock import Clock
from kube.counters import Counter, Histogram, doubled
from kube.errors import StatusError

CRON_SKEW = Histogram(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "Time between the moment of a schedule and the creation of its Job.",
    buckets=doubled(1, 10),
)
JOB_DELETION = Histogram(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "Time between the end of a Job's TTL and its deletion.",
    buckets=doubled(0.1, 14),
)
SLICE_CHANGES = Counter(
    "endpoint_slice_controller_changes", "EndpointSlices written.", "operation", suffix=""
)  # upstream's name has no _total
SLICE_SYNCS = Counter("endpoint_slice_controller_syncs", "Services reconciled.", "result", suffix="")
CLAIMS_CREATED = Counter("ephemeral_volume_controller_create", "Claims of ephemeral volumes requested.")
CLAIMS_FAILED = Counter("ephemeral_volume_controller_create_failures", "Claims of ephemeral volumes that failed.")
PODS_REMOVED = Counter(
    "pod_gc_collector_force_delete_pods", "Pods deleted by pod garbage collection.", "namespace", "reason"
)
REMOVALS_FAILED = Counter(
    "pod_gc_collector_force_delete_pod_errors",
    "Failed deletions of pod garbage collection.",
    "namespace",
    "reason",
)
CA_SYNCS = Counter("root_ca_cert_publisher_sync", "Namespaces reconciled for the CA's ConfigMap.", "code")
CA_SECONDS = Histogram(
    "root_ca_cert_publisher_sync_duration_seconds",
    "Duration of reconciling the CA's ConfigMap of a namespace.",
    "code",
    buckets=doubled(0.001, 15),
)


@contextlib.contextmanager
def ca_sync(clock: Clock) -> Iterator[None]:
    """Count the reconciliation of a namespace's ConfigMap."""
    began, code = clock.monotonic(), "500"
    try:
        yield
        code = "200"
    except StatusError as error:
        code = str(error.code)
        raise
    finally:
        CA_SYNCS.add(code)
        CA_SECONDS.observe(code, clock.monotonic() - began)
