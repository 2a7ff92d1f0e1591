"""Reads that no answer of yes allows: a handler reads only objects that a question was about, or those of `OTHERWISE`.

Before the first answer of yes nothing is read at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.authorised.concerning import concerns
from tests.support.authorised.reads import Read
from tests.support.authorised.recording import Question, Record
from tests.support.authorised.targets import METRICS, Target, same_storage, target_of

_MANY = ("list", "watch", "deletecollection")
_POLICIES, _WEBHOOKS = "admissionpolicies", "webhookconfigurations"
OTHERWISE: dict[str, tuple[tuple[str, ...], str]] = {
    "control.registry.deleted_namespaces": (("namespaces",), "the namespace that something was created in"),
    "control.admission.limit_ranger": (("limitranges",), "limits of the namespace that is written to"),
    "control.admission.node_addresses": (("ipaddresses", "servicecidrs"), "addresses that a node may not report"),
    "control.admission.pod_topology_labels": (("nodes",), "labels of the node that a pod is bound to"),
    "control.admission.policies.binding": ((f"mutating{_POLICIES}", f"validating{_POLICIES}"), "policies in force"),
    "control.admission.policies.mutating": (("mutatingadmissionpolicybindings",), "their bindings"),
    "control.admission.policies.validating": (("validatingadmissionpolicybindings",), "their bindings"),
    "control.admission.priority": (("priorityclasses",), "the class of a pod, by its name or by default"),
    "control.admission.resource_quota": (("resourcequotas",), "quotas of the namespace that is written to"),
    "control.admission.webhooks.mutating": ((f"mutating{_WEBHOOKS}",), "webhooks in force"),
    "control.admission.webhooks.validating": ((f"validating{_WEBHOOKS}",), "webhooks in force"),
    "control.auth.token_request": (("nodes", "pods"), "the pod that a token is bound to, and the pod's node"),
    "control.dialing.service_backend": (("endpointslices", "pods", "services"), "where a Service's proxy leads"),
    "control.interfaces.lookup": (
        (
            "ingressclasses",
            "namespaces",
            "serviceaccounts",
            "storageclasses",
            f"mutating{_POLICIES}",
            f"validating{_POLICIES}",
        ),
        "what admission compares with: defaults, the namespace, the account of a pod, the policy that a binding names",
    ),
    "control.registry.compare_and_swap": (("poddisruptionbudgets", "pods"), "an eviction, a binding"),
    "control.registry.outcome": (("poddisruptionbudgets", "pods"), "an eviction, a binding"),
    "control.registry.deletion": (("servicecidrs",), "addresses that a Service gives back"),
    "control.server.discovery": (("customresourcedefinitions",), "custom resources that are served"),
    "control.openapi.serve": (("customresourcedefinitions",), "custom resources that are served"),
    "control.server.journal_page": (("customresourcedefinitions",), "custom resources that are served"),
    "control.server.node_journal": (("nodes",), "the address of a pod's node, whose agent has entries about the pod"),
    "control.server.resources": (("customresourcedefinitions",), "the custom resource that a path names"),
    "control.server.subresources.backends": (("nodes", "pods", "services"), "where a proxy leads, by PROXY:NAME:PORT"),
    "control.server.subresources.budgets": (("poddisruptionbudgets",), "budgets that forbid an eviction"),
    "control.server.subresources.kubelet": (("nodes",), "the address of a pod's node"),
}
"""Plural names of what a module may read of other objects, and what for."""


def unauthorised(record: Record, yes: list[Question]) -> Iterator[str]:
    """Yield the reads for which there was no answer of yes."""
    for read in dict.fromkeys(record.reads):
        found = target_of(read.key)
        if found is None:
            yield f"{read.module} read {read.key}, which is of no kind that was asked about"
        elif not yes:
            yield f"{read.module} read {read.key} and nothing was allowed"
        elif not _allowed(read, *found, yes):
            yield f"{read.module} read {read.key}, which no question was about"


def _allowed(read: Read, target: Target, namespace: str, name: str, yes: list[Question]) -> bool:
    if target.plural in OTHERWISE.get(read.module, ((), ""))[0]:
        return True
    yes = [q._replace(group="") if q.group == METRICS else q for q in yes]
    if name:
        return any(concerns(q, target, namespace, name) for q in yes)
    return any(
        q.verb in _MANY and same_storage(q.group, q.resource, target) and q.namespace in ("", namespace) for q in yes
    )
