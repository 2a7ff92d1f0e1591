"""Labels that a kubelet may set on its node: none that schedulers or administrators rely on for isolation.

Of the kubernetes.io and k8s.io labels only those that describe the machine (staging/src/k8s.io/kubelet/pkg/apis), and never
node-restriction.kubernetes.io/*; other domains' labels are free.
"""

from __future__ import annotations

from collections.abc import Mapping

_ALLOWED = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.kubernetes.io/region",
        "failure-domain.kubernetes.io/zone",
    }
)
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED = "node-restriction.kubernetes.io"


def _in_domain(namespace: str, domain: str) -> bool:
    return namespace == domain or namespace.endswith("." + domain)


def is_forbidden(label: str) -> bool:
    """Return whether a kubelet may not set or change a label."""
    namespace, slash, _ = label.partition("/")
    if not slash:
        return False
    if _in_domain(namespace, _RESTRICTED):
        return True
    if not (_in_domain(namespace, "kubernetes.io") or _in_domain(namespace, "k8s.io")):
        return False
    return label not in _ALLOWED and not any(_in_domain(namespace, domain) for domain in _ALLOWED_DOMAINS)


def modified(new: Mapping[str, str], old: Mapping[str, str]) -> set[str]:
    """Return the labels that were added, removed or changed."""
    return {key for key in {*new, *old} if new.get(key) != old.get(key)}


def forbidden_changes(new: Mapping[str, str] | None, old: Mapping[str, str] | None) -> list[str]:
    """Return the changed labels that a kubelet may not change, sorted."""
    return sorted(filter(is_forbidden, modified(new or {}, old or {})))
