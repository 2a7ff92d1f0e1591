from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.auth.node import NodeAuthorizer
from control.auth.user import AuthzAttributes, Decision, UserInfo
from control.storage.lazy_json import LAZY_BYTES, lazy_dict

NODE = UserInfo("system:node:n1", "", ("system:nodes", "system:authenticated"))


def pod(name: str, node: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {"nodeName": node, "serviceAccountName": f"sa-{name}", **spec},
    }


def volume(name: str, claim: str) -> dict[str, Any]:
    secret = {"namespace": "storage", "name": "csi-secret"}
    ref = {"namespace": "shop", "name": claim}
    csi = {
        "driver": "d",
        "nodePublishSecretRef": secret,
        "nodeStageSecretRef": secret | {"name": "stage-secret"},
        "nodeExpandSecretRef": secret | {"name": "expand-secret"},
        "controllerPublishSecretRef": secret | {"name": "attacher-secret"},
        "controllerExpandSecretRef": secret | {"name": "resizer-secret"},
    }
    return {"metadata": {"name": name}, "spec": {"claimRef": ref, "csi": csi}}


def graph() -> NodeAuthorizer:
    found = NodeAuthorizer()
    mine = pod(
        "mine",
        "n1",
        imagePullSecrets=[{"name": "pull"}],
        containers=[
            {
                "name": "c",
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env-secret", "key": "k"}}}],
                "envFrom": [{"configMapRef": {"name": "env-map"}}, {"secretRef": {"name": "env-from"}}],
            }
        ],
        initContainers=[{"name": "i", "envFrom": [{"secretRef": {"name": "init-secret"}}]}],
        volumes=[
            {"name": "a", "secret": {"secretName": "volume-secret"}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "d", "ephemeral": {}},
            {"name": "e", "cinder": {"volumeID": "x", "secretRef": {"name": "cinder-secret"}}},
        ],
    )
    found.replaced("pods", [mine, pod("theirs", "n2", imagePullSecrets=[{"name": "other"}]), pod("unbound", "")])
    found.replaced("persistentvolumes", [volume("pv-1", "data"), volume("pv-2", "other-data")])
    attachment = {"metadata": {"name": "va-1"}, "spec": {"nodeName": "n1"}}
    found.replaced("volumeattachments.storage.k8s.io", [attachment])
    found.changed(
        "resourceslices.resource.k8s.io", "ADDED", {"metadata": {"name": "slice-1"}, "spec": {"nodeName": "n1"}}
    )
    return found


def may(authorizer: NodeAuthorizer, request: str, selector: str = "", user: UserInfo = NODE) -> bool:
    """Ask `verb resource[.group][/subresource] [namespace/]name`."""
    verb, what, *rest = request.split(" ")
    resource, _, subresource = what.partition("/")
    resource, _, group = resource.partition(".")
    namespace, _, name = (rest[0] if rest else "/").rpartition("/")
    requested = AuthzAttributes(
        user=user,
        verb=verb,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
        field_selector=selector,
    )
    return authorizer.authorize(requested)[0] is Decision.ALLOW


@pytest.mark.parametrize(
    "request_, allowed",
    [
        ("get secrets shop/pull", True),
        ("get secrets shop/env-secret", True),
        ("get secrets shop/env-from", True),
        ("get secrets shop/init-secret", True),
        ("watch secrets shop/volume-secret", True),
        ("get secrets shop/other", False),
        ("get secrets elsewhere/pull", False),
        ("list secrets shop/", False),
        ("update secrets shop/pull", False),
        ("get secrets storage/csi-secret", True),
        ("get secrets storage/stage-secret", True),
        ("get secrets storage/expand-secret", True),
        ("get secrets storage/attacher-secret", False),
        ("get secrets storage/resizer-secret", False),
        ("get secrets shop/cinder-secret", True),
        ("list secrets csi-secret", False),
        ("get secrets/status shop/pull", False),
        ("get configmaps shop/env-map", True),
        ("list configmaps shop/kube-root-ca.crt", True),
        ("get configmaps shop/other", False),
        ("get persistentvolumeclaims shop/data", True),
        ("get persistentvolumeclaims shop/mine-d", True),
        ("patch persistentvolumeclaims/status shop/data", True),
        ("get persistentvolumeclaims/status shop/data", False),
        ("update persistentvolumeclaims shop/data", False),
        ("get persistentvolumes pv-1", True),
        ("get persistentvolumes pv-2", False),
        ("list persistentvolumes", False),
        ("get volumeattachments.storage.k8s.io va-1", True),
        ("get volumeattachments.storage.k8s.io va-2", False),
        ("create serviceaccounts/token shop/sa-mine", True),
        ("create serviceaccounts/token shop/sa-theirs", False),
        ("get serviceaccounts shop/sa-mine", True),
        ("get serviceaccounts shop/default", False),
        ("get leases.coordination.k8s.io kube-node-lease/n1", True),
        ("update leases.coordination.k8s.io kube-node-lease/n2", False),
        ("create leases.coordination.k8s.io kube-node-lease/", True),
        ("get leases.coordination.k8s.io kube-system/n1", False),
        ("list leases.coordination.k8s.io kube-node-lease/", False),
        ("update csinodes.storage.k8s.io n1", True),
        ("update csinodes.storage.k8s.io n2", False),
        ("get nodes n1", True),
        ("get nodes n2", False),
        ("list nodes", False),
        ("create nodes", True),
        ("patch nodes/status n1", True),
        ("delete nodes n1", False),
        ("get pods shop/mine", True),
        ("get pods shop/theirs", False),
        ("list pods", False),
        ("patch pods/status shop/mine", True),
        ("create pods/eviction shop/mine", True),
        ("create pods/exec shop/mine", False),
        ("create pods shop/", True),
        ("update pods shop/mine", False),
        ("create events shop/", True),
        ("list services", True),
        ("create tokenreviews.authentication.k8s.io", True),
        ("create certificatesigningrequests.certificates.k8s.io", True),
        ("create deployments.apps shop/", False),
        ("get resourceslices.resource.k8s.io slice-1", True),
        ("get resourceslices.resource.k8s.io slice-2", False),
    ],
)
def test_a_node_may_what_its_pods_need(request_: str, allowed: bool) -> None:
    assert may(graph(), request_) is allowed


@pytest.mark.parametrize(
    "request_, selector, allowed",
    [
        ("list pods", "spec.nodeName=n1", True),
        ("watch pods", "spec.nodeName=n1", True),
        ("list pods", "spec.nodeName==n1,status.phase!=Failed", True),
        ("list pods", "spec.nodeName=n2", False),
        ("list pods", "spec.nodeName!=n1", False),
        # The name that a selector asks for is the request's own by now (RequestInfo).
        ("watch nodes n1", "metadata.name=n1", True),
        ("watch nodes", "metadata.name=n1", False),
        ("watch nodes n2", "metadata.name=n2", False),
        ("list secrets shop/pull", "metadata.name=pull", True),
        ("list secrets shop/", "metadata.name=pull", False),
        ("list secrets shop/other", "metadata.name=other", False),
        ("list pods", r"metadata.name=a\,spec.nodeName=n1", False),
        ("list pods", "spec.nodeName=n2,spec.nodeName=n1", True),  # both have to hold, which is so of no pod
        ("deletecollection resourceslices.resource.k8s.io", "spec.nodeName=n1", True),
        ("list resourceslices.resource.k8s.io", "", False),
    ],
)
def test_lists_are_narrowed_to_the_node(request_: str, selector: str, allowed: bool) -> None:
    assert may(graph(), request_, selector) is allowed


def test_a_pod_that_leaves_takes_its_paths_with_it() -> None:
    found = graph()
    found.changed("pods", "DELETED", pod("mine", "n1"))
    for request in ("get secrets shop/pull", "get persistentvolumes pv-1", "create serviceaccounts/token shop/sa-mine"):
        assert not may(found, request)


def test_a_pod_without_an_account_opens_none() -> None:
    found = NodeAuthorizer()
    bare = pod("bare", "n1")
    del bare["spec"]["serviceAccountName"]
    found.changed("pods", "ADDED", bare)
    assert not may(found, "create serviceaccounts/token shop/default")


@pytest.mark.parametrize(
    "status",
    [
        {"resourceClaimStatuses": [{"name": "other", "resourceClaimName": "gpus"}]},
        {"resourceClaimStatuses": [{"name": "fixed", "resourceClaimName": "gpus"}]},
        {"resourceClaimStatuses": [{"name": "c"}]},
    ],
)
def test_a_claims_status_counts_only_for_the_template_that_the_pod_names(status: dict[str, Any]) -> None:
    found = NodeAuthorizer()
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}, {"name": "fixed", "resourceClaimName": "one"}]
    found.changed("pods", "ADDED", pod("worker", "n1", resourceClaims=claims) | {"status": status})
    assert not may(found, "get resourceclaims.resource.k8s.io shop/gpus")
    assert may(found, "get resourceclaims.resource.k8s.io shop/one")


def test_binding_a_pod_opens_its_paths() -> None:
    found = graph()
    assert not may(found, "create serviceaccounts/token shop/sa-unbound")
    found.changed("pods", "MODIFIED", pod("unbound", "n1"))
    assert may(found, "create serviceaccounts/token shop/sa-unbound")


def test_a_mirror_pod_opens_nothing_but_itself() -> None:
    found = NodeAuthorizer()
    mirror = pod("static", "n1", imagePullSecrets=[{"name": "admin-token"}])
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    found.changed("pods", "ADDED", mirror)
    assert may(found, "get pods shop/static")
    assert not may(found, "get secrets shop/admin-token")
    assert not may(found, "create serviceaccounts/token shop/sa-static")


def test_only_kubelets_are_nodes() -> None:
    for user in (UserInfo("system:node:n1"), UserInfo("n1", "", ("system:nodes",)), UserInfo("jane")):
        assert not may(graph(), "get secrets shop/pull", user=user)


def test_a_refusal_gives_its_reason() -> None:
    requested = AuthzAttributes(user=NODE, verb="get", version="v1", resource="secrets", namespace="shop", name="other")
    assert graph().authorize(requested) == (
        Decision.NO_OPINION,
        "no relationship found between node 'n1' and this object",
    )


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "gpus"}]}, {}),
        (
            {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}]},
            {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "gpus"}]},
        ),
        ({}, {"extendedResourceClaimStatus": {"resourceClaimName": "gpus"}}),
    ],
)
def test_a_node_reads_the_claims_of_its_pods_however_they_came_to_them(
    spec: dict[str, Any], status: dict[str, Any]
) -> None:
    found = graph()
    user = pod("worker", "n1", **spec)
    assert not may(found, "get resourceclaims.resource.k8s.io shop/gpus")
    found.changed("pods", "ADDED", user | {"status": status})
    assert may(found, "get resourceclaims.resource.k8s.io shop/gpus")
    assert not may(found, "get resourceclaims.resource.k8s.io shop/other")


def test_what_many_pods_of_a_node_refer_to_is_found_without_a_step_for_each() -> None:
    found = NodeAuthorizer()
    many = [pod(f"p{n}", f"n{n % 3}", imagePullSecrets=[{"name": "pull"}]) for n in range(300)]
    found.replaced("pods", many)
    assert found._users["secrets", "shop", "pull"] == {"n0": 100, "n1": 100, "n2": 100}
    for each in many:
        if each["spec"]["nodeName"] != "n2":
            assert may(found, "get secrets shop/pull")
            found.changed("pods", "DELETED", each)
    assert not may(found, "get secrets shop/pull") and found._users["secrets", "shop", "pull"] == {"n2": 100}
    found.replaced("persistentvolumes", [volume("pv-1", "data")])
    for each in many:
        found.changed("pods", "DELETED", each)
    found.changed("persistentvolumes", "DELETED", volume("pv-1", "data"))
    assert not found._users and not found._secret_volumes


def test_a_large_pod_is_read_without_its_labels_and_affinity() -> None:
    long = {f"k{number}": "" for number in range(LAZY_BYTES)}
    found = pod("large", "n1", imagePullSecrets=[{"name": "pull"}], nodeSelector=long)
    found["metadata"]["labels"] = long
    lazy = lazy_dict(msgspec.json.encode(found))
    authorizer, whole = NodeAuthorizer(), NodeAuthorizer()
    authorizer.changed("pods", "ADDED", lazy)
    whole.changed("pods", "ADDED", found)
    assert authorizer._pods == whole._pods and may(authorizer, "get secrets shop/pull")
    undecoded = [
        dict.__getitem__(lazy[part], name) for part, name in (("metadata", "labels"), ("spec", "nodeSelector"))
    ]
    assert [type(value) for value in undecoded] == [msgspec.Raw, msgspec.Raw]
