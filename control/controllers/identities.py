"""The service account that each controller acts as, in kube-system, as with upstream's --use-service-account-credentials.

The ClusterRole `system:controller:<account>` says what an account may do (control/auth/policy/controller_roles.yaml); some
controllers share one. Informers are shared, and read as the manager itself: its role may list and watch everything. Writes,
events, and the reads that must not be old, are each controller's own.
"""

from __future__ import annotations

from collections.abc import Callable

from control.auth.service_account_names import groups_of, username
from control.auth.user import UserInfo
from kube.client import Client

NAMESPACE = "kube-system"
MANAGER = UserInfo("system:kube-controller-manager")
"""User of leader election, of the shared informers and of the writer of service account tokens."""
SCHEDULER = UserInfo("system:kube-scheduler")

Clients = Callable[[str], Client]
"""Returns the client that acts as a service account of kube-system, by the account's name."""

ACCOUNTS = {
    "serviceaccount": "service-account-controller",
    "legacy-serviceaccount-token-cleaner": "legacy-service-account-token-cleaner",
    "root-ca-certificate-publisher": "root-ca-cert-publisher",
    "replicaset": "replicaset-controller",
    "replicationcontroller": "replication-controller",
    "deployment": "deployment-controller",
    "daemonset": "daemon-set-controller",
    "statefulset": "statefulset-controller",
    "job": "job-controller",
    "endpointslice": "endpointslice-controller",
    "endpointslice-mirroring": "endpointslicemirroring-controller",
    "endpoints": "endpoint-controller",
    "service-lb": "service-controller",
    "namespace": "namespace-controller",
    "pod-garbage-collector": "pod-garbage-collector",
    "node-ipam": "node-controller",
    "node-lifecycle": "node-controller",
    "garbage-collector": "generic-garbage-collector",
    "taint-eviction": "node-controller",
    "certificatesigningrequest-approving": "certificate-controller",
    "certificatesigningrequest-signing": "certificate-controller",
    "certificatesigningrequest-cleaner": "certificate-controller",
    "bootstrap-signer": "bootstrap-signer",
    "token-cleaner": "token-cleaner",
    "clusterrole-aggregation": "clusterrole-aggregation-controller",
    "cronjob": "cronjob-controller",
    "ttl-after-finished": "ttl-after-finished-controller",
    "horizontalpodautoscaler": "horizontal-pod-autoscaler",
    "disruption": "disruption-controller",
    "persistentvolume-binder": "persistent-volume-binder",
    "persistentvolume-attach-detach": "attachdetach-controller",
    "persistentvolume-expander": "expand-controller",
    "local-path-provisioner": "local-path-provisioner",
    "gateway": "gateway-controller",
    "ephemeral-volume": "ephemeral-volume-controller",
    "service-cidr": "service-cidrs-controller",
    "persistentvolumeclaim-protection": "pvc-protection-controller",
    "persistentvolume-protection": "pv-protection-controller",
    "volumeattributesclass-protection": "volumeattributesclass-protection-controller",
    "resourceclaim": "resource-claim-controller",
    "device-taint-eviction": "device-taint-eviction-controller",
    "resourcequota": "resourcequota-controller",
    "addons": "addon-controller",
}
"""Service accounts by the names of controllers. One that is missing here (serviceaccount-token) acts as the manager."""
POLICY_CHECKER = "validatingadmissionpolicy-status-controller"
"""The account of the type checker of admission policies, which runs in the API server (its schemas are there)."""


def account_user(account: str) -> UserInfo:
    """Return a service account of kube-system as a user."""
    return UserInfo(username(NAMESPACE, account), groups=groups_of(NAMESPACE))
