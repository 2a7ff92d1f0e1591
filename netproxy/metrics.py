"""Metrics of this role under upstream's names (pkg/proxy/metrics), in a registry of its own."""

from __future__ import annotations

from collections.abc import Iterable

from kube.build import GIT_VERSION, MAJOR, MINOR, build
from kube.exposition import text_of
from kube.loops import FAILURES, RUNNING, TASKS, count_tasks
from netproxy.prometheus_metrics import (
    Collector,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
)

REGISTRY = CollectorRegistry(auto_describe=False)
_BUCKETS = tuple(0.001 * 2**power for power in range(15))
_PROGRAMMING = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 300, 30))

SYNC = Histogram(
    "kubeproxy_sync_proxy_rules_duration_seconds",
    "Time to bring the rules up to date",
    ["ip_family"],
    buckets=_BUCKETS,
    registry=REGISTRY,
)
FULL_SYNC = Histogram(
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "Time of full comparisons",
    ["ip_family"],
    buckets=_BUCKETS,
    registry=REGISTRY,
)
PARTIAL_SYNC = Histogram(
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "Time of deltas",
    ["ip_family"],
    buckets=_BUCKETS,
    registry=REGISTRY,
)
LATENCY = Histogram(
    "kubeproxy_network_programming_duration_seconds",
    "Time from a pod's or Service's change to its rules",
    ["ip_family"],
    buckets=_PROGRAMMING,
    registry=REGISTRY,
)
SERVICE_CHANGES = Counter("kubeproxy_sync_proxy_rules_service_changes", "Service changes received", registry=REGISTRY)
ENDPOINT_CHANGES = Counter(
    "kubeproxy_sync_proxy_rules_endpoint_changes", "EndpointSlice changes received", registry=REGISTRY
)
SERVICES_PENDING = Gauge(
    "kubeproxy_sync_proxy_rules_service_changes_pending",
    "Services whose changes are not written yet",
    registry=REGISTRY,
)
ENDPOINTS_PENDING = Gauge(
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    "EndpointSlices whose changes are not written yet",
    registry=REGISTRY,
)
NO_LOCAL_ENDPOINTS = Gauge(
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    "Service ports under the policy Local that have no endpoint here, but elsewhere",
    ["traffic_policy", "ip_family"],
    registry=REGISTRY,
)
NFTABLES_FAILURES = Counter(
    "kubeproxy_sync_proxy_rules_nftables_sync_failures",
    "Writes of nftables that the kernel refused",
    ["ip_family"],
    registry=REGISTRY,
)
NFTABLES_CLEANUP_FAILURES = Counter(
    "kubeproxy_sync_proxy_rules_nftables_cleanup_failures",
    "Tables that the kernel did not delete",
    ["ip_family"],
    registry=REGISTRY,
)
CONNTRACK_SYNC = Histogram(
    "kubeproxy_conntrack_reconciler_sync_duration_seconds",
    "Time to delete stale flows",
    ["ip_family"],
    buckets=_BUCKETS,
    registry=REGISTRY,
)
IPTABLES_LAST = Gauge(
    "kubeproxy_sync_proxy_rules_iptables_last", "Lines of the last write", ["table", "ip_family"], registry=REGISTRY
)
FLOWS_DELETED = Counter(
    "kubeproxy_conntrack_reconciler_deleted_entries", "Stale flows that were deleted", ["ip_family"], registry=REGISTRY
)
BUILD_INFO = Gauge(
    "kubernetes_build_info",
    "What this is",
    ["git_version", "major", "minor", "git_commit", "git_tree_state", "build_date"],
    registry=REGISTRY,
)
BUILD_INFO.labels(GIT_VERSION, MAJOR, MINOR, build().commit, build().tree_state, build().date).set(1)
ProcessCollector(registry=REGISTRY)
RESTORE_FAILURES = Counter(
    "kubeproxy_sync_proxy_rules_iptables_restore_failures",
    "Writes of everything that the kernel refused",
    ["ip_family"],
    registry=REGISTRY,
)
PARTIAL_RESTORE_FAILURES = Counter(
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures",
    "Deltas that the kernel refused, made up for by writing everything",
    ["ip_family"],
    registry=REGISTRY,
)
INVALID_DROPPED = Counter(
    "kubeproxy_iptables_ct_state_invalid_dropped_packets",
    "Packets dropped because connection tracking could not place them",
    registry=REGISTRY,
)
LOCALHOST_NODE_PORTS = Counter(
    "kubeproxy_iptables_localhost_nodeports_accepted_packets",
    "Connections to node ports on 127.0.0.1, by their first packets",
    registry=REGISTRY,
)
RULES = Gauge(
    "kubeproxy_sync_proxy_rules_iptables_total", "iptables rules of Services", ["table", "ip_family"], registry=REGISTRY
)
LAST_SYNC = Gauge(
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    "When rules were last brought up to date",
    ["ip_family"],
    registry=REGISTRY,
)
LAST_QUEUED = Gauge(
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    "When a change last came in",
    ["ip_family"],
    registry=REGISTRY,
)
HEALTHZ = Counter("kubeproxy_proxy_healthz", "Answers of /healthz", ["code"], registry=REGISTRY)
LIVEZ = Counter("kubeproxy_proxy_livez", "Answers of /livez", ["code"], registry=REGISTRY)
REPAIRS = Counter("wherry_proxy_repairs", "Times that rules changed by others were repaired", registry=REGISTRY)
SYSCTL_REPAIRS = Counter(
    "wherry_proxy_sysctl_repairs",
    "Times that kernel settings changed by others were set again",
    ["name"],
    registry=REGISTRY,
)
NODE_CLAIMS_REFUSED = Counter(
    "wherry_node_claims_refused",
    "Times that a node named an address or a pod range that is another node's",
    ["what"],
    registry=REGISTRY,
)
SERVICES_LEFT_OUT = Gauge(
    "wherry_proxy_services_left_out",
    "Services that are not served: limit: they cost too much; IPv4, IPv6: the kernel refuses their rules of that family",
    ["reason"],
    registry=REGISTRY,
)
POLICIES = Gauge("wherry_network_policies", "Network policies that are followed", registry=REGISTRY)
POLICY_SYNC = Histogram(
    "wherry_network_policy_sync_duration_seconds",
    "Time to bring network policies up to date",
    buckets=_BUCKETS,
    registry=REGISTRY,
)
POD_SOURCES_SYNC = Histogram(
    "wherry_pod_sources_sync_duration_seconds",
    "Time to write which addresses pods may send from, after pods came or went",
    buckets=_BUCKETS,
    registry=REGISTRY,
)
DNS_QUERIES = Counter("wherry_dns_queries", "DNS queries by how they were answered", ["answer"], registry=REGISTRY)


def family_label(family: int) -> str:
    """Return the value of the label `ip_family`."""
    return f"IPv{family}"


def initialize(families: Iterable[int]) -> None:
    """Export the metrics of each family and of health checks from the start on, as 0."""
    for code in ("200", "503"):
        HEALTHZ.labels(code)
        LIVEZ.labels(code)
    for label in map(family_label, families):
        for each in (SYNC, FULL_SYNC, PARTIAL_SYNC, LATENCY, CONNTRACK_SYNC, FLOWS_DELETED, LAST_SYNC, LAST_QUEUED):
            each.labels(label)
        for each in (RESTORE_FAILURES, PARTIAL_RESTORE_FAILURES, NFTABLES_FAILURES, NFTABLES_CLEANUP_FAILURES):
            each.labels(label)
        for policy in ("internal", "external"):
            NO_LOCAL_ENDPOINTS.labels(policy, label)


class _LoopMetrics(Collector):
    """The loops and tasks of this process, which kube.loops counts."""

    def collect(self) -> Iterable[Metric]:
        count_tasks()
        return RUNNING.family(), FAILURES.family(), TASKS.family()


REGISTRY.register(_LoopMetrics())


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format."""
    return text_of(REGISTRY.collect())
