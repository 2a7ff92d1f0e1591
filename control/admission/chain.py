"""The admission plugins in upstream's order (pkg/kubeapiserver/options/plugins.go), and how a request goes through them.

All plugins' `admit` first (once more where a webhook changed the object), then, after defaults and validation, all plugins'
`validate`. The order counts: what LimitRanger sets is what ResourceQuota counts, and quota comes last because nothing may
fail after it was charged. A dry run goes the same way; only a plugin that writes elsewhere (ResourceQuota) asks
`attributes.dry_run`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from control.admission.certificates import CertificateApproval, CertificateSigning, CertificateSubjectRestriction
from control.admission.default_ingress_class import DefaultIngressClass
from control.admission.default_storage_class import DefaultStorageClass
from control.admission.default_toleration_seconds import DefaultTolerationSeconds
from control.admission.deny_external_ips import DenyServiceExternalIPs
from control.admission.limit_ranger import LimitRanger
from control.admission.lookup import Lookup
from control.admission.metrics import PLUGIN_SECONDS, STEP_SECONDS
from control.admission.namespace_lifecycle import NamespaceLifecycle
from control.admission.node_restriction import NodeRestriction
from control.admission.owner_references import OwnerReferencesPermissionEnforcement
from control.admission.plugin import Attributes, Plugin
from control.admission.pod_security import PodSecurity
from control.admission.pod_topology_labels import PodTopologyLabels
from control.admission.policies.mutating import MutatingAdmissionPolicy
from control.admission.policies.validating import ValidatingAdmissionPolicy
from control.admission.priority import Priority
from control.admission.rbac_escalation import RBACEscalation
from control.admission.resource_quota import ResourceQuota
from control.admission.runtime_class import RuntimeClass
from control.admission.service_account import ServiceAccount
from control.admission.storage_protection import StorageObjectInUseProtection
from control.admission.taint_nodes import TaintNodesByCondition
from control.admission.volume_resize import PersistentVolumeClaimResize
from control.admission.webhooks.asking import Asker
from control.admission.webhooks.mutating import MutatingAdmissionWebhook
from control.admission.webhooks.validating import ValidatingAdmissionWebhook
from control.auth.rbac import RBACAuthorizer
from control.auth.user import Authorizer

OFF_BY_DEFAULT = frozenset({"OwnerReferencesPermissionEnforcement"})


class Chain:
    """An ordered list of plugins."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self._parts = {phase: _parts(self.plugins, phase) for phase in ("admit", "validate")}

    async def admit(self, attributes: Attributes) -> None:
        """Let each plugin change the object or refuse it (StatusError); again where a webhook changed it."""
        for _ in range(2):
            await self._step("admit", attributes)
            if not attributes.reinvocation.wanted:
                return
            attributes.reinvocation.second = True

    async def validate(self, attributes: Attributes) -> None:
        """Let each plugin refuse the object as it is going to be stored."""
        await self._step("validate", attributes)

    async def _step(self, phase: str, attributes: Attributes) -> None:
        operation, rejected = attributes.operation, "true"
        begun = before = time.perf_counter()
        try:
            for plugin, work in self._parts[phase]:
                if plugin.handles(attributes):
                    done = False
                    try:
                        await work(attributes)
                        done = True
                    finally:
                        now = time.perf_counter()
                        PLUGIN_SECONDS.observe(plugin.name, operation, "false" if done else "true", phase, now - before)
                        before = now
            rejected = "false"
        finally:
            STEP_SECONDS.observe(operation, rejected, phase, time.perf_counter() - begun)


def _parts(plugins: Sequence[Plugin], phase: str) -> list[tuple[Plugin, Callable[[Attributes], Awaitable[None]]]]:
    """Return the plugins that do something in a phase, with what; the others are neither asked nor measured."""
    doing = [plugin for plugin in plugins if getattr(type(plugin), phase) is not getattr(Plugin, phase)]
    return [(plugin, plugin.admit if phase == "admit" else plugin.validate) for plugin in doing]


def default_plugins(
    lookup: Lookup,
    authorizer: Authorizer,
    rbac: RBACAuthorizer,
    asker: Asker,
    *,
    enabled: Collection[str] = (),
    disabled: Collection[str] = (),
) -> list[Plugin]:
    """Return upstream's default plugins in order, with some more enabled or some disabled by name."""
    plugins: list[Plugin] = [
        NamespaceLifecycle(lookup),
        LimitRanger(lookup),
        ServiceAccount(lookup),
        NodeRestriction(lookup, authorizer),
        TaintNodesByCondition(),
        PodSecurity(lookup),
        PodTopologyLabels(lookup),
        Priority(lookup),
        DefaultTolerationSeconds(),
        DefaultStorageClass(lookup),
        StorageObjectInUseProtection(),
        OwnerReferencesPermissionEnforcement(authorizer),
        PersistentVolumeClaimResize(lookup),
        RuntimeClass(lookup),
        CertificateApproval(authorizer),
        CertificateSigning(authorizer),
        CertificateSubjectRestriction(),
        DefaultIngressClass(lookup),
        DenyServiceExternalIPs(),
        RBACEscalation(authorizer, rbac),
        MutatingAdmissionPolicy(lookup, authorizer),
        MutatingAdmissionWebhook(asker),
        ValidatingAdmissionPolicy(lookup, authorizer),
        ValidatingAdmissionWebhook(asker),
        ResourceQuota(lookup),
    ]
    off = (OFF_BY_DEFAULT - set(enabled)) | set(disabled)
    return [plugin for plugin in plugins if plugin.name not in off]
