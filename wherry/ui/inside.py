"""Numbers of the inside view: metrics of the API server, and of one node's agent and proxy, read with the visitor's rights.

Where a number is missing, there is the reason: no right to read it, another program's control plane, a proxy that serves its
metrics on the node's loopback address only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kube.client import Client, error_of
from kube.errors import StatusError
from wherry.ui.samples import totals

MOST_BYTES = 8 << 20
"""Bytes of a metrics page."""
SECONDS = 15.0
PROXY_PORT = 10249
SERVER: Mapping[str, Sequence[str]] = {
    "apiserver_request_total": ("verb",),
    "apiserver_request_duration_seconds_sum": ("verb",),
    "apiserver_request_duration_seconds_count": ("verb",),
    "apiserver_current_inflight_requests": ("request_kind",),
    "apiserver_longrunning_requests": ("verb",),
    "apiserver_flowcontrol_dispatched_requests_total": ("priority_level", "flow_schema"),
    "apiserver_flowcontrol_current_inqueue_requests": ("priority_level",),
    "apiserver_flowcontrol_current_executing_requests": ("priority_level",),
    "apiserver_admission_step_admission_duration_seconds_sum": ("type",),
    "apiserver_admission_step_admission_duration_seconds_count": ("type",),
    "authorization_attempts_total": ("result",),
    "etcd_requests_total": ("operation",),
    "etcd_request_duration_seconds_sum": ("operation",),
    "etcd_request_duration_seconds_count": ("operation",),
    "wherry_store_commit_duration_seconds_sum": (),
    "wherry_store_commit_duration_seconds_count": (),
    "apiserver_storage_objects": (),
    "apiserver_watch_events_total": ("resource",),
    "workqueue_depth": ("name",),
    "workqueue_adds_total": ("name",),
    "workqueue_queue_duration_seconds_sum": ("name",),
    "workqueue_queue_duration_seconds_count": ("name",),
    "workqueue_work_duration_seconds_sum": ("name",),
    "workqueue_work_duration_seconds_count": ("name",),
    "workqueue_longest_running_processor_seconds": ("name",),
    "scheduler_pending_pods": ("queue",),
    "scheduler_schedule_attempts_total": ("result",),
    "scheduler_scheduling_attempt_duration_seconds_sum": (),
    "scheduler_scheduling_attempt_duration_seconds_count": (),
    "process_cpu_seconds_total": (),
    "process_resident_memory_bytes": (),
    "wherry_asyncio_tasks": (),
}
AGENT: Mapping[str, Sequence[str]] = {
    "kubelet_running_pods": (),
    "kubelet_pod_worker_duration_seconds_sum": ("operation_type",),
    "kubelet_pod_worker_duration_seconds_count": ("operation_type",),
    "kubelet_runtime_operations_total": ("operation_type",),
    "kubelet_runtime_operations_duration_seconds_sum": (),
    "kubelet_runtime_operations_duration_seconds_count": (),
    "wherry_runtime_calls_waiting": (),
    "process_cpu_seconds_total": (),
    "process_resident_memory_bytes": (),
    "wherry_asyncio_tasks": (),
}
PROXY: Mapping[str, Sequence[str]] = {
    "kubeproxy_sync_proxy_rules_duration_seconds_sum": (),
    "kubeproxy_sync_proxy_rules_duration_seconds_count": (),
    "kubeproxy_network_programming_duration_seconds_sum": (),
    "kubeproxy_network_programming_duration_seconds_count": (),
    "kubeproxy_sync_proxy_rules_service_changes_pending": (),
    "process_cpu_seconds_total": (),
    "process_resident_memory_bytes": (),
}
_OWN = "wherry_asyncio_tasks"
"""A metric that only Wherry's daemons have."""


async def numbers(client: Client, node: str) -> dict[str, Any]:
    """Return the numbers as JSON data, those of agent and proxy for a node unless it is ""."""
    reads = {"server": ("/metrics", SERVER)}
    if node:
        reads["agent"] = (f"/api/v1/nodes/{node}/proxy/metrics", AGENT)
        reads["proxy"] = (f"/api/v1/nodes/http:{node}:{PROXY_PORT}/proxy/metrics", PROXY)
    found = await asyncio.gather(*(_part(client, path, wanted) for path, wanted in reads.values()))
    return dict(zip(reads, found, strict=True))


async def _part(client: Client, path: str, wanted: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return {"at": seconds, "values": ..., "own": whether it is Wherry's}, or {"why": ...}."""
    try:
        answer = await client.transport.request(
            "GET", path, headers={"Accept": "text/plain"}, timeout=SECONDS, most_bytes=MOST_BYTES
        )
        if answer.status != 200:
            raise error_of(answer.status, answer.body)
    except StatusError as error:
        return {"why": error.message}
    values = await totals(answer.body, wanted)
    if not values:
        return {"why": "the answer has none of the metrics that are shown here"}
    return {"at": time.monotonic(), "values": values, "own": _OWN in values}
