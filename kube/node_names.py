"""Names of nodes' users, and reserved names that no node may have: a certificate for one would be valid for another server.

The API server calls webhooks and extension servers as `SERVICE.NAMESPACE.svc`, pods call Services by names in the cluster's
domain, and the same authority signs the certificates of nodes. A node chooses its name, so these must not be among them.
"""

from __future__ import annotations

NODES_GROUP, NODE_PREFIX = "system:nodes", "system:node:"
"""Group of all nodes, and the beginning of their users' names."""
_OF_THE_API_SERVER = frozenset({"localhost", "kubernetes", "kubernetes.default"})
_OF_THE_CLUSTER = {"svc": "Services", "pod": "pods"}


def reserved(name: str, cluster_domain: str) -> str:
    """Return why no node may have a name, "" where one may."""
    name, domain = name.lower().rstrip("."), cluster_domain.lower().strip(".")
    last = name.rpartition(".")[2]
    if name in _OF_THE_API_SERVER:
        return f"{name} is a name of the API server"
    if last in _OF_THE_CLUSTER:
        return f"{name} ends in {last!r}, as names of {_OF_THE_CLUSTER[last]} do"
    if domain and f".{name}".endswith(f".{domain}"):
        return f"{name} is in the cluster's domain {domain}, whose names are those of Services and pods"
    return ""
