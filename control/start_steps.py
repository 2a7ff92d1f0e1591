"""The steps of the start that the health endpoints report, with the names that upstream gives the same steps.

Each is named where it happens: in server_tasks/ (bootstrap.py, service_repair.py, server_identity.py) and in the controllers
of APIServices and FlowSchemas. A step that upstream has and this server does not take (its token tracker) is not reported.
"""

from __future__ import annotations

HOOK = "poststarthook/"

ADMISSION = HOOK + "start-apiserver-admission-initializer"
INFORMERS = HOOK + "generic-apiserver-start-informers"
STORAGE = HOOK + "storage-readiness"
DEFINITION_INFORMERS = HOOK + "start-apiextensions-informers"
DEFINITIONS_SYNCED = HOOK + "crd-informer-synced"
DEFINITIONS = HOOK + "start-apiextensions-controllers"
NAMESPACES = HOOK + "start-system-namespaces-controller"
ROLES = HOOK + "rbac/bootstrap-roles"
PRIORITY_CLASSES = HOOK + "scheduling/bootstrap-system-priority-classes"
SERVICE_RANGE = HOOK + "start-kubernetes-service-cidr-controller"
AUTHORITIES = HOOK + "start-cluster-authentication-info-controller"
SERVICE_REPAIR = HOOK + "start-service-ip-repair-controllers"
KUBERNETES_SERVICE = HOOK + "bootstrap-controller"
IDENTITY = HOOK + "start-kube-apiserver-identity-lease-controller"
IDENTITY_COLLECTOR = HOOK + "start-kube-apiserver-identity-lease-garbage-collector"
FAIRNESS_CONSUMER = HOOK + "priority-and-fairness-config-consumer"
FAIRNESS_FILTER = HOOK + "priority-and-fairness-filter"
FAIRNESS_PRODUCER = HOOK + "priority-and-fairness-config-producer"
AGGREGATOR_INFORMERS = HOOK + "start-kube-aggregator-informers"
REGISTRATION = HOOK + "apiservice-registration-controller"
LOCAL_AVAILABLE = HOOK + "apiservice-status-local-available-controller"
REMOTE_AVAILABLE = HOOK + "apiservice-status-remote-available-controller"
AUTOREGISTRATION = HOOK + "kube-apiserver-autoregistration"
AUTOREGISTERED = "autoregister-completion"
AGGREGATED_DOCUMENTS = (
    HOOK + "apiservice-discovery-controller",
    HOOK + "apiservice-openapi-controller",
    HOOK + "apiservice-openapiv3-controller",
)
"""The documents of this server and its extensions together."""

STEPS = (
    ADMISSION,
    INFORMERS,
    STORAGE,
    FAIRNESS_CONSUMER,
    FAIRNESS_FILTER,
    DEFINITION_INFORMERS,
    DEFINITIONS,
    DEFINITIONS_SYNCED,
    NAMESPACES,
    AUTHORITIES,
    IDENTITY,
    IDENTITY_COLLECTOR,
    SERVICE_RANGE,
    SERVICE_REPAIR,
    ROLES,
    PRIORITY_CLASSES,
    FAIRNESS_PRODUCER,
    KUBERNETES_SERVICE,
    AGGREGATOR_INFORMERS,
    REGISTRATION,
    LOCAL_AVAILABLE,
    REMOTE_AVAILABLE,
    AUTOREGISTRATION,
    AUTOREGISTERED,
    *AGGREGATED_DOCUMENTS,
)
"""In upstream's order."""
