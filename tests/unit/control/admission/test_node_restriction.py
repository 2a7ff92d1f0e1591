from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from control.admission.node_labels import is_forbidden
from control.admission.node_restriction import NodeRestriction
from control.auth.rbac import RBACAuthorizer
from control.auth.user import UserInfo
from kube import pki
from kube.errors import StatusError
from tests.support.lookup import Objects, attributes

Object = dict[str, Any]
NODE = UserInfo("system:node:n1", "", ("system:nodes", "system:authenticated"))
LEASES = "leases.coordination.k8s.io"
REQUESTS = "certificatesigningrequests.certificates.k8s.io"


def pod(node: str = "n1", **more: Any) -> Object:
    return {"metadata": {"name": "web", "namespace": "shop", "uid": "pod-1"}, "spec": {"nodeName": node}, **more}


def mirror(**spec: Any) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-1", "controller": True}
    metadata = {
        "name": "static",
        "namespace": "shop",
        "annotations": {"kubernetes.io/config.mirror": "hash"},
        "ownerReferences": [owner],
    }
    return {"metadata": metadata, "spec": {"nodeName": "n1", **spec}}


def node(name: str = "n1", labels: Object | None = None, **more: Any) -> Object:
    metadata = {"name": name, "labels": labels or {}, **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": more}


async def refusal(target: str, *args: Any, user: UserInfo = NODE, **more: Any) -> str:
    """Return why a node's request is refused, "" where it is not."""
    objects = Objects(
        ("nodes", {"metadata": {"name": "n1", "uid": "node-1"}}),
        ("pods", pod(spec={"nodeName": "n1", "volumes": [token_volume("vault")]})),
        ("pods", {"metadata": {"name": "theirs", "namespace": "shop", "uid": "pod-2"}, "spec": {"nodeName": "n2"}}),
    )
    plugin = NodeRestriction(objects, RBACAuthorizer())
    request = attributes(target, *args, user=user, **more)
    if not plugin.handles(request):
        return ""
    try:
        await plugin.admit(request)
    except StatusError as error:
        return error.message
    return ""


def token_volume(audience: str) -> Object:
    return {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": audience, "path": "t"}}]}}


@pytest.mark.parametrize(
    "label, forbidden",
    [
        ("anything", False),
        ("example.com/role", False),
        ("kubernetes.io/hostname", False),
        ("topology.kubernetes.io/zone", False),
        ("node.kubernetes.io/instance-type", False),
        ("kubelet.kubernetes.io/x", False),
        ("node-role.kubernetes.io/control-plane", True),
        ("node-restriction.kubernetes.io/x", True),
        ("a.node-restriction.kubernetes.io/x", True),
        ("example.k8s.io/x", True),
        ("kubernetes.io/other", True),
        ("notkubernetes.io/x", False),
    ],
)
def test_labels_that_isolate_are_not_a_nodes_to_set(label: str, forbidden: bool) -> None:
    assert is_forbidden(label) is forbidden


async def test_a_node_registers_itself_and_nobody_else() -> None:
    assert await refusal("nodes", "CREATE", node(labels={"kubernetes.io/hostname": "n1"})) == ""
    assert await refusal("nodes", "CREATE", node("n2")) == (
        'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
    )
    bad = node(labels={"node-role.kubernetes.io/control-plane": "", "node-restriction.kubernetes.io/pci": "y"})
    assert (await refusal("nodes", "CREATE", bad)).endswith(
        "is not allowed to set the following labels: node-restriction.kubernetes.io/pci, "
        "node-role.kubernetes.io/control-plane"
    )


@pytest.mark.parametrize(
    "new, old, why",
    [
        (node(), node(), ""),
        (node(labels={"a": "1"}), node(), ""),
        (node(taints=[{"key": "x"}]), node(), "is not allowed to modify taints"),
        (node(), node(taints=[{"key": "x"}]), "is not allowed to modify taints"),
        (
            node(labels={"node-role.kubernetes.io/x": ""}),
            node(),
            "is not allowed to modify labels: node-role.kubernetes.io/x",
        ),
        (
            node(),
            node(labels={"node-restriction.kubernetes.io/x": "y"}),
            "is not allowed to modify labels: node-restriction.kubernetes.io/x",
        ),
        (
            node(metadata={"ownerReferences": [{"kind": "Namespace", "name": "gone"}]}),
            node(),
            "is not allowed to modify ownerReferences",
        ),
    ],
)
async def test_old_and_new_nodes_are_compared(new: Object, old: Object, why: str) -> None:
    for subresource in ("", "status"):
        found = await refusal("nodes", "UPDATE", new, old, subresource=subresource)
        assert found.endswith(why) and bool(found) is bool(why)


def without(path: str) -> Object:
    made = copy.deepcopy(mirror())
    part: Any = made
    *parents, last = path.split(".")
    for name in parents:
        part = part[name]
    del part[last]
    return made


def owned(**change: Any) -> Object:
    made = copy.deepcopy(mirror())
    made["metadata"]["ownerReferences"][0] |= change
    return made


@pytest.mark.parametrize(
    "made, why",
    [
        (mirror(), ""),
        (without("metadata.annotations"), 'does not have "kubernetes.io/config.mirror" annotation'),
        (without("spec.nodeName"), "can only create pods with spec.nodeName set to itself"),
        (without("metadata.ownerReferences"), "with an owner reference set to itself"),
        (owned(name="n2"), "with an owner reference set to itself"),
        (owned(controller=False), "with a controller owner reference set to itself"),
        (owned(blockOwnerDeletion=True), "must not set blockOwnerDeletion"),
        (owned(uid="other"), "UID mismatch: expected other got node-1"),
        (mirror(serviceAccountName="default"), "can not create pods that reference a service account"),
        (mirror(volumes=[{"secret": {"secretName": "x"}}]), "can not create pods that reference secrets"),
        (mirror(volumes=[{"configMap": {"name": "x"}}]), "can not create pods that reference configmaps"),
        (
            mirror(volumes=[{"persistentVolumeClaim": {"claimName": "x"}}]),
            "can not create pods that reference persistentvolumeclaims",
        ),
        (
            mirror(volumes=[{"projected": {"sources": [{"clusterTrustBundle": {"name": "x"}}]}}]),
            "can not create pods that reference clustertrustbundles",
        ),
        (mirror(resourceClaims=[{"name": "x"}]), "can not create pods that reference resourceclaims"),
    ],
)
async def test_a_node_makes_mirror_pods_of_its_own_alone(made: Object, why: str) -> None:
    found = await refusal("pods", "CREATE", made)
    assert why in found and bool(found) is bool(why)


async def test_a_node_ends_and_reports_on_its_own_pods_alone() -> None:
    assert await refusal("pods", "DELETE", None, pod()) == ""
    assert "can only delete pods with spec.nodeName" in await refusal("pods", "DELETE", None, pod("n2"))
    assert "can only create and delete mirror pods" in await refusal("pods", "UPDATE", pod(), pod())
    new = pod(status={"phase": "Running"})
    assert await refusal("pods", "UPDATE", new, pod(), subresource="status") == ""
    assert "can only update pod status" in await refusal("pods", "UPDATE", new, pod("n2"), subresource="status")
    labelled = pod()
    labelled["metadata"]["labels"] = {"app": "x"}
    found = await refusal("pods", "UPDATE", labelled, pod(), subresource="status")
    assert "cannot update labels through pod status" in found
    claims = pod(status={"resourceClaimStatuses": [{"name": "gpu"}]})
    assert "cannot update resource claim statuses" in await refusal(
        "pods", "UPDATE", claims, pod(), subresource="status"
    )


async def test_a_node_evicts_its_own_pods_alone() -> None:
    for name, allowed in (("web", True), ("theirs", False)):
        eviction = {"metadata": {"name": name, "namespace": "shop"}}
        found = await refusal("pods", "CREATE", eviction, name=name, subresource="eviction")
        assert (found == "") is allowed
    assert "unexpected pod subresource" in await refusal("pods", "CREATE", {}, name="web", subresource="binding")


@pytest.mark.parametrize(
    "ref, audiences, why",
    [
        ({"name": "web", "uid": "pod-1"}, [], ""),
        ({"name": "web", "uid": "pod-1"}, ["vault"], ""),
        ({"name": "web", "uid": "pod-1"}, ["elsewhere"], 'audience "elsewhere" not found in pod spec volume'),
        ({}, [], "not bound to a pod"),
        ({"name": "web"}, [], "pod binding without a uid"),
        ({"name": "web", "uid": "old"}, [], "does not match the UID in record"),
        ({"name": "theirs", "uid": "pod-2"}, [], "scheduled on a different node"),
        ({"name": "gone", "uid": "x"}, [], 'pods "gone" not found'),
    ],
)
async def test_a_node_asks_for_tokens_of_its_pods_alone(ref: Object, audiences: list[str], why: str) -> None:
    bound = {"apiVersion": "v1", "kind": "Pod", **ref} if ref else {}
    asked = {"metadata": {"name": "sa", "namespace": "shop"}, "spec": {"boundObjectRef": bound, "audiences": audiences}}
    found = await refusal("serviceaccounts", "CREATE", asked, name="sa", subresource="token")
    assert why in found and bool(found) is bool(why)


async def test_a_node_keeps_its_own_lease() -> None:
    for namespace, name, allowed in (
        ("kube-node-lease", "n1", True),
        ("kube-node-lease", "n2", False),
        ("kube-system", "n1", False),
    ):
        lease = {"metadata": {"name": name, "namespace": namespace}}
        assert (await refusal(LEASES, "CREATE", lease) == "") is allowed
        assert (await refusal(LEASES, "UPDATE", lease, lease) == "") is allowed


async def test_a_node_changes_of_a_claim_its_size_alone() -> None:
    old = {"metadata": {"name": "d", "namespace": "shop"}, "status": {"phase": "Bound"}}
    grown = old | {"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
    lost = old | {"status": {"phase": "Lost"}}
    assert await refusal("persistentvolumeclaims", "UPDATE", grown, old, subresource="status") == ""
    assert await refusal("persistentvolumeclaims", "UPDATE", lost, old, subresource="status")
    assert await refusal("persistentvolumeclaims", "UPDATE", grown, old)


async def test_a_node_requests_certificates_in_its_own_name() -> None:
    for name, allowed in (("n1", True), ("n2", False)):
        pem = pki.kubelet_client_request(pki.new_key(), name)
        spec = {
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "request": base64.b64encode(pem).decode(),
        }
        found = await refusal(REQUESTS, "CREATE", {"metadata": {"name": "csr"}, "spec": spec})
        assert (found == "") is allowed


async def test_others_are_not_its_business_and_nameless_nodes_are_refused() -> None:
    jane = UserInfo("jane", "", ("system:authenticated",))
    assert await refusal("nodes", "CREATE", node("n2"), user=jane) == ""
    member = UserInfo("somebody", "", ("system:nodes",))
    assert await refusal("nodes", "CREATE", node("n2"), user=member) == ""
    nameless = UserInfo("system:node:", "", ("system:nodes",))
    assert "could not determine node from user" in await refusal("nodes", "CREATE", node(), user=nameless)
