"""Authorization and forms of requests, and subresources that are actions: bindings, evictions, scales, tokens, reviews."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from control.auth.user import UserInfo
from control.interfaces import compiled_selectors
from kube import resources, selectors
from kube.api import core_v1, meta_v1
from kube.errors import StatusError
from tests.support.control import ADMIN, ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
JANE = ("jane", ("devs",))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        yield api


def deployment(name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


async def pod(server: ApiUnderTest, name: str, **metadata: Any) -> dict[str, Any]:
    body = {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    answer = await server.request("POST", PODS, body)
    assert answer.status == 201, answer.body
    made: dict[str, Any] = answer.json
    return made


# -- who ------------------------------------------------------------------------------------------------------------------
async def test_without_credentials_only_health_answers(server: ApiUnderTest) -> None:
    nobody = ("", ())
    assert (await server.request("GET", "/readyz", user=nobody)).status == 200
    for path in ("/api/v1/namespaces", "/version", "/apis"):
        answer = await server.request("GET", path, user=nobody)
        assert answer.status == 401 and answer.json["reason"] == "Unauthorized"
        assert answer.json["message"] == "Unauthorized"


async def test_a_wrong_token_is_401_also_for_health(server: ApiUnderTest) -> None:
    headers = {"Authorization": "Bearer nonsense"}
    assert (await server.request("GET", "/api/v1/namespaces", user=("", ()), headers=headers)).status == 401


async def test_what_is_not_allowed_is_403_in_upstreams_words(server: ApiUnderTest) -> None:
    answer = await server.request("GET", PODS, user=JANE)
    assert answer.status == 403 and answer.json["reason"] == "Forbidden"
    output = 'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default"'
    assert answer.json["message"] == output and answer.json["details"] == {"kind": "pods"}
    answer = await server.request("DELETE", f"{DEPLOYMENTS}/x", user=JANE)
    output = (
        'deployments.apps "x" is forbidden: User "jane" cannot delete resource "deployments" in API group "apps" in the '
        'namespace "default"'
    )
    assert answer.json["message"] == output
    answer = await server.request("GET", "/metrics", user=JANE)
    assert answer.json["message"] == 'forbidden: User "jane" cannot get path "/metrics"'


async def test_exec_by_websocket_needs_the_right_to_create(server: ApiUnderTest) -> None:
    role = {
        "metadata": {"name": "looker"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/exec"]}],
    }
    await server.request("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", role)
    binding = {
        "metadata": {"name": "looker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looker"},
        "subjects": [{"kind": "User", "name": "looker", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await server.request("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)
    answer = await server.request("GET", f"{PODS}/any/exec?command=id&stdout=1", user=("looker", ()))
    assert answer.status == 403 and 'cannot create resource "pods/exec"' in answer.json["message"]


async def test_acting_as_somebody_else(server: ApiUnderTest) -> None:
    headers = {"Impersonate-User": "jane", "Impersonate-Group": "devs"}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await server.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, headers=headers)
    assert answer.json["status"]["userInfo"] == {"username": "jane", "groups": ["devs", "system:authenticated"]}
    refused = await server.request("GET", PODS, user=JANE, headers={"Impersonate-User": "kubernetes-admin"})
    assert refused.status == 403 and "cannot impersonate-on:user-info:" in refused.json["message"]


async def test_too_many_requests_are_429_but_for_the_owner(server: ApiUnderTest) -> None:
    await server.full("global-default")
    try:
        jane = await server.request("GET", "/api", user=JANE)
        namespaces = await server.request("GET", "/api/v1/namespaces/default", user=JANE)
        assert jane.status in (200, 429) and namespaces.status in (403, 429)
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"]}
        await server.request(
            "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "ns"}, "rules": [rule]}
        )
        await server.request(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": "ns"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ns"},
                "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
            },
        )
        full = await server.request("GET", "/api/v1/namespaces/default", user=JANE)
        assert full.status == 429 and full.json["reason"] == "TooManyRequests"
        assert full.headers["Retry-After"] == "1"
        assert (await server.request("GET", "/readyz", user=("", ()))).status == 200, "probes are not turned away"
        assert (await server.request("GET", "/api/v1/namespaces/default")).status == 200
    finally:
        server.roomy("global-default")
    assert (await server.request("GET", "/api/v1/namespaces/default", user=JANE)).status == 200


async def test_requests_are_counted_by_verb_and_resource(server: ApiUnderTest) -> None:
    await server.request("GET", f"{CONFIGMAPS}/not-there")
    await server.request("GET", "/api/v1/namespaces/default/made-up-by-somebody")
    text = (await server.request("GET", "/metrics")).body.decode()
    labels = 'code="404",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",'
    labels += 'subresource="",verb="GET",version="v1"'
    assert f"apiserver_request_total{{{labels}}}" in text.replace(", ", ",")
    assert "made-up" not in text and "apiserver_request_duration_seconds_bucket" in text
    assert 'apiserver_current_inflight_requests{request_kind="readOnly"}' in text and "process_resident_memory" in text


async def test_half_a_body_is_not_taken_for_a_whole_one(server: ApiUnderTest) -> None:
    await server.request("POST", CONFIGMAPS, {"metadata": {"name": "survivor"}})
    port = server.api.listener.port
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=server.tls(*ADMIN), server_hostname="127.0.0.1")
    writer.write(f"DELETE {CONFIGMAPS}/survivor HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{{".encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    for _ in range(20):
        assert (await server.request("GET", f"{CONFIGMAPS}/survivor")).status == 200


async def test_answers_are_indented_for_people(server: ApiUnderTest) -> None:
    plain = await server.request("GET", "/api/v1/namespaces/default")
    pretty = await server.request("GET", "/api/v1/namespaces/default?pretty=true")
    assert pretty.body.startswith(b'{\n  "kind": "Namespace",\n') and pretty.json == plain.json


PEOPLE = ("curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11; Linux)")
PROGRAMS = ("", "Mozilla/4.0", "libcurl/8", "kubectl/v1.36.2")


@pytest.mark.parametrize(
    ("agent", "option", "indented"),
    [
        *((agent, "", True) for agent in PEOPLE),
        *((agent, "", False) for agent in PROGRAMS),
        *(("curl/8", option, True) for option in ("pretty", "pretty=", "pretty=T", "pretty=1")),
        *(("curl/8", option, False) for option in ("pretty=0", "pretty=no")),
        *(("", option, True) for option in ("pretty=t", "pretty=True")),
        *(
            ("", option, False)
            for option in ("pretty", "pretty=", "pretty=yes", "pretty=false", "&" * 3000 + "pretty=1")
        ),
    ],
)
async def test_answers_are_indented_for_programs_that_people_read(
    server: ApiUnderTest, agent: str, option: str, indented: bool
) -> None:
    review = {"spec": {"user": "jane", "nonResourceAttributes": {"path": "/", "verb": "get"}}}
    requested: list[tuple[str, str, Any]] = [
        ("GET", "/api/v1/namespaces/default", None),
        ("GET", "/api/v1/namespaces", None),
        ("GET", "/api/v1/namespaces/none", None),
        ("GET", "/apis", None),
        ("GET", "/api/v1", None),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review),
    ]
    for method, path, body in requested:
        answer = await server.request(method, f"{path}?{option}", body, headers={"User-Agent": agent})
        assert answer.body.startswith(b'{\n  "' if indented else b'{"'), (path, answer.body[:80])


async def test_an_object_is_indented_for_curl_also_if_it_accepts_json(server: ApiUnderTest) -> None:
    headers = {"User-Agent": "curl/8", "Accept": "application/json"}
    answer = await server.request("GET", "/api/v1/namespaces/default", headers=headers)
    assert answer.body.startswith(b'{\n  "')


async def test_the_version_is_indented_for_everybody(server: ApiUnderTest) -> None:
    assert (await server.request("GET", "/version")).body.startswith(b'{\n  "major": "1",\n')


async def test_pipelined_requests_are_answered_in_order(server: ApiUnderTest) -> None:
    context = server.tls(*ADMIN)
    port = server.api.listener.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
    paths = ["/api/v1/namespaces/default", "/version", "/api/v1/namespaces/nowhere", "/readyz"]
    writer.write(b"".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in paths))
    codes = []
    async with asyncio.timeout(30):
        for _ in paths:
            head = await reader.readuntil(b"\r\n\r\n")
            codes.append(int(head.split()[1]))
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
            await reader.readexactly(length)
    writer.close()
    assert codes == [200, 200, 404, 200]


# -- subresources ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}}, "metadata.annotations"),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "metadata.annotations"),
        ({"annotations": {"not a key": "x"}}, "metadata.annotations"),
        ({"labels": {"a": "not a value"}}, "metadata.labels"),
    ],
)
async def test_a_binding_adds_nothing_to_a_pod_that_an_update_may_not(
    server: ApiUnderTest, metadata: dict[str, Any], field: str
) -> None:
    name = f"unbound-{zlib.crc32(str(metadata).encode())}"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    assert (await server.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})).status == 201
    refused = await server.request(
        "POST", f"{PODS}/{name}/binding", {"metadata": metadata, "target": {"kind": "Node", "name": "node-1"}}
    )
    assert refused.status == 422 and field in refused.json["message"], refused.json
    assert "nodeName" not in (await server.request("GET", f"{PODS}/{name}")).json["spec"]


async def test_binding_assigns_a_pod_once(server: ApiUnderTest) -> None:
    made = await pod(server, "bound")
    binding = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "node-1"}}
    answer = await server.request("POST", f"{PODS}/bound/binding", binding)
    assert answer.status == 201 and answer.json["status"] == "Success"
    found = (await server.request("GET", f"{PODS}/bound")).json
    assert found["spec"]["nodeName"] == "node-1"
    assert found["metadata"]["generation"] == made["metadata"]["generation"]
    condition = next(c for c in found["status"]["conditions"] if c["type"] == "PodScheduled")
    assert condition["status"] == "True"
    again = await server.request("POST", f"{PODS}/bound/binding", binding)
    assert again.status == 409
    output = 'Operation cannot be fulfilled on pods/binding "bound": pod bound is already assigned to node "node-1"'
    assert again.json["message"] == output
    empty = await server.request("POST", f"{PODS}/bound/binding", {"target": {}})
    assert empty.status == 422 and "target.name: Required value" in empty.json["message"]


async def test_evictions_compile_the_selector_of_a_budget_once(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, original = list[Any](), selectors.from_label_selector
    monkeypatch.setattr(compiled_selectors, "from_label_selector", lambda s: (compiled.append(s), original(s))[1])
    monkeypatch.setattr(selectors, "from_label_selector", lambda s: (compiled.append(s), original(s))[1])
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    given = {"matchLabels": {"app": "counted"}}
    await server.request("POST", budgets, {"metadata": {"name": "counted"}, "spec": {"selector": given}})
    for number in range(3):  # the budget's status changes with each
        await pod(server, f"counted-{number}", labels={"app": "counted"})
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await server.request("PATCH", f"{PODS}/counted-{number}/status", {"status": running}, headers=STRATEGIC)
        counts = {"observedGeneration": 1, "disruptionsAllowed": 3, "currentHealthy": number}
        await server.request("PATCH", f"{budgets}/counted/status", {"status": counts}, headers=MERGE)
        answer = await server.request("POST", f"{PODS}/counted-{number}/eviction", {"metadata": {}})
        assert answer.status == 201, answer.body
    assert compiled.count(given) == 1
    await server.request("DELETE", f"{budgets}/counted")


async def test_eviction_respects_the_disruption_budget(server: ApiUnderTest) -> None:
    await pod(server, "evicted", labels={"app": "guarded"})
    await server.request(
        "PATCH",
        f"{PODS}/evicted/status",
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        headers=STRATEGIC,
    )
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    budget = {"metadata": {"name": "pdb"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}}
    assert (await server.request("POST", budgets, budget)).status == 201
    counts = {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "desiredHealthy": 1,
        "currentHealthy": 1,
        "expectedPods": 1,
    }
    await server.request("PATCH", f"{budgets}/pdb/status", {"status": counts}, headers=MERGE)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}
    refused = await server.request("POST", f"{PODS}/evicted/eviction", eviction)
    assert refused.status == 429 and refused.json["reason"] == "TooManyRequests"
    assert refused.json["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refused.json["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget pdb needs 1 healthy pods and has 1 currently"}
    ]
    await server.request("PATCH", f"{budgets}/pdb/status", {"status": {"disruptionsAllowed": 1}}, headers=MERGE)
    await server.request("PATCH", f"{PODS}/evicted", {"metadata": {"finalizers": ["example.com/look"]}}, headers=MERGE)
    allowed = await server.request("POST", f"{PODS}/evicted/eviction", eviction)
    assert allowed.status == 201
    after = (await server.request("GET", f"{budgets}/pdb")).json["status"]
    assert not after.get("disruptionsAllowed") and "evicted" in after["disruptedPods"]
    going = (await server.request("GET", f"{PODS}/evicted")).json
    (target,) = (c for c in going["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    assert target["message"] == "Eviction API: evicting"
    assert target["observedGeneration"] == going["metadata"]["generation"] - 1  # the deletion is one more
    await server.request("PATCH", f"{PODS}/evicted", {"metadata": {"finalizers": None}}, headers=MERGE)
    assert (await server.request("GET", f"{PODS}/evicted")).status == 404


async def test_scale_shows_and_sets_replicas_alone(server: ApiUnderTest) -> None:
    await server.request("POST", DEPLOYMENTS, deployment("scaled", replicas=2))
    path = f"{DEPLOYMENTS}/scaled/scale"
    scale = (await server.request("GET", path)).json
    assert scale["kind"] == "Scale" and scale["apiVersion"] == "autoscaling/v1" and scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=scaled"}
    scale["spec"]["replicas"] = 0
    put = await server.request("PUT", path, scale)
    assert put.status == 200 and put.json["spec"] == {}
    assert (await server.request("GET", f"{DEPLOYMENTS}/scaled")).json["spec"]["replicas"] == 0
    stale = await server.request("PUT", path, scale)
    assert stale.status == 409
    patched = await server.request("PATCH", path, {"spec": {"replicas": 4}}, headers=MERGE)
    assert patched.json["spec"] == {"replicas": 4}
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = (await server.request("GET", path, headers=accept)).json
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["scaled", 4, 0]
    negative = await server.request("PATCH", path, {"spec": {"replicas": -1}}, headers=MERGE)
    assert negative.status == 422 and "must be greater than or equal to 0" in negative.json["message"]


async def test_a_service_account_gets_a_token_that_works(server: ApiUnderTest) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    answer = await server.request("POST", path, {"spec": {"expirationSeconds": 700}})
    assert answer.status == 201 and answer.json["kind"] == "TokenRequest"
    headers = {"Authorization": f"Bearer {answer.json['status']['token']}"}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = await server.request(
        "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, user=("", ()), headers=headers
    )
    assert who.status == 201 and who.json["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    short = await server.request("POST", path, {"spec": {"expirationSeconds": 10}})
    assert short.status == 422 and "may not specify a duration less than 10 minutes" in short.json["message"]


async def test_access_reviews(server: ApiUnderTest) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "default"}}}
    assert (await server.request("POST", path, body)).json["status"]["allowed"] is True
    assert (await server.request("POST", path, body, user=JANE)).json["status"]["allowed"] is False
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = await server.request("POST", path, {"spec": {**body["spec"], "user": "jane"}})
    assert answer.status == 201 and answer.json["status"]["allowed"] is False
    assert (await server.request("GET", path)).status == 405


async def test_pods_that_have_no_node_have_no_logs(server: ApiUnderTest) -> None:
    await pod(server, "nowhere")
    answer = await server.request("GET", f"{PODS}/nowhere/log")
    assert answer.status == 400 and answer.json["message"] == "pod nowhere does not have a host assigned"
    answer = await server.request("GET", f"{PODS}/nowhere/log?container=x")
    assert answer.json["message"] == "container x is not valid for pod nowhere"


# -- in process -----------------------------------------------------------------------------------------------------------
async def test_the_in_process_client_takes_the_same_way(server: ApiUnderTest) -> None:
    client = server.api.client(UserInfo("system:kube-proxy"))
    with pytest.raises(StatusError) as refused:
        await client.create(core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name="x", namespace="default")))
    assert refused.value.code == 403 and "system:kube-proxy" in refused.value.message
    admin = server.api.client(UserInfo(ADMIN[0], groups=ADMIN[1]), "tester")
    inside = meta_v1.ObjectMeta(name="inside", namespace="default", labels={"a": "b"})
    made = await admin.create(core_v1.ConfigMap(metadata=inside))
    assert made.metadata.uid and made.metadata.managed_fields[0].manager == "tester"
    watch = admin.watch(core_v1.ConfigMap, "default", resource_version=made.metadata.resource_version or "")
    made.data = {"k": "v"}
    await admin.update(made)
    async with asyncio.timeout(30):
        event = await anext(watch)
    assert event.type == "MODIFIED" and event.object.data == {"k": "v"}
    await watch.aclose()
    over_https = await server.client().get(core_v1.ConfigMap, "inside", "default")
    assert over_https.data == {"k": "v"}


async def test_every_listed_resource_answers(server: ApiUnderTest) -> None:
    for resource in resources.RESOURCES:
        if "list" in resource.verbs:
            answer = await server.request("GET", resource.path("default"))
            assert answer.status == 200, (resource.target, answer.body)
            assert answer.json["kind"] == resource.kind + "List" and answer.json["apiVersion"] == resource.api_version


async def test_a_bug_is_a_500_status_and_never_a_hung_request(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(server.api.registry, "get", broken)
    answer = await server.request("GET", f"{CONFIGMAPS}/x")
    assert answer.status == 500 and answer.json["reason"] == "InternalError"
    assert "boom" not in json.dumps(answer.json)
