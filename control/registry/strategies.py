"""Strategy of each resource: a table of (group, plural) -> "module:Class", imported on first use.

Kinds without an entry take the generic `Strategy`. The API is the one place that names all kinds; reading it here keeps a
server from importing what it never serves.
"""

from __future__ import annotations

import importlib

from control.registry.strategy import Strategy
from control.registry.strategy_context import Settings
from kube.resources import Resource

_STRATEGIES: dict[tuple[str, str], str] = {
    ("", "componentstatuses"): "core.componentstatus:ComponentStatusStrategy",
    ("", "configmaps"): "core.configmap_and_secret:ConfigMapStrategy",
    ("", "endpoints"): "core.endpoints:EndpointsStrategy",
    ("", "events"): "events.event:EventStrategy",
    ("", "namespaces"): "core.namespace:NamespaceStrategy",
    ("", "nodes"): "core.node:NodeStrategy",
    ("", "pods"): "core.pod.strategy:PodStrategy",
    ("", "secrets"): "core.configmap_and_secret:SecretStrategy",
    ("", "serviceaccounts"): "core.serviceaccount:ServiceAccountStrategy",
    ("", "services"): "core.service.strategy:ServiceStrategy",
    ("apps", "deployments"): "apps.deployment:DeploymentStrategy",
    ("apps", "replicasets"): "apps.replicaset:ReplicaSetStrategy",
    ("coordination.k8s.io", "leases"): "coordination.lease:LeaseStrategy",
    ("discovery.k8s.io", "endpointslices"): "discovery.endpointslice:EndpointSliceStrategy",
    ("events.k8s.io", "events"): "events.event:EventStrategy",
    ("rbac.authorization.k8s.io", "clusterrolebindings"): "rbac.rolebinding:RoleBindingStrategy",
    ("rbac.authorization.k8s.io", "clusterroles"): "rbac.role:RoleStrategy",
    ("rbac.authorization.k8s.io", "rolebindings"): "rbac.rolebinding:RoleBindingStrategy",
    ("rbac.authorization.k8s.io", "roles"): "rbac.role:RoleStrategy",
    ("", "limitranges"): "core.limitrange:LimitRangeStrategy",
    ("", "persistentvolumeclaims"): "core.persistentvolumeclaim:PersistentVolumeClaimStrategy",
    ("", "persistentvolumes"): "core.persistentvolume:PersistentVolumeStrategy",
    ("", "podtemplates"): "core.podtemplate:PodTemplateStrategy",
    ("", "replicationcontrollers"): "apps.replicationcontroller:ReplicationControllerStrategy",
    ("", "resourcequotas"): "core.resourcequota:ResourceQuotaStrategy",
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): (
        "admissionregistration.policy:MutatingAdmissionPolicyStrategy"
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): (
        "admissionregistration.policy:AdmissionPolicyBindingStrategy"
    ),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): (
        "admissionregistration.webhook:WebhookConfigurationStrategy"
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): (
        "admissionregistration.policy:AdmissionPolicyStrategy"
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): (
        "admissionregistration.policy:AdmissionPolicyBindingStrategy"
    ),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): (
        "admissionregistration.webhook:WebhookConfigurationStrategy"
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"): (
        "apiextensions.customresourcedefinition:CustomResourceDefinitionStrategy"
    ),
    ("apiregistration.k8s.io", "apiservices"): "apiextensions.apiservice:APIServiceStrategy",
    ("apps", "controllerrevisions"): "apps.controllerrevision:ControllerRevisionStrategy",
    ("apps", "daemonsets"): "apps.daemonset:DaemonSetStrategy",
    ("apps", "statefulsets"): "apps.statefulset:StatefulSetStrategy",
    ("autoscaling", "horizontalpodautoscalers"): (
        "autoscaling.horizontalpodautoscaler:HorizontalPodAutoscalerStrategy"
    ),
    ("batch", "cronjobs"): "batch.cronjob:CronJobStrategy",
    ("batch", "jobs"): "batch.job:JobStrategy",
    ("certificates.k8s.io", "certificatesigningrequests"): (
        "certificates.certificatesigningrequest:CertificateSigningRequestStrategy"
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): "flowcontrol.flowschema:FlowSchemaStrategy",
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): (
        "flowcontrol.prioritylevelconfiguration:PriorityLevelStrategy"
    ),
    ("networking.k8s.io", "ingressclasses"): "networking.ingressclass:IngressClassStrategy",
    ("networking.k8s.io", "ingresses"): "networking.ingress:IngressStrategy",
    ("networking.k8s.io", "ipaddresses"): "networking.address:IPAddressStrategy",
    ("networking.k8s.io", "networkpolicies"): "networking.networkpolicy:NetworkPolicyStrategy",
    ("networking.k8s.io", "servicecidrs"): "networking.address:ServiceCIDRStrategy",
    ("node.k8s.io", "runtimeclasses"): "node.runtimeclass:RuntimeClassStrategy",
    ("policy", "poddisruptionbudgets"): "policy.poddisruptionbudget:PodDisruptionBudgetStrategy",
    ("resource.k8s.io", "deviceclasses"): "resource.classes:DeviceClassStrategy",
    ("resource.k8s.io", "resourceclaims"): "resource.claims:ResourceClaimStrategy",
    ("resource.k8s.io", "resourceclaimtemplates"): "resource.claims:ResourceClaimTemplateStrategy",
    ("resource.k8s.io", "resourceslices"): "resource.claims:ResourceSliceStrategy",
    ("scheduling.k8s.io", "priorityclasses"): "scheduling.priorityclass:PriorityClassStrategy",
    ("storage.k8s.io", "csidrivers"): "storage.csi:CSIDriverStrategy",
    ("storage.k8s.io", "csinodes"): "storage.csi:CSINodeStrategy",
    ("storage.k8s.io", "csistoragecapacities"): "storage.csi:CSIStorageCapacityStrategy",
    ("storage.k8s.io", "storageclasses"): "storage.storageclass:StorageClassStrategy",
    ("storage.k8s.io", "volumeattachments"): "storage.volumeattachment:VolumeAttachmentStrategy",
    ("storage.k8s.io", "volumeattributesclasses"): "storage.storageclass:VolumeAttributesClassStrategy",
}


def strategy_for(resource: Resource, settings: Settings = Settings()) -> Strategy:  # noqa: B008 - it is frozen
    """Return a new strategy for a built-in resource; a server makes one a resource, as Services' holds what is allocated."""
    target = _STRATEGIES.get((resource.group, resource.plural))
    if target is None:
        return Strategy(resource, settings)
    module, _, name = target.partition(":")
    found = getattr(importlib.import_module(f"control.registry.{module}"), name)(resource, settings)
    assert isinstance(found, Strategy)
    return found
