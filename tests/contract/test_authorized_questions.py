"""Upstream's additional authorization checks: parameters of policies, parts of a claim's status, escalation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube.json_object import Object
from tests.contract.test_auth import created, pod, until
from tests.support.control import ApiUnderTest, api_server
from tests.support.custom_resources import GROUP, definition, install

RBAC = "/apis/rbac.authorization.k8s.io/v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims"
MERGE = {"Content-Type": "application/merge-patch+json"}
JANE = ("jane", ())
WRITES = ["get", "create", "update", "patch"]
KINDS = ("validating", "mutating")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        await created(server, "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        await created(server, "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "default"}})
        yield server


async def allow(api: ApiUnderTest, name: str, *rules: tuple[str, str, list[str], list[str]]) -> None:
    """Let jane do something in all namespaces, by (group, resource, verbs, names), and wait until the authorizer knows."""
    made = [{"apiGroups": [g], "resources": [r], "verbs": v, "resourceNames": names} for g, r, v, names in rules]
    await created(api, f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": made})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
    await created(
        api, f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
    )
    group, resource, verbs, names = rules[-1]
    plural, _, part = resource.partition("/")
    requested = {"group": group, "resource": plural, "subresource": part, "verb": verbs[0]}
    review = {"spec": {"resourceAttributes": requested | ({"name": names[0]} if names else {})}}
    while True:
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await api.request("POST", path, review, user=JANE)
        if answer.json["status"]["allowed"]:
            return


# -- names on paths that there are not --------------------------------------------------------------------------------
async def test_what_is_only_created_has_no_paths_of_single_objects(api: ApiUnderTest) -> None:
    pods = "/api/v1/namespaces/shop/pods"
    await created(api, pods, pod("mine"))
    binding = {"metadata": {"name": "mine"}, "target": {"name": "n1"}}
    reviews = "/apis/authorization.k8s.io/v1"
    for path, body in (
        ("/api/v1/namespaces/shop/bindings/other", binding),
        ("/api/v1/namespaces/shop/bindings/mine", binding),
        (f"{reviews}/selfsubjectrulesreviews/status", {"spec": {"namespace": "shop"}}),
        (f"{reviews}/namespaces/shop/localsubjectaccessreviews/x", {"spec": {}}),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews/x", {}),
    ):
        for method in ("POST", "GET", "PUT", "DELETE"):
            answer = await api.request(method, path, body if method in ("POST", "PUT") else None)
            assert answer.status == 404, (method, path, answer.body)
    assert "nodeName" not in (await api.request("GET", f"{pods}/mine")).json["spec"]
    for method in ("GET", "PUT", "DELETE"):
        answer = await api.request(method, "/api/v1/namespaces/shop/bindings?fieldSelector=metadata.name%3Dx")
        assert answer.status == 405, method


async def test_a_binding_is_for_the_pod_that_it_means(api: ApiUnderTest) -> None:
    pods = "/api/v1/namespaces/shop/pods"
    made = await created(api, pods, pod("mine"))
    version = made["metadata"]["resourceVersion"]
    message = "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: "
    binding: Object = {"metadata": {"name": "mine", "resourceVersion": "1"}, "target": {"name": "n1"}}
    for path in (f"{pods}/mine/binding", "/api/v1/namespaces/shop/bindings"):
        answer = await api.request("POST", path, binding)
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert answer.json["message"] == f'Operation cannot be fulfilled on pods "mine": {message}{version}'
    binding["metadata"]["resourceVersion"] = version
    await created(api, f"{pods}/mine/binding", binding)
    assert (await api.request("GET", f"{pods}/mine")).json["spec"]["nodeName"] == "n1"


# -- roles ------------------------------------------------------------------------------------------------------------
async def test_a_right_to_escalate_one_role_does_not_create_it(api: ApiUnderTest) -> None:
    group = "rbac.authorization.k8s.io"
    await allow(api, "writes", (group, "clusterroles", WRITES, []), (group, "clusterroles", ["escalate"], ["new"]))
    role = {"metadata": {"name": "new"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
    answer = await api.request("POST", f"{RBAC}/clusterroles", role, user=JANE)
    assert answer.status == 403 and "attempting to grant RBAC permissions" in answer.json["message"]
    await created(api, f"{RBAC}/clusterroles", role | {"rules": []}, user=JANE)
    answer = await api.request("PATCH", f"{RBAC}/clusterroles/new", role, headers=MERGE, user=JANE)
    assert answer.status == 200, answer.body


# -- policies ---------------------------------------------------------------------------------------------------------
def policy(kind: str, name: str, api_version: str = "v1", parameters: str = "ConfigMap") -> Object:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    spec: Object = {"matchConstraints": {"resourceRules": [rule]}}
    if kind == "validating":
        spec["validations"] = [{"expression": "true"}]
    else:
        change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
        spec |= {"mutations": [change], "reinvocationPolicy": "Never"}
    if parameters:
        spec["paramKind"] = {"apiVersion": api_version, "kind": parameters}
    return {"metadata": {"name": name}, "spec": spec}


def bound(kind: str, named: str, policy: str, **ref: Any) -> Object:
    spec: Object = {"policyName": policy}
    if kind == "validating":
        spec["validationActions"] = ["Deny"]
    if ref:
        spec["paramRef"] = {"parameterNotFoundAction": "Deny", **ref}
    return {"metadata": {"name": named}, "spec": spec}


@pytest.mark.parametrize("kind", KINDS)
async def test_who_names_a_policys_parameters_can_read_all_of_them(api: ApiUnderTest, kind: str) -> None:
    path, group = f"{POLICIES}/{kind}admissionpolicies", "admissionregistration.k8s.io"
    await install(api, definition("CronTab"))
    await allow(api, "writes", (group, f"{kind}admissionpolicies", WRITES, []))
    assert (await api.request("POST", path, policy(kind, "plain", parameters=""), user=JANE)).status == 201
    for version, parameters in (("v1", "ConfigMap"), (f"{GROUP}/v1", "CronTab"), ("example.com/v1", "Unknown")):
        named = policy(kind, "new", version, parameters)
        answer = await api.request("POST", path, named, user=JANE)
        reported = (
            f'user jane must have "get" permission on all objects of the referenced paramKind (kind={parameters}, '
        )
        assert answer.status == 422 and f"spec.paramKind: Forbidden: {reported}" in answer.json["message"], answer.body
        answer = await api.request("PATCH", f"{path}/plain", {"spec": named["spec"]}, headers=MERGE, user=JANE)
        assert answer.status == 422 and "spec.paramKind: Forbidden" in answer.json["message"], answer.body
    await allow(api, "one", ("", "configmaps", ["get"], ["a"]))
    answer = await api.request("POST", path, policy(kind, "new"), user=JANE)
    assert answer.status == 422, "one object is not all of them"
    await allow(api, "reads", ("", "configmaps", ["get"], []), (GROUP, "crontabs", ["get"], []))
    for name, version, parameters in (("core", "v1", "ConfigMap"), ("custom", f"{GROUP}/v1", "CronTab")):
        answer = await api.request("POST", path, policy(kind, name, version, parameters), user=JANE)
        assert answer.status == 201, answer.body
    await created(api, path, policy(kind, "theirs", "v1", "Secret"))
    change = {"metadata": {"labels": {"a": "b"}}}
    answer = await api.request("PATCH", f"{path}/theirs", change, headers=MERGE, user=JANE)
    assert answer.status == 200, "who leaves the kind alone need not read its objects"


@pytest.mark.parametrize("kind", KINDS)
async def test_who_names_a_bindings_parameters_can_read_them(api: ApiUnderTest, kind: str) -> None:
    path, group = f"{POLICIES}/{kind}admissionpolicybindings", "admissionregistration.k8s.io"
    await created(api, f"{POLICIES}/{kind}admissionpolicies", policy(kind, "p"))
    await allow(api, "writes", (group, f"{kind}admissionpolicybindings", WRITES, []))
    assert (await api.request("POST", path, bound(kind, "plain", "p"), user=JANE)).status == 201
    one: Object = {"name": "a", "namespace": "shop"}
    some: Object = {"selector": {"matchLabels": {"a": "b"}}, "namespace": "shop"}
    for ref, verb in ((one, "get"), (some, "list")):
        answer = await api.request("POST", path, bound(kind, "new", "p", **ref), user=JANE)
        reported = f'user jane does not have "{verb}" permission on the object referenced by paramRef'
        assert answer.status == 422 and f"spec.paramRef: Forbidden: {reported}" in answer.json["message"], answer.body
    answer = await api.request("POST", path, bound(kind, "new", "absent", **one), user=JANE)
    assert answer.status == 422 and "unable to get policy absent" in answer.json["message"]
    answer = await api.request("PATCH", f"{path}/plain", bound(kind, "plain", "p", **one), headers=MERGE, user=JANE)
    assert answer.status == 422, answer.body
    await allow(api, "one", ("", "configmaps", ["get"], ["a"]))
    assert (await api.request("POST", path, bound(kind, "one", "p", **one), user=JANE)).status == 201
    assert (await api.request("POST", path, bound(kind, "some", "p", **some), user=JANE)).status == 422
    await allow(api, "all", ("", "configmaps", ["list"], []))
    assert (await api.request("POST", path, bound(kind, "some", "p", **some), user=JANE)).status == 201


# -- claims -----------------------------------------------------------------------------------------------------------
RESULT = {"request": "r", "driver": "d.example.com", "pool": "n1", "device": "gpu-0"}
OTHER = RESULT | {"driver": "e.example.com"}
ON_N1 = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
ALLOCATION: Object = {"devices": {"results": [RESULT, OTHER]}, "nodeSelector": ON_N1}
RESERVED = [{"resource": "pods", "name": "p", "uid": "u-1"}]


def state(of: Object, **more: Any) -> Object:
    return {key: of[key] for key in ("driver", "pool", "device")} | more


async def a_claim(api: ApiUnderTest) -> str:
    exactly = {"deviceClassName": "any.example.com", "allocationMode": "ExactCount", "count": 2}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    await created(api, CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
    return f"{CLAIMS}/c/status"


async def test_allocating_a_claim_takes_the_right_to_bind_it(api: ApiUnderTest) -> None:
    path, group = await a_claim(api), "resource.k8s.io"
    await allow(api, "writes", (group, "resourceclaims/status", WRITES, []))
    for change in ({"allocation": ALLOCATION}, {"allocation": ALLOCATION, "reservedFor": RESERVED}):
        answer = await api.request("PATCH", path, {"status": change}, headers=MERGE, user=JANE)
        reported = (
            'requires resource="resourceclaims/binding", verb="patch" permission: resourceclaims.resource.k8s.io is'
        )
        assert answer.status == 422 and reported in answer.json["message"], answer.body
    label = {"metadata": {"labels": {"a": "b"}}}
    assert (await api.request("PATCH", path, label, headers=MERGE, user=JANE)).status == 200
    await allow(api, "binds", (group, "resourceclaims/binding", ["patch"], []))
    answer = await api.request("PATCH", path, {"status": {"allocation": ALLOCATION}}, headers=MERGE, user=JANE)
    assert answer.status == 200, answer.body
    whole = answer.json | {"status": {"allocation": ALLOCATION, "reservedFor": RESERVED}}
    answer = await api.request("PUT", path, whole, user=JANE)
    assert answer.status == 422 and 'verb="update" permission' in answer.json["message"]
    answer = await api.request("PATCH", path, {"status": {"reservedFor": RESERVED}}, headers=MERGE, user=JANE)
    assert answer.status == 200, answer.body


async def test_the_state_of_devices_is_for_their_drivers_to_write(api: ApiUnderTest) -> None:
    path, group = await a_claim(api), "resource.k8s.io"
    both = {"status": {"devices": [state(RESULT), state(OTHER)]}}
    answer = await api.request("PATCH", path, both, headers=MERGE)
    assert answer.status == 422 and "must be an allocated device in the claim" in answer.json["message"]
    assert (await api.request("PATCH", path, {"status": {"allocation": ALLOCATION}}, headers=MERGE)).status == 200
    account = "system:serviceaccount:shop:default"
    verbs = ["associated-node:patch"]
    await allow(api, "writes", (group, "resourceclaims/status", WRITES, []))
    answer = await api.request("PATCH", path, both, headers=MERGE, user=JANE)
    assert answer.status == 422, answer.body
    for driver in ("d.example.com", "e.example.com"):
        reported = 'requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: '
        assert answer.json["message"].count(reported) == 2, driver
    await allow(api, "drives", (group, "resourceclaims/driver", ["arbitrary-node:patch"], ["d.example.com"]))
    mine = {"status": {"devices": [state(RESULT)]}}
    assert (await api.request("PATCH", path, both, headers=MERGE, user=JANE)).status == 422
    assert (await api.request("PATCH", path, mine, headers=MERGE, user=JANE)).status == 200
    assert (await api.request("PATCH", path, both, headers=MERGE)).status == 200
    assert (await api.request("PATCH", path, mine, headers=MERGE, user=JANE)).status == 422, "the other one would go"
    # A driver on the node itself, by the node that its token is bound to.
    rules = [
        {"apiGroups": [group], "resources": ["resourceclaims/status"], "verbs": WRITES},
        {
            "apiGroups": [group],
            "resources": ["resourceclaims/driver"],
            "verbs": verbs,
            "resourceNames": [RESULT["driver"]],
        },
    ]
    await created(api, f"{RBAC}/clusterroles", {"metadata": {"name": "driver"}, "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "driver"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "shop"}
    await created(
        api, f"{RBAC}/clusterrolebindings", {"metadata": {"name": "driver"}, "roleRef": ref, "subjects": [subject]}
    )
    ready = {"status": {"devices": [state(RESULT, data={"a": 1}), state(OTHER)]}}

    def on(node: str) -> dict[str, str]:
        return {
            **MERGE,
            "Impersonate-User": account,
            "Impersonate-Extra-Authentication.kubernetes.io%2Fnode-name": node,
        }

    await until(api, 200, "PATCH", path, {"metadata": {"labels": {"a": "b"}}}, headers=on("n1"))
    answer = await api.request("PATCH", path, ready, headers=on("n2"))
    assert answer.status == 422 and 'verb="[arbitrary-node:patch]"' in answer.json["message"], answer.body
    answer = await api.request("PATCH", path, ready, headers=on("n1"))
    assert answer.status == 200, answer.body
    answer = await api.request("PATCH", path, {"status": {"devices": [state(RESULT)]}}, headers=on("n1"))
    reported = 'verb="[associated-node:patch arbitrary-node:patch]"'
    assert answer.status == 422 and reported in answer.json["message"], answer.body


async def test_what_is_no_more_allocated_has_no_state(api: ApiUnderTest) -> None:
    path = await a_claim(api)
    states = [state(RESULT), state(OTHER)]
    whole = {"status": {"allocation": ALLOCATION, "devices": states}}
    assert (await api.request("PATCH", path, whole, headers=MERGE)).status == 200
    answer = await api.request("PATCH", path, {"status": {"devices": [*states, state(OTHER)]}}, headers=MERGE)
    assert answer.status == 422 and "Duplicate value" in answer.json["message"]
    answer = await api.request("PATCH", path, {"status": {"allocation": None}}, headers=MERGE)
    assert answer.status == 200 and not answer.json.get("status"), answer.body
