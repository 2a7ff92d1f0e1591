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
from kube.json_object import Object
from tests.support.lookup import Objects, attributes

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
        ("pods", pod(spec={"nodeName": "n1", "volumes": [token_volume("vault"), token_volume("")]})),
        ("pods", {"metadata": {"name": "bare", "namespace": "shop", "uid": "pod-3"}, "spec": {"nodeName": "n1"}}),
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
    source = {"audience": audience, "path": "t"} if audience else {"path": "t"}
    return {"name": "t", "projected": {"sources": [{"serviceAccountToken": source}]}}


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
    assert (await refusal("nodes", "CREATE", node(podCIDR="10.244.0.0/16"))).endswith("is not allowed to set podCIDR")
    assert (await refusal("nodes", "CREATE", bad)).endswith(
        "is not allowed to set the following labels: node-restriction.kubernetes.io/pci, "
        "node-role.kubernetes.io/control-plane"
    )


async def test_a_node_does_not_point_itself_at_a_configuration() -> None:
    source, other = ({"configMap": {"name": name, "namespace": "shop"}} for name in ("a", "b"))
    for subresource in ("", "status"):
        found = await refusal("nodes", "UPDATE", node(configSource=source), node(), subresource=subresource)
        assert found.endswith("is not allowed to update configSource to a new non-nil configSource")
        assert await refusal("nodes", "UPDATE", node(configSource=other), node(configSource=source))
        assert await refusal("nodes", "UPDATE", node(configSource=source), node(configSource=source)) == ""
        assert await refusal("nodes", "UPDATE", node(), node(configSource=source)) == ""
    found = await refusal("nodes", "CREATE", node(configSource=source))
    assert found.endswith('node "n1" is not allowed to create pods with a non-nil configSource')


@pytest.mark.parametrize(
    "new, old, why",
    [
        (node(), node(), ""),
        (node(labels={"a": "1"}), node(), ""),
        (node(podCIDRs=["10.244.0.0/16"]), node(), "is not allowed to set podCIDR"),
        (node(podCIDR="10.244.1.0/24"), node(podCIDR="10.244.1.0/24"), ""),
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
    ],
)
async def test_a_node_makes_mirror_pods_of_its_own_alone(made: Object, why: str) -> None:
    found = await refusal("pods", "CREATE", made)
    assert why in found and bool(found) is bool(why)


def projected(**source: Any) -> Object:
    return {"volumes": [{"name": "v", "projected": {"sources": [source]}}]}


def volume(**source: Any) -> Object:
    return {"volumes": [{"name": "v", **source}]}


def environment(kind: str, **variable: Any) -> Object:
    return {kind: [{"name": "c", **variable}]}


@pytest.mark.parametrize(
    "spec, what",
    [
        ({"serviceAccountName": "default"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "x"}]}, "secrets"),
        (environment("ephemeralContainers", envFrom=[{"secretRef": {"name": "x"}}]), "secrets"),
        (environment("initContainers", env=[{"valueFrom": {"secretKeyRef": {"name": "x"}}}]), "secrets"),
        (environment("containers", envFrom=[{"configMapRef": {"name": "x"}}]), "configmaps"),
        (volume(secret={"secretName": "x"}), "secrets"),
        (volume(secret={}), "secrets (via secret volumes)"),
        (volume(cinder={"secretRef": {"name": "x"}}), "secrets"),
        (volume(configMap={"name": "x"}), "configmaps"),
        (volume(configMap={}), "configmaps (via configmap volumes)"),
        (volume(csi={"driver": "d"}), "csidrivers (via CSI volumes)"),
        (volume(glusterfs={"endpoints": "x"}), "endpoints (via glusterFS volumes)"),
        (volume(persistentVolumeClaim={"claimName": "x"}), "persistentvolumeclaims"),
        (volume(ephemeral={}), "persistentvolumeclaims (via ephemeral volumes)"),
        (volume(azureFile={"shareName": "x"}), "secrets (via azureFile volumes)"),
        (projected(configMap={}), "configmaps (via projected volumes)"),
        (projected(secret={}), "secrets (via projected volumes)"),
        (projected(serviceAccountToken={"path": "t"}), "serviceaccounts (via projected volumes)"),
        (projected(clusterTrustBundle={"name": "x"}), "clustertrustbundles"),
        (projected(podCertificate={}), "podcertificates"),
        ({"resourceClaims": [{"name": "x"}]}, "resourceclaims"),
        (projected(downwardAPI={}), ""),
        (volume(hostPath={"path": "/"}), ""),
        (volume(emptyDir={}), ""),
        (volume(rbd={"image": "x"}), ""),
    ],
)
async def test_a_mirror_pod_refers_to_no_other_object(spec: Object, what: str) -> None:
    found = await refusal("pods", "CREATE", mirror(**spec))
    assert found == (f'pods "static" is forbidden: node "n1" can not create pods that reference {what}' if what else "")


async def test_volumes_of_a_mirror_pod_that_nobody_knows_are_refused() -> None:
    found = await refusal("pods", "CREATE", mirror(**volume(telepathy={})))
    assert 'error checking mirror pod for API references: unknown volume type for volume "v"' in found
    found = await refusal("pods", "CREATE", mirror(**projected(telepathy={})))
    assert 'error checking mirror pod for API references: unknown source for projected volume "v"' in found


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


MAPPING = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}


@pytest.mark.parametrize(
    "part, one, other",
    [
        ("resourceClaimStatuses", [{"name": "gpu"}], [{"name": "gpu", "resourceClaimName": "theirs"}]),
        ("resourceClaimStatuses", [{"name": "gpu"}], []),
        (
            "extendedResourceClaimStatus",
            {"resourceClaimName": "mine", "requestMappings": [MAPPING]},
            {"resourceClaimName": "theirs", "requestMappings": [MAPPING]},
        ),
        (
            "extendedResourceClaimStatus",
            {"resourceClaimName": "mine", "requestMappings": [MAPPING]},
            {"resourceClaimName": "mine", "requestMappings": [MAPPING | {"requestName": "other"}]},
        ),
    ],
)
async def test_a_node_may_not_set_the_resource_claims_of_its_pods(part: str, one: Any, other: Any) -> None:
    shown = {"resourceClaimStatuses": "claim statuses", "extendedResourceClaimStatus": "extended resource claim status"}
    values = (one, other, None)
    for new in values:
        for old in values:
            made, before = (pod(status={} if value is None else {part: value}) for value in (new, old))
            found = await refusal("pods", "UPDATE", made, before, subresource="status")
            assert found.endswith(shown[part]) if (new or None) != (old or None) else found == ""


async def test_a_node_evicts_its_own_pods_alone() -> None:
    for name, allowed in (("web", True), ("theirs", False)):
        eviction = {"metadata": {"name": name, "namespace": "shop"}}
        found = await refusal("pods", "CREATE", eviction, name=name, subresource="eviction")
        assert (found == "") is allowed
    for operation in ("UPDATE", "DELETE"):
        found = await refusal("pods", operation, {}, pod(), name="web", subresource="eviction")
        assert found.endswith(f"unexpected operation {operation}")
    assert "could not determine pod from request data" in await refusal("pods", "CREATE", {}, subresource="eviction")
    assert "unexpected pod subresource" in await refusal("pods", "CREATE", {}, name="web", subresource="binding")


@pytest.mark.parametrize(
    "ref, audiences, why",
    [
        ({"name": "web", "uid": "pod-1"}, [], ""),
        ({"name": "web", "uid": "pod-1"}, ["vault"], ""),
        ({"name": "web", "uid": "pod-1"}, ["elsewhere"], 'audience "elsewhere" not found in pod spec volume'),
        ({"name": "web", "uid": "pod-1"}, ["vault", "vault"], "node may only request 0 or 1 audiences"),
        ({"name": "bare", "uid": "pod-3"}, [], 'audience "" not found in pod spec volume'),
        ({}, [], "not bound to a pod"),
        ({"name": "web"}, [], "pod binding without a uid"),
        ({"name": "web", "uid": "old"}, [], "does not match the UID in record"),
        ({"name": "theirs", "uid": "pod-2"}, [], "scheduled on a different node"),
        ({"name": "gone", "uid": "x"}, [], 'pods "gone" not found'),
    ],
)
async def test_a_node_may_request_only_tokens_of_its_pods(ref: Object, audiences: list[str], why: str) -> None:
    bound = {"apiVersion": "v1", "kind": "Pod", **ref} if ref else {}
    requested = {
        "metadata": {"name": "sa", "namespace": "shop"},
        "spec": {"boundObjectRef": bound, "audiences": audiences},
    }
    found = await refusal("serviceaccounts", "CREATE", requested, name="sa", subresource="token")
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


def service(name: str, ip: str, addresses: list[str], **spec: Any) -> Object:
    points = {"ingress": [{"ip": each} for each in addresses]}
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"type": "LoadBalancer", "clusterIP": ip, "clusterIPs": [ip], **spec},
        "status": {"loadBalancer": points},
    }


def named(*addresses: str, kind: str = "InternalIP") -> Object:
    listed = [{"type": kind, "address": each} for each in addresses]
    return {"metadata": {"name": "n1"}, "spec": {}, "status": {"addresses": listed}}


SERVICES = (
    ("servicecidrs.networking.k8s.io", {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}}),
    ("servicecidrs.networking.k8s.io", {"metadata": {"name": "more"}, "spec": {"cidrs": ["fd00:10::/112"]}}),
    ("ipaddresses.networking.k8s.io", {"metadata": {"name": "172.30.0.7"}, "spec": {}}),
    ("services", service("metal", "10.96.5.1", ["203.0.113.9", "2001:db8::9"], loadBalancerClass="example.com/x")),
    ("services", service("built-in", "10.96.5.2", ["192.168.0.1"], externalIPs=["192.168.0.2"])),
)


@pytest.mark.parametrize(
    "address, why",
    [
        ("10.96.5.1", "10.96.5.1, which is in the range 10.96.0.0/12 of Services"),
        ("10.111.0.1", "10.111.0.1, which is in the range 10.96.0.0/12 of Services"),
        ("::ffff:10.96.5.1", "10.96.5.1, which is in the range 10.96.0.0/12 of Services"),
        ("fd00:10::1", "fd00:10::1, which is in the range fd00:10::/112 of Services"),
        ("172.30.0.7", "172.30.0.7, which is the cluster IP of a Service"),
        ("203.0.113.9", "203.0.113.9, which is a load balancer's address of Service shop/metal"),
        ("2001:0db8::0009", "2001:db8::9, which is a load balancer's address of Service shop/metal"),
        # The built-in load balancer gives Services nodes' addresses, and administrators external IPs.
        ("192.168.0.1", ""),
        ("192.168.0.2", ""),
        ("192.168.0.3", ""),
        ("not an address", ""),
    ],
)
async def test_a_node_names_no_address_of_a_service_as_its_own(address: str, why: str) -> None:
    plugin = NodeRestriction(Objects(*copy.deepcopy(SERVICES)), RBACAuthorizer())

    async def refused(*args: Any, **more: Any) -> str:
        try:
            await plugin.admit(attributes("nodes", *args, user=NODE, **more))
        except StatusError as error:
            assert error.code == 403
            return error.message
        return ""

    wanted = f'nodes "n1" is forbidden: node "n1" is not allowed to set the address {why}' if why else ""
    for kind in ("InternalIP", "ExternalIP"):
        given = named(address, kind=kind)
        assert await refused("CREATE", given) == wanted
        assert await refused("UPDATE", given, named("192.168.0.9"), subresource="status") == wanted
        # An address that it had, and what the server does not store, are refused to nobody.
        assert await refused("UPDATE", given, given, subresource="status") == ""
        assert await refused("UPDATE", given, named("192.168.0.9")) == ""
    assert await refused("UPDATE", named(address, kind="Hostname"), named(), subresource="status") == ""
    assert await refused("DELETE", None, named(address)) == ""


@pytest.mark.parametrize("field", ["podIP", "podIPs", "hostIP", "hostIPs"])
async def test_no_pod_has_an_address_of_a_service(field: str) -> None:
    plugin = NodeRestriction(Objects(*copy.deepcopy(SERVICES)), RBACAuthorizer())

    async def refused(address: str, old: Object) -> str:
        value = [{"ip": address}] if field.endswith("s") else address
        request = attributes("pods", "UPDATE", pod(status={field: value}), old, user=NODE, subresource="status")
        try:
            await plugin.admit(request)
        except StatusError as error:
            return error.message
        return ""

    assert await refused("10.244.1.2", pod()) == ""
    assert await refused("10.96.5.1", pod()) == (
        'pods "web" is forbidden: node "n1" is not allowed to set the address 10.96.5.1, '
        "which is in the range 10.96.0.0/12 of Services"
    )
    held = {"podIP": "10.96.5.1"}
    assert await refused("10.96.5.1", pod(status=held)) == ""
