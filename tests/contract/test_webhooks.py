"""Admission webhooks over real HTTPS: selection, effects of responses, and failures."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server
from tests.support.webhook import Webhook, patching, webhook

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAPS = "/api/v1/namespaces/default/configmaps"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    directory = tmp_path_factory.mktemp("api")
    policy = directory / "audit.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [create]}]\n")
    async with api_server(directory, audit_policy_file=policy, audit_log_file=directory / "audit.log") as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Webhook]:
    async with webhook(tmp_path_factory.mktemp("hook")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def hook(server: ApiUnderTest, running: Webhook) -> AsyncIterator[Webhook]:
    running.received.clear()
    running.answers.clear()
    running.sleep = 0.0
    yield running
    for kind in ("mutating", "validating"):
        await server.request("DELETE", f"{CONFIGURATIONS}/{kind}webhookconfigurations")


async def configure(server: ApiUnderTest, kind: str, *hooks: Object, name: str = "test") -> None:
    full = [
        {
            "name": f"h{index}.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [RULE],
            **hook,
        }
        for index, hook in enumerate(hooks)
    ]
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": full,
    }
    made = await server.request("POST", f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations", body)
    assert made.status == 201, made.body


async def create(server: ApiUnderTest, name: str, query: str = "", **metadata: Any) -> Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "1"}}
    return await server.request("POST", MAPS + query, body)


async def test_a_mutating_webhook_changes_what_is_stored(server: ApiUnderTest, hook: Webhook) -> None:
    hook.answers["/m"] = patching({"op": "add", "path": "/data/b", "value": "2"})
    await configure(server, "Mutating", {"clientConfig": hook.client("/m")})
    made = await create(server, "mutated")
    assert made.status == 201 and made.json["data"] == {"a": "1", "b": "2"}
    assert (await server.request("GET", f"{MAPS}/mutated")).json["data"] == {"a": "1", "b": "2"}
    [(_, requested)] = hook.received
    assert requested["operation"] == "CREATE" and requested["dryRun"] is False and requested["name"] == "mutated"
    assert requested["kind"] == requested["requestKind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert requested["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert requested["object"]["data"] == {"a": "1"} and requested["oldObject"] is None
    assert requested["userInfo"]["username"] == "kubernetes-admin" and requested["namespace"] == "default"
    assert requested["options"]["kind"] == "CreateOptions"


async def test_what_webhooks_add_belongs_to_nobody_and_identity_stays(server: ApiUnderTest, hook: Webhook) -> None:
    hook.answers["/m"] = patching(
        {"op": "add", "path": "/metadata/uid", "value": "mine"},
        {"op": "remove", "path": "/metadata/managedFields"},
        {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
    )
    await configure(server, "Mutating", {"clientConfig": hook.client("/m")})
    metadata = (await create(server, "identity")).json["metadata"]
    assert metadata["uid"] != "mine" and metadata["labels"] == {"x": "y"}
    assert "f:labels" not in metadata["managedFields"][0]["fieldsV1"].get("f:metadata", {})


async def test_webhooks_see_what_those_before_them_made_and_ifneeded_ones_what_came_after(
    server: ApiUnderTest, hook: Webhook
) -> None:
    hook.answers["/first"] = lambda request: {"allowed": True}
    hook.answers["/second"] = patching({"op": "add", "path": "/data/b", "value": "2"})
    await configure(
        server,
        "Mutating",
        {"clientConfig": hook.client("/first"), "reinvocationPolicy": "IfNeeded"},
        {"clientConfig": hook.client("/second")},
    )
    await create(server, "rounds")
    assert hook.paths() == ["/first", "/second", "/first"]
    assert [request["object"]["data"] for _, request in hook.received] == [{"a": "1"}, {"a": "1"}, {"a": "1", "b": "2"}]


async def test_a_denial_names_the_webhook_and_the_reason(server: ApiUnderTest, hook: Webhook) -> None:
    status = {"code": 403, "reason": "Forbidden", "message": "not on Saturdays"}
    hook.answers["/v"] = lambda request: {"allowed": False, "status": status, "warnings": ["careful"]}
    hook.answers["/silent"] = lambda request: {"allowed": False}
    await configure(server, "Validating", {"clientConfig": hook.client("/v")})
    refused = await create(server, "refused")
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"] == 'admission webhook "h0.example.com" denied the request: not on Saturdays'
    assert refused.headers["Warning"] == '299 - "careful"'
    await server.request("DELETE", f"{CONFIGURATIONS}/validatingwebhookconfigurations/test")
    await configure(server, "Validating", {"clientConfig": hook.client("/silent")})
    refused = await create(server, "refused")
    assert refused.status == 400
    assert refused.json["message"] == 'admission webhook "h0.example.com" denied the request without explanation'
    assert (await server.request("GET", f"{MAPS}/refused")).status == 404


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"nonsense", "couldn't get version/kind; json parse error"),
        (b'{"kind": "Pod", "apiVersion": "v1"}', "expected webhook response of admission.k8s.io/v1"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "webhook response was absent"),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "x"}}',
            "expected response.uid=",
        ),
    ],
)
async def test_an_answer_that_is_none_counts_as_failure(
    server: ApiUnderTest, hook: Webhook, answer: bytes, why: str
) -> None:
    hook.answers["/v"] = answer
    await configure(server, "Validating", {"clientConfig": hook.client("/v")})
    failed = await create(server, "unanswered")
    assert (failed.status, failed.json["reason"]) == (500, "InternalError")
    begin = 'Internal error occurred: failed calling webhook "h0.example.com": '
    assert failed.json["message"].startswith(begin + why)


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/data", "value": [1]},
        {"op": "remove", "path": "/none"},
        {"op": "test", "path": "/data/a", "value": "2"},
    ],
    ids=["type", "path", "test"],
)
async def test_a_patch_that_cannot_be_applied_fails_the_request_whatever_the_failure_policy(
    server: ApiUnderTest, hook: Webhook, operation: Object, policy: str
) -> None:
    """Upstream: callAttrMutatingHook returns an internal error, which is no failed call."""
    hook.answers["/m"] = patching(operation)
    await configure(server, "Mutating", {"clientConfig": hook.client("/m"), "failurePolicy": policy})
    failed = await create(server, "unpatched")
    assert (failed.status, failed.json["reason"]) == (500, "InternalError")
    assert "calling webhook" not in failed.json["message"]


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("body", [b'{"op": "remove"}', b"[1]", b"nonsense"], ids=["object", "numbers", "no JSON"])
async def test_a_patch_that_is_none_counts_as_failure_and_leaves_a_denial_one(
    server: ApiUnderTest, hook: Webhook, body: bytes, allowed: bool
) -> None:
    """Upstream decodes it after the verdict."""
    patch = base64.b64encode(body).decode()
    hook.answers["/m"] = lambda request: {"allowed": allowed, "patchType": "JSONPatch", "patch": patch}
    await configure(server, "Mutating", {"clientConfig": hook.client("/m"), "failurePolicy": "Ignore"})
    answer = await create(server, f"undecodable{len(body)}")
    if allowed:
        assert answer.json["data"] == {"a": "1"}
    else:
        assert answer.status == 400 and "denied the request" in answer.json["message"]


async def test_failure_policy_decides_when_nobody_answers(server: ApiUnderTest, hook: Webhook) -> None:
    gone = {"url": "https://127.0.0.1:1/x", "caBundle": hook.bundle}
    untrusted = {"url": hook.client("/v")["url"]}
    await configure(server, "Validating", *({"clientConfig": c, "failurePolicy": "Ignore"} for c in (gone, untrusted)))
    assert (await create(server, "ignored")).status == 201
    await server.request("DELETE", f"{CONFIGURATIONS}/validatingwebhookconfigurations/test")
    await configure(server, "Validating", {"clientConfig": gone})
    failed = await create(server, "failed")
    assert failed.status == 500
    assert 'failed to call webhook: Post "https://127.0.0.1:1/x?timeout=10s": ' in failed.json["message"]
    service = {"service": {"namespace": "default", "name": "none"}, "caBundle": hook.bundle}
    await configure(server, "Validating", {"clientConfig": service}, name="another")
    await server.request("DELETE", f"{CONFIGURATIONS}/validatingwebhookconfigurations/test")
    failed = await create(server, "failed")
    assert 'Post "https://none.default.svc:443/?timeout=10s": services "none" not found' in failed.json["message"]


async def test_the_audit_log_records_ignored_failures_and_webhook_annotations(
    server: ApiUnderTest, hook: Webhook
) -> None:
    gone = {"url": "https://127.0.0.1:1/x", "caBundle": hook.bundle}
    hook.answers["/v"] = lambda request: {"allowed": True, "auditAnnotations": {"checked": "yes"}}
    await configure(
        server, "Validating", {"clientConfig": gone, "failurePolicy": "Ignore"}, {"clientConfig": hook.client("/v")}
    )
    assert (await create(server, "noted")).status == 201

    def noted() -> Object:
        for line in (server.directory / "audit.log").read_text().splitlines():
            event: Object = json.loads(line)
            if event["stage"] == "ResponseComplete" and event["responseStatus"]["code"] == 201:
                found: Object = event.get("annotations", {})
                if "h1.example.com/checked" in found:
                    return found
        return {}

    async with asyncio.timeout(30):
        while not (found := noted()):
            await asyncio.sleep(0.05)
    assert found["h1.example.com/checked"] == "yes"
    assert found["failed-open.validating.webhook.admission.k8s.io/round_0_index_0"] == "h0.example.com"


async def test_a_webhook_for_another_version_sees_and_patches_that_version(server: ApiUnderTest, hook: Webhook) -> None:
    hook.answers["/m"] = patching({"op": "replace", "path": "/spec/maxReplicas", "value": 7})
    rule = {
        "apiGroups": ["autoscaling"],
        "apiVersions": ["v2"],
        "resources": ["horizontalpodautoscalers"],
        "operations": ["CREATE"],
    }
    await configure(server, "Mutating", {"clientConfig": hook.client("/m"), "rules": [rule]})
    body = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 50,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
    }
    path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    made = await server.request("POST", path, body)
    assert made.status == 201 and made.json["apiVersion"] == "autoscaling/v1"
    assert made.json["spec"]["maxReplicas"] == 7 and made.json["spec"]["targetCPUUtilizationPercentage"] == 50
    [(_, requested)] = hook.received
    assert (requested["kind"]["version"], requested["requestKind"]["version"]) == ("v2", "v1")
    assert requested["object"]["apiVersion"] == "autoscaling/v2"
    assert requested["object"]["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    hook.received.clear()
    await server.request("DELETE", f"{CONFIGURATIONS}/mutatingwebhookconfigurations/test")
    exact = {"clientConfig": hook.client("/m"), "rules": [rule], "matchPolicy": "Exact"}
    await configure(server, "Mutating", exact)
    body["metadata"] = {"name": "other"}
    assert (await server.request("POST", path, body)).json["spec"]["maxReplicas"] == 3 and not hook.received


async def test_webhooks_are_called_for_custom_resources(server: ApiUnderTest, hook: Webhook) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "boats", "kind": "Boat"},
            "scope": "Namespaced",
            "versions": [
                {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}
                for name in ("v1", "v2")
            ],
        },
    }
    made = await server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert made.status == 201, made.body
    path = "/apis/example.com/v2/namespaces/default/boats"
    async with asyncio.timeout(30):
        while (await server.request("GET", path)).status != 200:
            await asyncio.sleep(0.02)
    hook.answers["/m"] = patching(
        {"op": "add", "path": "/spec/size", "value": 2}, {"op": "add", "path": "/spec/colour", "value": "red"}
    )
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["boats"], "operations": ["*"]}
    await configure(server, "Mutating", {"clientConfig": hook.client("/m"), "rules": [rule]})
    boat = {"apiVersion": "example.com/v2", "kind": "Boat", "metadata": {"name": "ferry"}, "spec": {"size": 1}}
    stored = await server.request("POST", path, boat)
    assert stored.status == 201 and stored.json["spec"] == {"size": 2}, stored.body
    [(_, requested)] = hook.received
    assert requested["object"]["apiVersion"] == "example.com/v1" and requested["requestKind"]["version"] == "v2"


async def test_a_slow_webhook_has_its_time_and_no_more(server: ApiUnderTest, hook: Webhook) -> None:
    hook.answers["/v"] = lambda request: {"allowed": True}
    hook.sleep = 30.0
    await configure(server, "Validating", {"clientConfig": hook.client("/v"), "timeoutSeconds": 1})
    async with asyncio.timeout(20):
        failed = await create(server, "slow")
    assert failed.status == 500 and failed.json["message"].endswith("context deadline exceeded")


@pytest.mark.parametrize(
    ("hook_fields", "requested"),
    [
        ({}, True),
        ({"rules": [RULE | {"operations": ["UPDATE", "DELETE"]}]}, False),
        ({"rules": [RULE | {"resources": ["*"]}]}, True),
        ({"rules": [RULE | {"resources": ["*/status"]}]}, False),
        ({"rules": [RULE | {"resources": ["configmaps/*"]}]}, True),
        ({"rules": [RULE | {"apiGroups": ["apps"]}]}, False),
        ({"rules": [RULE | {"scope": "Cluster"}]}, False),
        ({"rules": [RULE | {"scope": "Namespaced"}]}, True),
        ({"objectSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"objectSelector": {"matchLabels": {"team": "b"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [{"key": "off", "operator": "Exists"}]}}, False),
    ],
)
async def test_rules_and_selectors_select_the_webhooks_to_call(
    server: ApiUnderTest, hook: Webhook, hook_fields: Object, requested: bool
) -> None:
    hook.answers["/v"] = lambda request: {"allowed": True}
    await configure(server, "Validating", {"clientConfig": hook.client("/v")} | hook_fields)
    assert (await create(server, "selected", "?dryRun=All", labels={"team": "a"})).status == 201
    assert bool(hook.received) is requested


async def test_deletions_show_the_old_object_and_can_be_refused(server: ApiUnderTest, hook: Webhook) -> None:
    await create(server, "kept")
    hook.answers["/v"] = lambda request: {"allowed": False, "status": {"message": "kept"}}
    await configure(
        server, "Validating", {"clientConfig": hook.client("/v"), "rules": [RULE | {"operations": ["DELETE"]}]}
    )
    refused = await server.request("DELETE", f"{MAPS}/kept")
    assert refused.json["message"].endswith("denied the request: kept")
    [(_, request)] = hook.received
    assert request["object"] is None and request["oldObject"]["metadata"]["name"] == "kept"
    assert (await server.request("GET", f"{MAPS}/kept")).status == 200


async def test_webhooks_cannot_keep_anybody_from_mending_webhooks(server: ApiUnderTest, hook: Webhook) -> None:
    everything = [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]
    hook.answers["/v"] = lambda request: {"allowed": False}
    await configure(server, "Validating", {"clientConfig": hook.client("/v"), "rules": everything})
    assert (await create(server, "blocked")).status == 400
    done = await server.request("DELETE", f"{CONFIGURATIONS}/validatingwebhookconfigurations/test")
    assert done.status == 200
