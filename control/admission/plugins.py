"""The admission plugins: upstream's names in upstream's order (pkg/kubeapiserver/options/plugins.go), and which are on.

What upstream has off unless --enable-admission-plugins names it is off here too, but for DenyServiceExternalIPs, which
hardening guides request. Plugins of upstream that only alpha features need are known by name, so that a command line which
names them can stay, and have nothing to do. RBACEscalation, PolicyParameters and ClaimStatus are no plugins upstream but
parts of its storage: they cannot be switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from control.admission.always import AlwaysAdmit, AlwaysDeny
from control.admission.always_pull_images import AlwaysPullImages
from control.admission.certificates import CertificateApproval, CertificateSigning, CertificateSubjectRestriction
from control.admission.claim_status import ClaimStatus
from control.admission.configuration import Configurations
from control.admission.default_ingress_class import DefaultIngressClass
from control.admission.default_storage_class import DefaultStorageClass
from control.admission.default_toleration_seconds import SECONDS, DefaultTolerationSeconds
from control.admission.deny_external_ips import DenyServiceExternalIPs
from control.admission.event_rate_limit import EventRateLimit
from control.admission.extended_resource_toleration import ExtendedResourceToleration
from control.admission.hard_anti_affinity import LimitPodHardAntiAffinityTopology
from control.admission.image_policy import ImagePolicyWebhook
from control.admission.limit_ranger import LimitRanger
from control.admission.namespace_lifecycle import NamespaceLifecycle
from control.admission.namespace_presence import NamespaceAutoProvision, NamespaceExists
from control.admission.node_restriction import NodeRestriction
from control.admission.owner_references import OwnerReferencesPermissionEnforcement
from control.admission.pod_node_selector import PodNodeSelector
from control.admission.pod_resize import PodResizeValidator
from control.admission.pod_security import PodSecurity
from control.admission.pod_toleration_restriction import PodTolerationRestriction
from control.admission.pod_topology_labels import PodTopologyLabels
from control.admission.policies.mutating import MutatingAdmissionPolicy
from control.admission.policies.validating import ValidatingAdmissionPolicy
from control.admission.policy_parameters import PolicyParameters
from control.admission.priority import Priority
from control.admission.rbac_escalation import RBACEscalation
from control.admission.resource_quota import ResourceQuota
from control.admission.runtime_class import RuntimeClass
from control.admission.service_account import ServiceAccount
from control.admission.storage_protection import StorageObjectInUseProtection
from control.admission.taint_nodes import TaintNodesByCondition
from control.admission.volume_resize import PersistentVolumeClaimResize
from control.admission.webhooks import credentials
from control.admission.webhooks.credentials import Credentials
from control.admission.webhooks.invoker import WebhookInvoker
from control.admission.webhooks.mutating import MutatingAdmissionWebhook
from control.admission.webhooks.validating import ValidatingAdmissionWebhook
from control.auth.fields import ConfigurationError
from control.auth.rbac import RBACAuthorizer
from control.auth.user import Authorizer
from control.interfaces.admission import Plugin
from control.interfaces.lookup import Lookup
from kube.clock import SYSTEM, Clock

OFF_BY_DEFAULT = frozenset(
    {
        "AlwaysAdmit",
        "AlwaysDeny",
        "AlwaysPullImages",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "ImagePolicyWebhook",
        "LimitPodHardAntiAffinityTopology",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "OwnerReferencesPermissionEnforcement",
        "PodNodeSelector",
        "PodTolerationRestriction",
    }
)
IDLE = frozenset(
    {
        "ClusterTrustBundleAttest",
        "JobValidation",
        "NodeDeclaredFeatureValidator",
        "PodGroupProtection",
        "PodGroupWorkloadExists",
    }
)
"""Upstream's for APIs and features that are not served here, or that no pod's update can touch."""


class PluginContext(msgspec.Struct, frozen=True):
    """Dependencies of plugins."""

    lookup: Lookup
    authorizer: Authorizer
    rbac: RBACAuthorizer
    invoker: WebhookInvoker
    configurations: Configurations = msgspec.field(default_factory=dict)
    clock: Clock = SYSTEM
    toleration_seconds: tuple[int, int] = (SECONDS, SECONDS)
    """For nodes that are not ready, and for those that are not reachable."""


Make = Callable[[PluginContext, dict[str, Any]], Plugin]
PLUGINS: dict[str, Make] = {
    "AlwaysAdmit": lambda context, configuration: AlwaysAdmit(),
    "NamespaceAutoProvision": lambda context, configuration: NamespaceAutoProvision(context.lookup),
    "NamespaceLifecycle": lambda context, configuration: NamespaceLifecycle(context.lookup),
    "NamespaceExists": lambda context, configuration: NamespaceExists(context.lookup),
    "LimitPodHardAntiAffinityTopology": lambda context, configuration: LimitPodHardAntiAffinityTopology(),
    "LimitRanger": lambda context, configuration: LimitRanger(context.lookup),
    "ServiceAccount": lambda context, configuration: ServiceAccount(context.lookup),
    "NodeRestriction": lambda context, configuration: NodeRestriction(context.lookup, context.authorizer),
    "TaintNodesByCondition": lambda context, configuration: TaintNodesByCondition(),
    "AlwaysPullImages": lambda context, configuration: AlwaysPullImages(),
    "ImagePolicyWebhook": lambda context, configuration: ImagePolicyWebhook(configuration, context.clock),
    "PodSecurity": lambda context, configuration: PodSecurity(context.lookup, configuration),
    "PodNodeSelector": lambda context, configuration: PodNodeSelector(context.lookup, configuration),
    "Priority": lambda context, configuration: Priority(context.lookup),
    "DefaultTolerationSeconds": lambda context, configuration: DefaultTolerationSeconds(*context.toleration_seconds),
    "PodTolerationRestriction": lambda context, configuration: PodTolerationRestriction(context.lookup, configuration),
    "EventRateLimit": lambda context, configuration: EventRateLimit(configuration, context.clock.monotonic),
    "ExtendedResourceToleration": lambda context, configuration: ExtendedResourceToleration(),
    "DefaultStorageClass": lambda context, configuration: DefaultStorageClass(context.lookup),
    "StorageObjectInUseProtection": lambda context, configuration: StorageObjectInUseProtection(),
    "OwnerReferencesPermissionEnforcement": lambda context, configuration: OwnerReferencesPermissionEnforcement(
        context.authorizer, context.lookup
    ),
    "PersistentVolumeClaimResize": lambda context, configuration: PersistentVolumeClaimResize(context.lookup),
    "RuntimeClass": lambda context, configuration: RuntimeClass(context.lookup),
    "CertificateApproval": lambda context, configuration: CertificateApproval(context.authorizer),
    "CertificateSigning": lambda context, configuration: CertificateSigning(context.authorizer),
    "CertificateSubjectRestriction": lambda context, configuration: CertificateSubjectRestriction(),
    "DefaultIngressClass": lambda context, configuration: DefaultIngressClass(context.lookup),
    "DenyServiceExternalIPs": lambda context, configuration: DenyServiceExternalIPs(),
    "PodTopologyLabels": lambda context, configuration: PodTopologyLabels(context.lookup),
    "PodResizeValidator": lambda context, configuration: PodResizeValidator(context.lookup),
    "RBACEscalation": lambda context, configuration: RBACEscalation(context.authorizer, context.rbac),
    "PolicyParameters": lambda context, configuration: PolicyParameters(context.authorizer, context.lookup),
    "ClaimStatus": lambda context, configuration: ClaimStatus(context.authorizer),
    "MutatingAdmissionPolicy": lambda context, configuration: MutatingAdmissionPolicy(
        context.lookup, context.authorizer
    ),
    "MutatingAdmissionWebhook": lambda context, configuration: MutatingAdmissionWebhook(context.invoker),
    "ValidatingAdmissionPolicy": lambda context, configuration: ValidatingAdmissionPolicy(
        context.lookup, context.authorizer
    ),
    "ValidatingAdmissionWebhook": lambda context, configuration: ValidatingAdmissionWebhook(context.invoker),
    "ResourceQuota": lambda context, configuration: ResourceQuota(context.lookup, configuration),
    "AlwaysDeny": lambda context, configuration: AlwaysDeny(),
}
"""In upstream's order. The order counts: what LimitRanger sets is what ResourceQuota counts, which comes last because
nothing may fail after quota was charged."""
OF_STORAGE = frozenset({"RBACEscalation", "PolicyParameters", "ClaimStatus"})
"""No plugins upstream but parts of its storage."""
NAMES = frozenset(PLUGINS) - OF_STORAGE | IDLE
CONFIGURED = frozenset(
    {
        "EventRateLimit",
        "ImagePolicyWebhook",
        "MutatingAdmissionWebhook",
        "PodNodeSelector",
        "PodSecurity",
        "PodTolerationRestriction",
        "ResourceQuota",
        "ValidatingAdmissionWebhook",
    }
)
"""Plugins with a configuration."""
WEBHOOKS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


def make(
    plugin_context: PluginContext,
    enabled: Collection[str] = (),
    disabled: Collection[str] = (),
    defaults: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> list[Plugin]:
    """Return the plugins that are on, in order; raises ConfigurationError for names and configurations without meaning.

    `defaults` are plugins that are on unless disabled, with the configurations that they have unless configured otherwise.
    """
    check(plugin_context.configurations, enabled, disabled)
    off = (OFF_BY_DEFAULT - set(enabled) - defaults.keys()) | set(disabled)
    found = []
    for name, made in PLUGINS.items():
        if name in off:
            continue
        try:
            found.append(
                made(plugin_context, dict(plugin_context.configurations.get(name) or defaults.get(name) or {}))
            )
        except ConfigurationError as error:
            raise ConfigurationError(f'failed to initialize admission plugin "{name}": {error}') from error
    return found


def check(configurations: Configurations, enabled: Collection[str] = (), disabled: Collection[str] = ()) -> None:
    """Raise ConfigurationError for names of plugins without meaning."""
    for flag, names in (("enable", enabled), ("disable", disabled)):
        for name in names:
            if name not in NAMES:
                raise ConfigurationError(f'{flag}-admission-plugins plugin "{name}" is unknown')
    if both := sorted(set(enabled) & set(disabled)):
        shown = " ".join(both)
        raise ConfigurationError(f"[{shown}] in enable-admission-plugins and disable-admission-plugins overlapped")
    for name in configurations:
        if name not in CONFIGURED:
            raise ConfigurationError(f'admission plugin "{name}" takes no configuration')


def webhook_credentials(configurations: Configurations) -> Credentials:
    """Return what admission webhooks are shown of this server; raises ConfigurationError."""
    try:
        return credentials.load([dict(configurations.get(name) or {}) for name in WEBHOOKS])
    except ConfigurationError as error:
        raise ConfigurationError(f"failed to initialize admission webhooks: {error}") from error
