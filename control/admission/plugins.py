"""The admission plugins: upstream's names in upstream's order (pkg/kubeapiserver/options/plugins.go), and which are on.

What upstream has off unless --enable-admission-plugins names it is off here too, but for DenyServiceExternalIPs, which
hardening guides ask for. Plugins of upstream that only alpha features need are known by name, so that a command line which
names them can stay, and have nothing to do. RBACEscalation, PolicyParameters and ClaimStatus are no plugins upstream but
parts of its storage: they cannot be switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

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
from control.admission.lookup import Lookup
from control.admission.namespace_lifecycle import NamespaceLifecycle
from control.admission.namespace_presence import NamespaceAutoProvision, NamespaceExists
from control.admission.node_restriction import NodeRestriction
from control.admission.owner_references import OwnerReferencesPermissionEnforcement
from control.admission.plugin import Plugin
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
from control.admission.webhooks.asking import Asker
from control.admission.webhooks.credentials import Credentials
from control.admission.webhooks.mutating import MutatingAdmissionWebhook
from control.admission.webhooks.validating import ValidatingAdmissionWebhook
from control.auth.fields import ConfigurationError
from control.auth.rbac import RBACAuthorizer
from control.auth.user import Authorizer
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


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Dependencies of plugins."""

    lookup: Lookup
    authorizer: Authorizer
    rbac: RBACAuthorizer
    asker: Asker
    told: Configurations = field(default_factory=dict)
    clock: Clock = SYSTEM
    toleration_seconds: tuple[int, int] = (SECONDS, SECONDS)
    """For nodes that are not ready, and for those that are not reachable."""


Make = Callable[[Surroundings, dict[str, Any]], Plugin]
PLUGINS: dict[str, Make] = {
    "AlwaysAdmit": lambda s, told: AlwaysAdmit(),
    "NamespaceAutoProvision": lambda s, told: NamespaceAutoProvision(s.lookup),
    "NamespaceLifecycle": lambda s, told: NamespaceLifecycle(s.lookup),
    "NamespaceExists": lambda s, told: NamespaceExists(s.lookup),
    "LimitPodHardAntiAffinityTopology": lambda s, told: LimitPodHardAntiAffinityTopology(),
    "LimitRanger": lambda s, told: LimitRanger(s.lookup),
    "ServiceAccount": lambda s, told: ServiceAccount(s.lookup),
    "NodeRestriction": lambda s, told: NodeRestriction(s.lookup, s.authorizer),
    "TaintNodesByCondition": lambda s, told: TaintNodesByCondition(),
    "AlwaysPullImages": lambda s, told: AlwaysPullImages(),
    "ImagePolicyWebhook": lambda s, told: ImagePolicyWebhook(told, s.clock),
    "PodSecurity": lambda s, told: PodSecurity(s.lookup, told),
    "PodNodeSelector": lambda s, told: PodNodeSelector(s.lookup, told),
    "Priority": lambda s, told: Priority(s.lookup),
    "DefaultTolerationSeconds": lambda s, told: DefaultTolerationSeconds(*s.toleration_seconds),
    "PodTolerationRestriction": lambda s, told: PodTolerationRestriction(s.lookup, told),
    "EventRateLimit": lambda s, told: EventRateLimit(told, s.clock.monotonic),
    "ExtendedResourceToleration": lambda s, told: ExtendedResourceToleration(),
    "DefaultStorageClass": lambda s, told: DefaultStorageClass(s.lookup),
    "StorageObjectInUseProtection": lambda s, told: StorageObjectInUseProtection(),
    "OwnerReferencesPermissionEnforcement": lambda s, told: OwnerReferencesPermissionEnforcement(
        s.authorizer, s.lookup
    ),
    "PersistentVolumeClaimResize": lambda s, told: PersistentVolumeClaimResize(s.lookup),
    "RuntimeClass": lambda s, told: RuntimeClass(s.lookup),
    "CertificateApproval": lambda s, told: CertificateApproval(s.authorizer),
    "CertificateSigning": lambda s, told: CertificateSigning(s.authorizer),
    "CertificateSubjectRestriction": lambda s, told: CertificateSubjectRestriction(),
    "DefaultIngressClass": lambda s, told: DefaultIngressClass(s.lookup),
    "DenyServiceExternalIPs": lambda s, told: DenyServiceExternalIPs(),
    "PodTopologyLabels": lambda s, told: PodTopologyLabels(s.lookup),
    "PodResizeValidator": lambda s, told: PodResizeValidator(s.lookup),
    "RBACEscalation": lambda s, told: RBACEscalation(s.authorizer, s.rbac),
    "PolicyParameters": lambda s, told: PolicyParameters(s.authorizer, s.lookup),
    "ClaimStatus": lambda s, told: ClaimStatus(s.authorizer),
    "MutatingAdmissionPolicy": lambda s, told: MutatingAdmissionPolicy(s.lookup, s.authorizer),
    "MutatingAdmissionWebhook": lambda s, told: MutatingAdmissionWebhook(s.asker),
    "ValidatingAdmissionPolicy": lambda s, told: ValidatingAdmissionPolicy(s.lookup, s.authorizer),
    "ValidatingAdmissionWebhook": lambda s, told: ValidatingAdmissionWebhook(s.asker),
    "ResourceQuota": lambda s, told: ResourceQuota(s.lookup, told),
    "AlwaysDeny": lambda s, told: AlwaysDeny(),
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
"""Those that a file can tell something."""
WEBHOOKS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


def make(
    surroundings: Surroundings,
    enabled: Collection[str] = (),
    disabled: Collection[str] = (),
    defaults: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> list[Plugin]:
    """Return the plugins that are on, in order; raises ConfigurationError for names and configurations without meaning.

    `defaults` are plugins that are on unless disabled, with the configurations that they have unless told another.
    """
    check(surroundings.told, enabled, disabled)
    off = (OFF_BY_DEFAULT - set(enabled) - defaults.keys()) | set(disabled)
    found = []
    for name, made in PLUGINS.items():
        if name in off:
            continue
        try:
            found.append(made(surroundings, dict(surroundings.told.get(name) or defaults.get(name) or {})))
        except ConfigurationError as error:
            raise ConfigurationError(f'failed to initialize admission plugin "{name}": {error}') from error
    return found


def check(told: Configurations, enabled: Collection[str] = (), disabled: Collection[str] = ()) -> None:
    """Raise ConfigurationError for names of plugins without meaning."""
    for flag, names in (("enable", enabled), ("disable", disabled)):
        for name in names:
            if name not in NAMES:
                raise ConfigurationError(f'{flag}-admission-plugins plugin "{name}" is unknown')
    if both := sorted(set(enabled) & set(disabled)):
        shown = " ".join(both)
        raise ConfigurationError(f"[{shown}] in enable-admission-plugins and disable-admission-plugins overlapped")
    for name in told:
        if name not in CONFIGURED:
            raise ConfigurationError(f'admission plugin "{name}" takes no configuration')


def webhook_credentials(told: Configurations) -> Credentials:
    """Return what admission webhooks are shown of this server; raises ConfigurationError."""
    try:
        return credentials.load([dict(told.get(name) or {}) for name in WEBHOOKS])
    except ConfigurationError as error:
        raise ConfigurationError(f"failed to initialize admission webhooks: {error}") from error
