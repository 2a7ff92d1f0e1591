"""kube-controller-manager's flags: paths of files, and flags that set a field of its configuration file."""

from __future__ import annotations

from control.flags.client import FIXED as CLIENT_FIXED
from control.flags.client import SERVING
from control.flags.kinds import BOOL, FLOAT, NAMES, NUMBER, PATH, TEXT, Kind

FLAGS: dict[str, tuple[str, Kind]] = {
    **SERVING,
    "allocate-node-cidrs": ("allocate_node_cidrs", BOOL),
    "cluster-cidr": ("cluster_cidr", TEXT),
    "cluster-signing-cert-file": ("signing_cert_file", PATH),
    "cluster-signing-key-file": ("signing_key_file", PATH),
    "controllers": ("controllers", NAMES),
    "horizontal-pod-autoscaler-cpu-initialization-period": (
        "hPAController.horizontalPodAutoscalerCPUInitializationPeriod",
        TEXT,
    ),
    "horizontal-pod-autoscaler-downscale-stabilization": (
        "hPAController.horizontalPodAutoscalerDownscaleStabilizationWindow",
        TEXT,
    ),
    "horizontal-pod-autoscaler-initial-readiness-delay": (
        "hPAController.horizontalPodAutoscalerInitialReadinessDelay",
        TEXT,
    ),
    "horizontal-pod-autoscaler-sync-period": ("hPAController.horizontalPodAutoscalerSyncPeriod", TEXT),
    "horizontal-pod-autoscaler-tolerance": ("hPAController.horizontalPodAutoscalerTolerance", FLOAT),
    "large-cluster-size-threshold": ("nodeLifecycleController.largeClusterSizeThreshold", NUMBER),
    "node-cidr-mask-size": ("node_mask", NUMBER),
    "node-cidr-mask-size-ipv4": ("node_mask", NUMBER),
    "node-eviction-rate": ("nodeLifecycleController.nodeEvictionRate", FLOAT),
    "node-monitor-grace-period": ("nodeLifecycleController.nodeMonitorGracePeriod", TEXT),
    "node-startup-grace-period": ("nodeLifecycleController.nodeStartupGracePeriod", TEXT),
    "root-ca-file": ("root_ca_file", PATH),
    "secondary-node-eviction-rate": ("nodeLifecycleController.secondaryNodeEvictionRate", FLOAT),
    "service-account-private-key-file": ("service_account_key_file", PATH),
    "use-service-account-credentials": ("kubeCloudShared.useServiceAccountCredentials", BOOL),
    "unhealthy-zone-threshold": ("nodeLifecycleController.unhealthyZoneThreshold", FLOAT),
}
"""A field with a dot is one of the file's section before it."""

FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    **CLIENT_FIXED,
    "cluster-name": ((), "nothing depends on it without a cloud provider"),
    "cluster-signing-duration": (("8760h0m0s", "8760h"), "certificates are signed for a year at most"),
    "enable-garbage-collector": (("true",), "there is always one"),
    "node-monitor-period": (("5s",), "nodes are looked at as they change, and every 5 s"),
    "service-cluster-ip-range": ((), "nodes' ranges come from --cluster-cidr alone"),
}
