"""Permissions of joining machines and of nodes for their certificates: kubeadm's roles with Wherry's names.

The holder of a bootstrap token for nodes may request a node's client certificate and for the proxy's, which are approved
without a person; look at Nodes (is the name taken?); and read how the cluster's nodes are configured. Everybody, also
without a credential, may read the discovery document. A node renews its own certificate, the proxy its own. The encrypted
certificates of the control plane are read with tokens made for that alone.
"""

from __future__ import annotations

from control.auth.bootstrap_policy import AUTOUPDATE, GROUP, rule
from control.auth.user import ANONYMOUS
from kube.bootstrap_tokens import CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, CONTROL_PLANE_GROUP, NODE_GROUP
from kube.certificates import PROXY_USER
from kube.json_object import Object
from kube.node_names import NODES_GROUP

CONFIGURATION = "kubelet-config,kube-proxy,wherry-config"
_APPROVED = "system:certificates.k8s.io:certificatesigningrequests:"
_JOINING, _NODES = ("Group", NODE_GROUP), ("Group", NODES_GROUP)

Subject = tuple[str, str]
CLUSTER_ROLES = {
    "wherry:get-nodes": ["get core nodes"],
    "wherry:proxy-client": ["create certificates.k8s.io certificatesigningrequests/proxyclient"],
    "wherry:self-proxy-client": [
        "create certificates.k8s.io certificatesigningrequests/selfproxyclient",
        "create,get certificates.k8s.io certificatesigningrequests",
    ],
}
CLUSTER_BINDINGS: dict[str, tuple[str, Subject]] = {
    "wherry:get-nodes": ("wherry:get-nodes", _JOINING),
    "wherry:kubelet-bootstrap": ("system:node-bootstrapper", _JOINING),
    "wherry:node-autoapprove-bootstrap": (_APPROVED + "nodeclient", _JOINING),
    "wherry:node-autoapprove-certificate-rotation": (_APPROVED + "selfnodeclient", _NODES),
    "wherry:proxy-autoapprove-bootstrap": ("wherry:proxy-client", _JOINING),
    "wherry:proxy-autoapprove-certificate-rotation": ("wherry:self-proxy-client", ("User", PROXY_USER)),
}
ROLES: list[tuple[str, str, str, list[Subject]]] = [
    (
        CLUSTER_INFO_NAMESPACE,
        "wherry:bootstrap-signer-clusterinfo",
        f"get core configmaps {CLUSTER_INFO}",
        [("User", ANONYMOUS)],
    ),
    ("kube-system", "wherry:node-configuration", f"get core configmaps {CONFIGURATION}", [_JOINING, _NODES]),
    # Agents and proxies go on to another API server when theirs is lost (kube/servers.py).
    (
        "default",
        "wherry:servers",
        "get,list,watch discovery.k8s.io endpointslices kubernetes",
        [_NODES, ("User", PROXY_USER)],
    ),
    ("kube-system", "wherry:certificates", "get core secrets wherry-certs", [("Group", CONTROL_PLANE_GROUP)]),
]


def joining_policy() -> list[Object]:
    """Return the roles and bindings of joining, in the order to create them."""
    found = [
        _object("ClusterRole", name) | {"rules": [rule(r) for r in rules]} for name, rules in CLUSTER_ROLES.items()
    ]
    for name, (role, subject) in CLUSTER_BINDINGS.items():
        found.append(_object("ClusterRoleBinding", name) | _bound("ClusterRole", role, [subject]))
    for namespace, name, text, subjects in ROLES:
        found.append(_object("Role", name, namespace) | {"rules": [rule(text)]})
        found.append(_object("RoleBinding", name, namespace) | _bound("Role", name, subjects))
    return found


def _bound(kind: str, role: str, subjects: list[Subject]) -> Object:
    return {
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": k, "name": name} for k, name in subjects],
    }


def _object(kind: str, name: str, namespace: str = "") -> Object:
    metadata: Object = {"name": name, "annotations": {AUTOUPDATE: "true"}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}
