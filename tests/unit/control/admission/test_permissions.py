from __future__ import annotations

import base64
from typing import Any

import pytest

from control.admission.certificates import CertificateApproval, CertificateSigning, CertificateSubjectRestriction
from control.admission.chain import Chain
from control.admission.default_ingress_class import DefaultIngressClass
from control.admission.default_storage_class import DefaultStorageClass
from control.admission.deny_external_ips import DenyServiceExternalIPs
from control.admission.owner_references import OwnerReferencesPermissionEnforcement
from control.admission.plugins import PluginContext, make
from control.admission.rbac_escalation import RBACEscalation
from control.admission.storage_protection import StorageObjectInUseProtection
from control.admission.volume_resize import PersistentVolumeClaimResize
from control.admission.webhooks.caller import Caller
from control.admission.webhooks.invoker import WebhookInvoker
from control.auth.bootstrap_policy import rule
from control.auth.rbac import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, RBACAuthorizer
from control.auth.user import AuthzAttributes, Decision, UserInfo
from control.event_loop import offload
from control.interfaces.admission import Attributes, Plugin
from kube import pki, resources
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.lookup import ADMIN, Objects, attributes

JANE = UserInfo("jane", "", ("dev", "system:authenticated"))
REQUESTS = "certificatesigningrequests.certificates.k8s.io"


def holding(*rules: str) -> RBACAuthorizer:
    """Return an authorizer under which jane has some rules, and other roles exist."""
    rbac = RBACAuthorizer()
    for name, granted in (("janes", rules), ("power", ("* * *",)), ("reader", ("get core pods",))):
        rbac.changed(CLUSTER_ROLES, "ADDED", {"metadata": {"name": name}, "rules": [rule(r) for r in granted]})
    bound = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "janes"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }
    rbac.changed(CLUSTER_BINDINGS, "ADDED", bound)
    return rbac


def invoker(objects: Objects) -> WebhookInvoker:
    return WebhookInvoker(objects, Caller(objects), holding())


async def refusal(plugin: Plugin, request: Attributes) -> str:
    try:
        if plugin.handles(request):
            await plugin.admit(request)
            await plugin.validate(request)
    except StatusError as error:
        return error.message
    return ""


def role(*rules: str, **more: Any) -> Object:
    return {"metadata": {"name": "new", "namespace": "shop"}, "rules": [rule(r) for r in rules], **more}


def binding(kind: str, name: str) -> Object:
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    return {"metadata": {"name": "new", "namespace": "shop"}, "roleRef": ref, "subjects": []}


# -- RBAC escalation --------------------------------------------------------------------------------------------------
async def test_nobody_writes_a_role_that_gives_more_than_they_have() -> None:
    rbac = holding("get core pods")
    plugin = RBACEscalation(rbac, rbac)
    assert await refusal(plugin, attributes(ROLES, obj=role("get core pods"), user=JANE)) == ""
    assert await refusal(plugin, attributes(ROLES, obj=role("get,list core pods,secrets"), user=JANE)) == (
        'roles.rbac.authorization.k8s.io "new" is forbidden: user "jane" (groups=["dev" "system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )


async def test_escalate_and_system_masters_are_the_ways_around() -> None:
    rbac = holding("escalate rbac.authorization.k8s.io roles new")
    plugin = RBACEscalation(rbac, rbac)
    update = attributes(ROLES, "UPDATE", role("* * *"), role(), user=JANE)
    assert await refusal(plugin, update) == ""
    assert "not currently held" in await refusal(plugin, attributes(ROLES, obj=role("* * *"), user=JANE)), "no name"
    other = role("* * *") | {"metadata": {"name": "other", "namespace": "shop"}}
    before = role() | {"metadata": other["metadata"]}
    assert "not currently held" in await refusal(plugin, attributes(ROLES, "UPDATE", other, before, user=JANE))
    any_name = holding("escalate rbac.authorization.k8s.io roles")
    assert await refusal(RBACEscalation(any_name, any_name), attributes(ROLES, obj=other, user=JANE)) == ""
    assert await refusal(plugin, attributes(ROLES, obj=other, user=ADMIN)) == ""


async def test_a_check_of_many_rules_leaves_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    run = offload.run

    async def sized(user: str, size: int, work: Any, *args: Any) -> Any:
        sizes.append(size)
        return await run(user, size, work, *args)

    monkeypatch.setattr(offload, "run", sized)
    rbac = holding("get core pods")
    plugin = RBACEscalation(rbac, rbac)
    small, many = role("get core pods"), ["get core pods " + ",".join(map(str, range(100)))] * 400
    assert await refusal(plugin, attributes(ROLES, obj=small, user=JANE)) == ""
    assert await refusal(plugin, attributes(ROLES, obj=role(*many), user=JANE)) == ""
    assert await refusal(plugin, attributes(ROLES, "UPDATE", role(*many), small, user=JANE)) == ""
    held = {"metadata": {"name": "many"}, "rules": [rule(text) for text in many]}
    rbac.changed(CLUSTER_ROLES, "ADDED", held)
    assert await refusal(plugin, attributes(BINDINGS, obj=binding("ClusterRole", "many"), user=JANE)) == ""
    assert [size >= offload.LARGE for size in sizes] == [False, True, True, True, True]


def changed(obj: Object, **metadata: Any) -> Object:
    return obj | {"metadata": obj["metadata"] | metadata}


async def test_what_the_garbage_collector_changes_is_let_through() -> None:
    rbac = holding()
    plugin = RBACEscalation(rbac, rbac)
    for target, old in (
        (ROLES, role("* * *")),
        (CLUSTER_ROLES, AGGREGATED),
        (BINDINGS, binding("ClusterRole", "power")),
    ):
        old = changed(old, finalizers=["foregroundDeletion"], ownerReferences=[{"uid": "1"}], resourceVersion="7")
        for new in (
            old,
            changed(old, labels={}, annotations=None),
            changed(old, finalizers=[], ownerReferences=[], managedFields=[{"manager": "m"}], resourceVersion=""),
        ):
            assert await refusal(plugin, attributes(target, "UPDATE", new, old, user=JANE)) == ""
    assert await refusal(plugin, attributes(ROLES, "UPDATE", role("* * *", "* *"), role("* * *"), user=JANE))


@pytest.mark.parametrize("held, allowed", [("get core pods", False), ("get,bind * *", False), ("get,list * *", True)])
async def test_a_label_counts_as_a_grant_since_it_may_make_a_role_part_of_another(held: str, allowed: bool) -> None:
    rbac = holding(held)
    plugin = RBACEscalation(rbac, rbac)
    for target, old in (
        (CLUSTER_ROLES, role("list * *")),
        (ROLES, role("list * *")),
    ):
        for metadata in ({"labels": {"a": "b"}}, {"labels": {"a": ""}}, {"annotations": {"a": "b"}}):
            request = attributes(target, "UPDATE", changed(old, **metadata), old, user=JANE)
            assert ("not currently held" not in await refusal(plugin, request)) is allowed
    old = binding("ClusterRole", "power")
    request = attributes(CLUSTER_BINDINGS, "UPDATE", changed(old, labels={"a": "b"}), old, user=JANE)
    assert ("not currently held" not in await refusal(plugin, request)) is ("bind" in held)


AGGREGATED = {
    "metadata": {"name": "new"},
    "rules": [],
    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
}


@pytest.mark.parametrize(
    "new, old",
    [
        (AGGREGATED, None),
        (AGGREGATED, role()),
        (changed(AGGREGATED, labels={"to": "admin"}), AGGREGATED),
        (AGGREGATED | {"aggregationRule": None}, AGGREGATED),
        (AGGREGATED | {"rules": [rule("get core pods")]}, AGGREGATED),
    ],
)
async def test_whoever_touches_an_aggregation_rule_must_have_everything(new: Object, old: Object | None) -> None:
    request = attributes(CLUSTER_ROLES, "UPDATE" if old else "CREATE", new, old, user=JANE)
    some, everything = holding("get,list * *", "* *"), holding("* * *", "* *")
    assert await refusal(RBACEscalation(some, some), request) == (
        'clusterroles.rbac.authorization.k8s.io "new" is forbidden: '
        "must have cluster-admin privileges to use the aggregationRule"
    )
    assert await refusal(RBACEscalation(everything, everything), request) == ""


@pytest.mark.parametrize(
    "held, ref, why",
    [
        (["get core pods"], ("ClusterRole", "reader"), ""),
        (["get core pods"], ("ClusterRole", "power"), "is attempting to grant RBAC permissions not currently held"),
        (["bind rbac.authorization.k8s.io clusterroles power"], ("ClusterRole", "power"), ""),
        (["bind rbac.authorization.k8s.io clusterroles reader"], ("ClusterRole", "power"), "not currently held"),
        (["* * *"], ("Role", "gone"), ""),
        (["get core pods"], ("Role", "gone"), 'roles.rbac.authorization.k8s.io "gone" not found'),
    ],
)
async def test_nobody_binds_a_role_that_has_more_than_they(held: list[str], ref: tuple[str, str], why: str) -> None:
    rbac = holding(*held)
    for target in (BINDINGS, CLUSTER_BINDINGS):
        found = await refusal(RBACEscalation(rbac, rbac), attributes(target, obj=binding(*ref), user=JANE))
        assert why in found and bool(found) is bool(why)


# -- certificates -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "held, allowed",
    [
        ("approve certificates.k8s.io signers kubernetes.io/kubelet-serving", True),
        ("approve certificates.k8s.io signers kubernetes.io/*", True),
        ("approve certificates.k8s.io signers example.com/*", False),
        ("sign certificates.k8s.io signers kubernetes.io/kubelet-serving", False),
    ],
)
async def test_approval_is_by_signer(held: str, allowed: bool) -> None:
    csr = {"metadata": {"name": "c"}, "spec": {"signerName": "kubernetes.io/kubelet-serving"}}
    request = attributes(REQUESTS, "UPDATE", csr, csr, user=JANE, subresource="approval")
    assert (await refusal(CertificateApproval(holding(held)), request) == "") is allowed


async def test_issuing_a_certificate_takes_the_verb_sign() -> None:
    old = {"metadata": {"name": "c"}, "spec": {"signerName": "example.com/s"}}
    issued = old | {"status": {"certificate": "x"}}
    request = attributes(REQUESTS, "UPDATE", issued, old, user=JANE, subresource="status")
    assert await refusal(CertificateSigning(holding()), request) == (
        f'{REQUESTS} "c" is forbidden: user not permitted to sign requests with signerName "example.com/s"'
    )
    assert await refusal(CertificateSigning(holding("sign certificates.k8s.io signers example.com/s")), request) == ""
    same = attributes(REQUESTS, "UPDATE", issued, issued, user=JANE, subresource="status")
    assert await refusal(CertificateSigning(holding()), same) == ""


async def test_nobody_may_request_a_certificate_of_system_masters() -> None:
    for group, allowed in (
        ("dev", True),
        ("system:masters", False),
        (" system:masters", False),
        ("system:masters\t", False),
    ):
        pem = pki.new_request(pki.new_key(), "jane", (group,))
        spec = {"signerName": "kubernetes.io/kube-apiserver-client", "request": base64.b64encode(pem).decode()}
        request = attributes(REQUESTS, obj={"metadata": {"name": "c"}, "spec": spec}, user=JANE)
        assert (await refusal(CertificateSubjectRestriction(), request) == "") is allowed


# -- services, storage, ingresses -------------------------------------------------------------------------------------
async def test_external_addresses_are_denied_but_may_stay_and_go() -> None:
    def service(*addresses: str) -> Object:
        return {"metadata": {"name": "s", "namespace": "shop"}, "spec": {"externalIPs": list(addresses)}}

    plugin = DenyServiceExternalIPs()
    assert "external IPs is denied" in await refusal(plugin, attributes("services", obj=service("8.8.8.8")))
    assert not await refusal(
        plugin, attributes("services", "UPDATE", service("1.1.1.1"), service("1.1.1.1", "8.8.8.8"))
    )
    assert await refusal(plugin, attributes("services", "UPDATE", service("1.1.1.1", "9.9.9.9"), service("1.1.1.1")))


def marked(name: str, annotation: str, when: str = "", **more: Any) -> Object:
    metadata = {"name": name, "creationTimestamp": when, "annotations": {annotation: "true"} if annotation else {}}
    return {"metadata": metadata, **more}


async def test_a_claim_gets_the_newest_default_class_unless_it_names_one() -> None:
    default = "storageclass.kubernetes.io/is-default-class"
    target = "storageclasses.storage.k8s.io"
    objects = Objects(
        (target, marked("old", default, "2026-01-01T00:00:00Z")),
        (target, marked("new", default, "2026-02-01T00:00:00Z")),
        (target, marked("plain", "", "2026-03-01T00:00:00Z")),
    )
    for given, expected in ((None, "new"), ("", ""), ("plain", "plain")):
        claim: Object = {"metadata": {"name": "d", "namespace": "shop"}, "spec": {}}
        if given is not None:
            claim["spec"]["storageClassName"] = given
        await refusal(DefaultStorageClass(objects), attributes("persistentvolumeclaims", obj=claim))
        assert claim["spec"]["storageClassName"] == expected


async def test_an_ingress_gets_the_default_class() -> None:
    target = "ingressclasses.networking.k8s.io"
    objects = Objects((target, marked("nginx", "ingressclass.kubernetes.io/is-default-class")))
    ingress: Object = {"metadata": {"name": "i", "namespace": "shop"}, "spec": {}}
    await refusal(DefaultIngressClass(objects), attributes("ingresses.networking.k8s.io", obj=ingress))
    assert ingress["spec"]["ingressClassName"] == "nginx"


async def test_volumes_and_claims_get_their_finalizers_once() -> None:
    for target, finalizer in (
        ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
        ("persistentvolumes", "kubernetes.io/pv-protection"),
    ):
        obj: Object = {"metadata": {"name": "x", "namespace": "shop"}}
        for _ in range(2):
            await refusal(StorageObjectInUseProtection(), attributes(target, obj=obj))
        assert obj["metadata"]["finalizers"] == [finalizer]


async def test_a_claim_grows_where_its_class_allows_it() -> None:
    target = "storageclasses.storage.k8s.io"
    objects = Objects((target, marked("grows", "", allowVolumeExpansion=True)), (target, marked("stays", "")))

    def claim(size: str, storage_class: str, phase: str = "Bound") -> Object:
        spec = {"storageClassName": storage_class, "resources": {"requests": {"storage": size}}}
        return {"metadata": {"name": "d", "namespace": "shop"}, "spec": spec, "status": {"phase": phase}}

    async def resized(storage_class: str, size: str = "2Gi", phase: str = "Bound") -> str:
        new, old = claim(size, storage_class), claim("1Gi", storage_class, phase)
        return await refusal(
            PersistentVolumeClaimResize(objects), attributes("persistentvolumeclaims", "UPDATE", new, old)
        )

    assert await resized("grows") == "" and await resized("stays", "1Gi") == ""
    assert "must support resize" in await resized("stays")
    assert "Only bound" in await resized("grows", phase="Pending")

    old, new = claim("1Gi", "grows"), claim("2Gi", "grows")
    for each, annotation in ((old, "stays"), (new, "stays")):
        each["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": annotation}
    resize = attributes("persistentvolumeclaims", "UPDATE", new, old)
    assert "must support resize" in await refusal(PersistentVolumeClaimResize(objects), resize)
    for each in (old, new):
        each["spec"].pop("storageClassName")
        each["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "grows"}
    resize = attributes("persistentvolumeclaims", "UPDATE", new, old)
    assert await refusal(PersistentVolumeClaimResize(objects), resize) == ""


async def test_blocking_an_owners_deletion_takes_the_right_to_its_finalizers() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "blockOwnerDeletion": True}
    obj = {"metadata": {"name": "p", "namespace": "shop", "ownerReferences": [owner]}}
    plugin = OwnerReferencesPermissionEnforcement(holding("update apps replicasets/finalizers"), Objects())
    assert await refusal(plugin, attributes("pods", obj=obj, user=JANE)) == ""
    plugin = OwnerReferencesPermissionEnforcement(holding(), Objects())
    assert "set finalizers on" in await refusal(plugin, attributes("pods", obj=obj, user=JANE))


async def test_an_owner_is_authorized_in_its_own_namespace() -> None:
    sent: list[tuple[str, str, str, str]] = []

    class Recording(RBACAuthorizer):
        def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
            a = attributes
            sent.append((a.verb, f"{a.resource}.{a.group}/{a.subresource}", a.namespace, a.name))
            return (Decision.NO_OPINION if a.name == "*" else Decision.ALLOW), ""

    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "1", "blockOwnerDeletion": True}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "2", "blockOwnerDeletion": True}
    plugin = OwnerReferencesPermissionEnforcement(Recording(), Objects())
    plain: Object = {"metadata": {"name": "e", "namespace": "shop"}}
    owned: Object = {"metadata": plain["metadata"] | {"ownerReferences": [node, other]}}
    change = attributes("events", "UPDATE", owned, plain, user=JANE)
    change.requested = resources.by_path("events.k8s.io", "v1", "events")
    assert await refusal(plugin, change) == ""
    assert sent == [
        ("delete", "events.events.k8s.io/", "shop", "e"),
        ("update", "*.*/finalizers", "", "*"),
        ("update", "nodes./finalizers", "", "n1"),
        ("update", "configmaps./finalizers", "shop", "c"),
    ]


async def test_the_right_to_all_finalizers_covers_owners_of_any_kind() -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Unknown", "name": "x", "uid": "1", "blockOwnerDeletion": True}
    obj = {"metadata": {"name": "p", "namespace": "shop", "ownerReferences": [owner]}}
    plugin = OwnerReferencesPermissionEnforcement(holding("update * */finalizers"), Objects())
    assert await refusal(plugin, attributes("pods", obj=obj, user=JANE)) == ""
    plugin = OwnerReferencesPermissionEnforcement(holding("update apps */finalizers"), Objects())
    assert "cannot find RESTMapping" in await refusal(plugin, attributes("pods", obj=obj, user=JANE))


async def test_a_pods_owner_references_are_not_checked_for_a_status_update() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "1"}
    plain: Object = {"metadata": {"name": "p", "namespace": "shop"}}
    owned: Object = {"metadata": plain["metadata"] | {"ownerReferences": [owner]}}
    plugin = OwnerReferencesPermissionEnforcement(holding(), Objects())
    for subresource, refused in (("status", False), ("resize", True), ("", True)):
        change = attributes("pods", "UPDATE", owned, plain, user=JANE, subresource=subresource)
        assert bool(await refusal(plugin, change)) is refused, subresource


# -- the chain --------------------------------------------------------------------------------------------------------
async def test_the_chain_goes_in_upstreams_order_and_is_whole() -> None:
    rbac = holding()
    plugin_context = PluginContext(Objects(), rbac, rbac, invoker(Objects()))
    names = [p.name for p in make(plugin_context)]
    assert names.index("LimitRanger") < names.index("ServiceAccount") < names.index("Priority")
    assert names[0] == "NamespaceLifecycle" and names[-1] == "ResourceQuota"
    assert "OwnerReferencesPermissionEnforcement" not in names
    enabled = make(plugin_context, ("OwnerReferencesPermissionEnforcement",), ("DenyServiceExternalIPs",))
    assert {p.name for p in enabled} ^ set(names) == {"OwnerReferencesPermissionEnforcement", "DenyServiceExternalIPs"}


async def test_a_pod_comes_out_of_the_chain_ready_to_be_stored() -> None:
    rbac = holding()
    objects = Objects(
        ("namespaces", {"metadata": {"name": "shop"}}),
        ("serviceaccounts", {"metadata": {"name": "default", "namespace": "shop"}}),
    )
    chain = Chain(make(PluginContext(objects, rbac, rbac, invoker(objects))))
    pod: Object = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [{"name": "c"}]}}
    request = attributes("pods", obj=pod, user=JANE)
    await chain.admit(request)
    await chain.validate(request)
    spec = pod["spec"]
    assert spec["priority"] == 0 and len(spec["tolerations"]) == 2 and spec["serviceAccountName"] == "default"
    assert spec["volumes"][0]["name"] == spec["containers"][0]["volumeMounts"][0]["name"]
