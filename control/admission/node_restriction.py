"""NodeRestriction: a kubelet changes its own node, its own pods' status and what belongs to them, and nothing else.

Where the authorizer can only see names, this sees contents. Old and new are compared (CVE-2025-5187: a node that can give
itself an owner can have itself deleted and come back with other labels); claims a mirror pod would smuggle in are refused
(CVE-2025-4563). Messages follow plugin/pkg/admission/noderestriction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from control.admission import node_addresses
from control.admission.certificates import requested_user
from control.admission.mirror_pods import object_reference
from control.admission.node_labels import forbidden_changes
from control.admission.refusal import refuse
from control.auth import certificates, references
from control.auth.authorizers import allowed
from control.auth.node import LEASE_NAMESPACE, node_of
from control.auth.user import Authorizer, AuthzAttributes
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube.errors import not_found
from kube.json_object import Object
from kube.node_names import NODE_PREFIX, NODES_GROUP

MIRROR = "kubernetes.io/config.mirror"
_SAME_UID = "does not match the UID in record. The object might have been deleted and then recreated"


class NodeRestriction(Plugin):
    name = "NodeRestriction"

    def __init__(self, lookup: Lookup, authorizer: Authorizer) -> None:
        self._lookup, self._authorizer = lookup, authorizer
        self._checks: dict[str, Callable[[Attributes, str], Awaitable[str]]] = {
            "pods": self._pods,
            "nodes": self._nodes,
            "persistentvolumeclaims": self._claims,
            "serviceaccounts": self._tokens,
            "leases.coordination.k8s.io": self._leases,
            "csinodes.storage.k8s.io": self._csi_nodes,
            "resourceslices.resource.k8s.io": self._slices,
            "certificatesigningrequests.certificates.k8s.io": self._requests,
        }

    def handles(self, attributes: Attributes) -> bool:
        user = attributes.user
        is_node = user.name.startswith(NODE_PREFIX) and NODES_GROUP in user.groups
        return is_node and attributes.operation != "CONNECT"

    async def admit(self, attributes: Attributes) -> None:
        await self.validate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        node = node_of(attributes.user)
        if not node:
            raise refuse(attributes, f'could not determine node from user "{attributes.user.name}"')
        check = self._checks.get(attributes.resource.target)
        why = await check(attributes, node) if check else ""
        if why:
            raise refuse(attributes, why)

    # -- pods ---------------------------------------------------------------------------------------------------------
    async def _pods(self, a: Attributes, node: str) -> str:
        if a.subresource == "status":
            return _pod_status(a, node) or _pod_addresses(self._lookup, a, node)
        if a.subresource == "eviction":
            if a.operation != "CREATE":
                return f"unexpected operation {a.operation}"
            name = a.name or _name(a.obj)
            if not name:
                return "could not determine pod from request data"
            pod = await find(self._lookup, "pods", a.namespace, name)
            if pod is None:
                raise not_found("", "pods", name)
            own = pod.get("spec", {}).get("nodeName") == node
            return "" if own else f"node {node} can only evict pods with spec.nodeName set to itself"
        if a.subresource:
            return f"unexpected pod subresource \"{a.subresource}\", only 'status' and 'eviction' are allowed"
        if a.operation == "CREATE":
            return await self._mirror_pod(a.obj or {}, node)
        if a.operation == "DELETE":
            pod = a.old or await find(self._lookup, "pods", a.namespace, a.name)
            own = pod is not None and pod.get("spec", {}).get("nodeName") == node
            return "" if own else f'node "{node}" can only delete pods with spec.nodeName set to itself'
        return f'unexpected operation "{a.operation}", node "{node}" can only create and delete mirror pods'

    async def _mirror_pod(self, pod: Object, node: str) -> str:
        spec, metadata = pod.get("spec", {}), pod.get("metadata", {})
        if MIRROR not in (metadata.get("annotations") or {}):
            return f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
        if spec.get("nodeName") != node:
            return f'node "{node}" can only create pods with spec.nodeName set to itself'
        owners = metadata.get("ownerReferences") or []
        if len(owners) > 1:
            return f'node "{node}" can only create pods with a single owner reference set to itself'
        if not owners:
            return f'node "{node}" can only create pods with an owner reference set to itself'
        owner = owners[0]
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            return f'node "{node}" can only create pods with an owner reference set to itself'
        if not owner.get("controller"):
            return f'node "{node}" can only create pods with a controller owner reference set to itself'
        if owner.get("blockOwnerDeletion"):
            return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
        record = await find(self._lookup, "nodes", "", node)
        if record is None:
            raise not_found("", "nodes", node)
        uid = record["metadata"].get("uid")
        if owner.get("uid") != uid:
            return f"node {node} UID mismatch: expected {owner.get('uid')} got {uid}"
        try:
            what = object_reference(spec)
        except ValueError as error:
            return f"error checking mirror pod for API references: {error}"
        return f'node "{node}" can not create pods that reference {what}' if what else ""

    # -- nodes --------------------------------------------------------------------------------------------------------
    async def _nodes(self, a: Attributes, node: str) -> str:
        name = a.name or _name(a.obj)
        if name != node:
            return f'node "{node}" is not allowed to modify node "{name}"'
        if why := _node_object(a, node):
            return why
        new = node_addresses.of_node(a.obj or {}) - node_addresses.of_node(a.old or {})
        if not new or (a.operation == "UPDATE" and a.subresource != "status"):
            return ""
        found = node_addresses.of_services(self._lookup, new) or await node_addresses.of_balancers(self._lookup, new)
        return f'node "{node}" is not allowed to set the address {found}' if found else ""

    # -- what else it may touch ---------------------------------------------------------------------------------------
    async def _claims(self, a: Attributes, node: str) -> str:
        if a.operation != "UPDATE" or a.subresource != "status":
            return f'node "{node}": can only update PVC status'
        new, old = _fixed_claim(a.obj or {}), _fixed_claim(a.old or {})
        if new != old:
            return f'node "{node}" is not allowed to update fields other than status.capacity and status.conditions'
        return ""

    async def _tokens(self, a: Attributes, node: str) -> str:
        if a.operation != "CREATE" or a.subresource != "token":
            return ""
        spec = (a.obj or {}).get("spec", {})
        ref = spec.get("boundObjectRef") or {}
        if ref.get("apiVersion") != "v1" or ref.get("kind") != "Pod" or not ref.get("name"):
            return "node requested token not bound to a pod"
        if not ref.get("uid"):
            return "node requested token with a pod binding without a uid"
        pod = await find(self._lookup, "pods", a.namespace, ref["name"])
        if pod is None:
            raise not_found("", "pods", ref["name"])
        if pod["metadata"].get("uid") != ref["uid"]:
            return f"the UID in the bound object reference ({ref['uid']}) {_SAME_UID}"
        if pod.get("spec", {}).get("nodeName") != node:
            return "node requested token bound to a pod scheduled on a different node"
        audiences = spec.get("audiences") or [""]
        if len(audiences) > 1:
            return "node may only request 0 or 1 audiences"
        if not await self._audience_allowed(a, pod, audiences[0]):
            what = f'audience "{audiences[0]}" not found in pod spec volume'
            return f"{what}, {a.user.name} is not authorized to request tokens for this audience"
        return ""

    async def _audience_allowed(self, a: Attributes, pod: Object, audience: str) -> bool:
        """Return whether a pod's volumes or their CSI drivers request an audience, or a role lets the node have it.

        "" is the API server's own, which a pod's volume requests by naming none.
        """
        for volume in pod.get("spec", {}).get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                token = source.get("serviceAccountToken")
                if token is not None and (token.get("audience") or "") == audience:
                    return True
            driver = self._csi_driver(a.namespace, pod, volume)
            requests = (driver or {}).get("spec", {}).get("tokenRequests") or ()
            if any((r.get("audience") or "") == audience for r in requests):
                return True
        verb = "request-serviceaccounts-token-audience"
        asked = AuthzAttributes(
            user=a.user, verb=verb, version="v1", resource=audience or "", namespace=a.namespace, name=a.name
        )
        return bool(audience) and await allowed(self._authorizer, asked)

    def _csi_driver(self, namespace: str, pod: Object, volume: Object) -> Object | None:
        name = (volume.get("csi") or {}).get("driver", "")
        if not name:
            claims = references.pod_claims({"metadata": pod["metadata"], "spec": {"volumes": [volume]}})
            for claim_name in claims:
                claim = self._lookup.get("persistentvolumeclaims", namespace, claim_name) or {}
                bound = self._lookup.get("persistentvolumes", "", claim.get("spec", {}).get("volumeName", "")) or {}
                name = (bound.get("spec", {}).get("csi") or {}).get("driver", "")
        return self._lookup.get("csidrivers.storage.k8s.io", "", name) if name else None

    async def _leases(self, a: Attributes, node: str) -> str:
        if a.namespace != LEASE_NAMESPACE:
            return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
        own = (a.name or _name(a.obj)) == node
        return "" if own else "can only access node lease with the same name as the requesting node"

    async def _csi_nodes(self, a: Attributes, node: str) -> str:
        own = (a.name or _name(a.obj)) == node
        return "" if own else "can only access CSINode with the same name as the requesting node"

    async def _slices(self, a: Attributes, node: str) -> str:
        verb = {"CREATE": "create", "UPDATE": "update", "DELETE": "delete"}.get(a.operation, "")
        for obj in (a.obj, a.old):
            if obj is not None and obj.get("spec", {}).get("nodeName") != node:
                return f"can only {verb} ResourceSlice with the same NodeName as the requesting node"
        return ""

    async def _requests(self, a: Attributes, node: str) -> str:
        spec = (a.obj or {}).get("spec", {})
        kubelet = (certificates.KUBELET_SERVING, certificates.KUBELET_CLIENT)
        if a.operation != "CREATE" or a.subresource or spec.get("signerName") not in kubelet:
            return ""
        try:
            name = (await requested_user(a, spec.get("request", ""))).name
        except ValueError as error:
            return f"unable to parse csr: {error}"
        return "" if name == a.user.name else f"can only create a node CSR with CN={a.user.name}"


def _node_object(a: Attributes, node: str) -> str:
    """Return why a node's change of its own object is refused, addresses apart."""
    new, old = a.obj or {}, a.old or {}
    labels = new.get("metadata", {}).get("labels")
    source, known = (each.get("spec", {}).get("configSource") for each in (new, old))
    # Not upstream's rule. Ranges come from a controller, for which a node that takes all of them leaves none.
    if any((new.get("spec") or {}).get(key) != (old.get("spec") or {}).get(key) for key in ("podCIDR", "podCIDRs")):
        return f'node "{node}" is not allowed to set podCIDR'
    if a.operation == "CREATE":
        if source is not None:
            return f'node "{node}" is not allowed to create pods with a non-nil configSource'
        bad = forbidden_changes(labels, None)
        if bad:
            return f'node "{node}" is not allowed to set the following labels: {", ".join(bad)}'
        if new.get("metadata", {}).get("ownerReferences"):
            return f'node "{node}" is not allowed to set ownerReferences'
    if a.operation == "UPDATE":
        if source is not None and source != known:
            return f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
        if (new.get("spec", {}).get("taints") or []) != (old.get("spec", {}).get("taints") or []):
            return f'node "{node}" is not allowed to modify taints'
        bad = forbidden_changes(labels, old.get("metadata", {}).get("labels"))
        if bad:
            return f'node "{node}" is not allowed to modify labels: {", ".join(bad)}'
        if _owners(new) != _owners(old):
            return f'node "{node}" is not allowed to modify ownerReferences'
    return ""


def _pod_addresses(lookup: Lookup, a: Attributes, node: str) -> str:
    """Return why new addresses of a pod and its node are refused."""
    new = node_addresses.of_pod(a.obj or {}) - node_addresses.of_pod(a.old or {})
    found = node_addresses.of_services(lookup, new)
    return f'node "{node}" is not allowed to set the address {found}' if found else ""


def _pod_status(a: Attributes, node: str) -> str:
    if a.operation != "UPDATE":
        return f'unexpected operation "{a.operation}"'
    new, old = a.obj or {}, a.old or {}
    if old.get("spec", {}).get("nodeName") != node:
        return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'  # noqa: S608
    if (new.get("metadata", {}).get("labels") or {}) != (old.get("metadata", {}).get("labels") or {}):
        return f'node "{node}" cannot update labels through pod status'
    # Whatever claims these name, the node may read (control/auth/node.py).
    for part, shown in (
        ("resourceClaimStatuses", "resource claim statuses"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
    ):
        if (new.get("status", {}).get(part) or None) != (old.get("status", {}).get(part) or None):
            return f'node "{node}" cannot update {shown}'
    return ""


def _fixed_claim(claim: Object) -> Object:
    """Return a claim without what the kubelet may change when it has grown the file system, and bookkeeping."""
    metadata = {k: v for k, v in claim.get("metadata", {}).items() if k not in ("managedFields", "resourceVersion")}
    free = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")
    status = {k: v for k, v in claim.get("status", {}).items() if k not in free}
    return claim | {"metadata": metadata, "status": status}


def _name(obj: Object | None) -> str:
    return str((obj or {}).get("metadata", {}).get("name", ""))


def _owners(obj: Object) -> list[Object]:
    return list(obj.get("metadata", {}).get("ownerReferences") or [])
