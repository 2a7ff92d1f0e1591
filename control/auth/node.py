"""The Node authorizer: a kubelet sees what the pods bound to its node need, and no more.

A graph is kept from the watch cache: which pods are on which node, what each pod refers to, which volume a claim is
bound to and which secrets that volume needs. A secret may be read by a node if there is a path from it to the node. Own
objects (node, lease, CSI node) go by name; everything else a kubelet does is a fixed list of rules, with the
NodeRestriction admission plugin to look at the contents. Lists of pods and nodes must be narrowed to the node by field
selector (since v1.31).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from control.auth import references
from control.auth.bootstrap_policy import rule
from control.auth.rule_set import RuleSet
from control.auth.user import AuthzAttributes, Decision, UserInfo
from kube.json_object import Object
from kube.node_names import NODE_PREFIX, NODES_GROUP
from kube.selectors import SelectorError, parse_fields

LEASE_NAMESPACE = "kube-node-lease"

Thing = tuple[str, str, str]
"""(resource plural, namespace, name)"""

_FIXED = RuleSet(
    [
        rule(text)
        for text in (
            "create authentication.k8s.io tokenreviews",
            "create authorization.k8s.io localsubjectaccessreviews,subjectaccessreviews",
            "READ core services",
            "create,patch,update core nodes",
            "patch,update core nodes/status",
            "create,patch,update core events",
            "create,patch,update events.k8s.io events",
            "create,delete core pods",
            "patch,update core pods/status",
            "create core pods/eviction",
            "get core endpoints",
            "READ,create certificates.k8s.io certificatesigningrequests",
            "READ storage.k8s.io csidrivers",
            "READ node.k8s.io runtimeclasses",
        )
    ]
)
_READ = ("get", "list", "watch")
_OWN = ("get", "create", "update", "patch", "delete")


def node_of(user: UserInfo) -> str:
    """Return the node that a user is the kubelet of, "" where they are none."""
    if user.name.startswith(NODE_PREFIX) and NODES_GROUP in user.groups:
        return user.name.removeprefix(NODE_PREFIX)
    return ""


class NodeAuthorizer:
    """Allows kubelets what they need and has no opinion on other users."""

    follows = ("pods", "persistentvolumes", "volumeattachments.storage.k8s.io", "resourceslices.resource.k8s.io")

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], tuple[tuple[Any, ...], str, frozenset[Thing]]] = {}
        self._users: defaultdict[Thing, Counter[str]] = defaultdict(Counter)
        """The number of pods that refer to an object, by node: many pods refer to the same account."""
        self._volumes: dict[str, tuple[tuple[str, str] | None, set[tuple[str, str]]]] = {}
        self._secret_volumes: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._owners: dict[Thing, str] = {}

    # -- the graph ----------------------------------------------------------------------------------------------------
    def changed(self, target: str, event: str, obj: Object) -> None:
        """Take one change of a followed resource."""
        gone = event == "DELETED"
        if target == "pods":
            self._pod(obj, gone=gone)
        elif target == "persistentvolumes":
            self._volume(obj, gone=gone)
        else:
            thing = (target.partition(".")[0], "", obj["metadata"]["name"])
            node = obj.get("spec", {}).get("nodeName", "")
            if gone or not node:
                self._owners.pop(thing, None)
            else:
                self._owners[thing] = node

    def replaced(self, target: str, objects: Iterable[Object]) -> None:
        """Take the full list of one followed resource."""
        if target == "pods":
            self._pods.clear()
            self._users.clear()
        elif target == "persistentvolumes":
            self._volumes.clear()
            self._secret_volumes.clear()
        else:
            plural = target.partition(".")[0]
            self._owners = {thing: node for thing, node in self._owners.items() if thing[0] != plural}
        for obj in objects:
            self.changed(target, "ADDED", obj)

    def _pod(self, pod: Object, *, gone: bool) -> None:
        metadata, spec = pod["metadata"], pod.get("spec", {})
        key = (metadata.get("namespace", ""), metadata["name"])
        node = spec.get("nodeName", "")
        has_claims = "resourceClaims" in spec or "extendedResourceClaimStatus" in pod.get("status", {})
        claims = frozenset(references.pod_resource_claims(pod)) if has_claims else frozenset()
        # A bound pod's references do not change but for ephemeral containers and claims made for it.
        state = (metadata.get("uid"), node, len(spec.get("ephemeralContainers") or ()), claims)
        known = self._pods.get(key)
        if known and not gone and known[0] == state:
            return
        if known:
            del self._pods[key]
            for thing in known[2]:
                self._users[thing][known[1]] -= 1
                if not self._users[thing][known[1]]:
                    del self._users[thing][known[1]]
                if not self._users[thing]:
                    del self._users[thing]
        if gone or not node:
            return
        namespace = key[0]
        things = {("pods", *key)}
        if spec.get("serviceAccountName"):
            things.add(("serviceaccounts", namespace, spec["serviceAccountName"]))
        things |= {("resourceclaims", namespace, n) for n in claims}
        if "kubernetes.io/config.mirror" not in (metadata.get("annotations") or {}):
            things |= {("secrets", namespace, n) for n in references.pod_secrets(spec)}
            things |= {("configmaps", namespace, n) for n in references.pod_config_maps(spec)}
            things |= {("persistentvolumeclaims", namespace, n) for n in references.pod_claims(pod)}
        else:  # a mirror pod is what a node says of itself: it opens nothing
            things = {("pods", *key)}
        self._pods[key] = (state, node, frozenset(things))
        for thing in things:
            self._users[thing][node] += 1

    def _volume(self, volume: Object, *, gone: bool) -> None:
        name = volume["metadata"]["name"]
        for secret in self._volumes.pop(name, (None, set[tuple[str, str]]()))[1]:
            self._secret_volumes[secret].discard(name)
            if not self._secret_volumes[secret]:
                del self._secret_volumes[secret]
        if gone:
            return
        ref = volume.get("spec", {}).get("claimRef")
        claim = (ref.get("namespace", ""), ref.get("name", "")) if ref else None
        secrets = references.volume_secrets(volume)
        self._volumes[name] = (claim, secrets)
        for secret in secrets:
            self._secret_volumes[secret].add(name)

    def reaches(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether there is a path from an object to a node."""
        if node in self._users.get((resource, namespace, name), ()):
            return True
        if resource == "persistentvolumes":
            claim = self._volumes.get(name, (None, None))[0]
            return claim is not None and self.reaches(node, "persistentvolumeclaims", *claim)
        if resource == "secrets":
            volumes = self._secret_volumes.get((namespace, name), ())
            return any(self.reaches(node, "persistentvolumes", "", volume) for volume in volumes)
        return self._owners.get((resource, namespace, name)) == node

    # -- the decision -------------------------------------------------------------------------------------------------
    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        node = node_of(attributes.user)
        if not node or not attributes.is_resource:
            return Decision.NO_OPINION, ""
        reason = self._refusal(node, attributes)
        return (Decision.NO_OPINION, reason) if reason is not None else (Decision.ALLOW, "")

    def _refusal(self, node: str, a: AuthzAttributes) -> str | None:
        """Return why a kubelet may not, "" for no particular reason, None if it may."""
        kind = (a.group, a.resource)
        name = a.name
        if a.group == "" and a.resource in ("secrets", "configmaps"):
            return self._read(node, a, name, _READ) if a.namespace else "can only read namespaced object of this type"
        if a.group == "" and a.resource == "persistentvolumeclaims":
            verbs = ("update", "patch") if a.subresource == "status" else ("get",)
            return self._read(node, a, name, verbs, ("", "status"))
        if kind in _BY_GRAPH:
            return self._read(node, a, name, ("get",))
        if kind == ("", "serviceaccounts"):
            if a.subresource == "token":
                return self._read(node, a, name, ("create",), ("token",))
            return self._read(node, a, name, ("get",))
        if kind == ("coordination.k8s.io", "leases"):
            if a.namespace != LEASE_NAMESPACE:
                return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
            return _own(node, a, "lease", "the same name as the requesting node")
        if kind == ("storage.k8s.io", "csinodes"):
            return _own(node, a, "CSINode", "the same name as the requesting node")
        if kind == ("resource.k8s.io", "resourceslices"):
            return self._slices(node, a)
        if kind == ("", "nodes") and a.verb in _READ and not a.subresource:
            return None if name == node else f"node '{node}' cannot read '{name}', only its own Node object"
        if kind == ("", "pods") and a.verb in _READ and not a.subresource:
            if a.verb == "get":
                return self._read(node, a, name, ("get",))
            if _selected(a.field_selector, "spec.nodeName") == node:
                return None
            if name and a.namespace:
                return self._read(node, a, name, _READ)
            return "can only list/watch pods with spec.nodeName field selector"
        return None if _FIXED.allows(a.verb, a.group, a.resource, a.subresource, a.name) else ""

    def _read(
        self, node: str, a: AuthzAttributes, name: str, verbs: tuple[str, ...], subresources: tuple[str, ...] = ("",)
    ) -> str | None:
        if a.verb not in verbs:
            return f"can only {'/'.join(verbs)} resources of this type"
        if a.subresource not in subresources:
            return f"cannot {a.verb} subresource of this type"
        if not name:
            return "No Object name found"
        if not self.reaches(node, a.resource, a.namespace, name):
            return f"no relationship found between node '{node}' and this object"
        return None

    def _slices(self, node: str, a: AuthzAttributes) -> str | None:
        if a.subresource:
            return "cannot authorize ResourceSlice subresources"
        if a.verb == "create":
            return None  # NodeRestriction looks at whose it is
        if a.verb in ("get", "update", "patch", "delete"):
            return self._read(node, a, a.name, ("get", "update", "patch", "delete"))
        if a.verb in ("list", "watch", "deletecollection"):
            if _selected(a.field_selector, "spec.nodeName") == node:
                return None
            return "can only list/watch/deletecollection resourceslices with nodeName field selector"
        return (
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete"
        )


_BY_GRAPH = {
    ("", "persistentvolumes"),
    ("resource.k8s.io", "resourceclaims"),
    ("storage.k8s.io", "volumeattachments"),
}


def _own(node: str, a: AuthzAttributes, what: str, which: str) -> str | None:
    if a.subresource:
        return f"cannot authorize {what} subresources"
    if a.verb not in _OWN:
        return f"can only {', '.join(_OWN)} a {what}"
    # The name of what is created may still be in the body alone; NodeRestriction looks there.
    if a.name != node and not (a.verb == "create" and not a.name):
        return f"can only access {what} with {which}"
    return None


def _selected(selector: str, field: str) -> str:
    """Return the value a field selector demands of a field, "" where it demands none."""
    if field not in selector:
        return ""
    try:
        return parse_fields(selector).exact(field) or ""
    except SelectorError:
        return ""  # the request is refused for it later
