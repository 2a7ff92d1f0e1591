"""Programs outside that say whose a token is and who may do what, asked over real HTTPS by a real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server
from tests.support.reviewer import Reviewer, reviewer

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
AUDIENCE = "https://kubernetes.default.svc.cluster.local"
GRACE = ("grace", ())


def tokens(spec: Object) -> Object:
    if spec["token"] == "good":
        user = {"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"Acme.example/Team": ["a"]}}
        return {"authenticated": True, "user": user, "audiences": [AUDIENCE]}
    if spec["token"] == "vault":
        return {"authenticated": True, "user": {"username": "vault"}, "audiences": ["vault"]}
    return {"authenticated": False, "error": "no such token" if spec["token"] == "told" else ""}


def access(spec: Object) -> Object:
    if spec.get("user") == "evil":
        return {"allowed": False, "denied": True, "reason": "we know you"}
    verb = (spec.get("resourceAttributes") or spec["nonResourceAttributes"])["verb"]
    return {"allowed": spec.get("user") == "grace" and verb in ("get", "list"), "reason": "so says the hook"}


def configuration(hook: Reviewer, *conditions: str, policy: str = "NoOpinion", path: str = "/access") -> str:
    webhook = {
        "authorizedTTL": "5m",
        "unauthorizedTTL": "30s",
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "failurePolicy": policy,
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(hook.kubeconfig(path))},
        "matchConditions": [{"expression": text} for text in conditions],
    }
    authorizers = [
        {"type": "Node", "name": "node"},
        {"type": "RBAC", "name": "rbac"},
        {"type": "Webhook", "name": "hook", "webhook": webhook},
    ]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}
    return yaml.safe_dump({**kind, "authorizers": authorizers})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ApiUnderTest, Reviewer]]:
    directory = tmp_path_factory.mktemp("api")
    async with reviewer(directory) as hook:
        hook.answers = {"/tokens": tokens, "/access": access, "/other": lambda spec: {"allowed": True}}
        file = directory / "authorization.yaml"
        file.write_text(configuration(hook))
        changes: Object = {
            "authentication_webhook_file": hook.kubeconfig("/tokens"),
            "authorization_config_file": file,
            "configuration_check": 0.02,
        }
        async with api_server(directory, **changes) as api:
            yield api, hook


async def who(api: ApiUnderTest, token: str) -> tuple[int, Any]:
    answer = await api.request("POST", WHO, {}, user=("", ()), headers={"Authorization": f"Bearer {token}"})
    return answer.status, answer.json.get("status", {}).get("userInfo") if answer.status == 201 else answer.json


async def test_a_token_is_authenticated_by_the_webhook_and_cached(
    server: tuple[ApiUnderTest, Reviewer],
) -> None:
    api, hook = server
    status, user = await who(api, "good")
    assert status == 201
    assert (user["username"], user["uid"], user["groups"]) == ("ann", "7", ["dev", "system:authenticated"])
    assert user["extra"] == {"acme.example/team": ["a"]}
    requested = [body for body in hook.at("/tokens") if body["spec"]["token"] == "good"]
    assert requested[0]["apiVersion"] == "authentication.k8s.io/v1" and requested[0]["spec"]["audiences"] == [AUDIENCE]
    assert hook.headers[0]["Authorization"] == "Bearer t0ken"
    await asyncio.gather(*(who(api, "good") for _ in range(3)))
    assert len([body for body in hook.at("/tokens") if body["spec"]["token"] == "good"]) == 1


async def test_what_it_does_not_know_is_401_and_kept_too(server: tuple[ApiUnderTest, Reviewer]) -> None:
    api, hook = server
    for token in ("unknown", "told", "unknown"):
        assert (await who(api, token))[0] == 401
    assert len([body for body in hook.at("/tokens") if body["spec"]["token"] == "unknown"]) == 1


async def test_a_token_for_another_audience_is_only_reviewed_for_that(server: tuple[ApiUnderTest, Reviewer]) -> None:
    api, _ = server
    assert (await who(api, "vault"))[0] == 401
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    found = (await api.request("POST", reviews, {"spec": {"token": "vault", "audiences": ["vault"]}})).json["status"]
    assert found["authenticated"] is True and found["audiences"] == ["vault"]
    assert found["user"]["username"] == "vault"


async def test_a_failed_review_is_retried_and_a_permanent_failure_is_401(server: tuple[ApiUnderTest, Reviewer]) -> None:
    api, hook = server
    hook.failures = [503]
    assert (await who(api, "later"))[0] == 401
    assert len([body for body in hook.at("/tokens") if body["spec"]["token"] == "later"]) == 2
    hook.failures = [400]
    assert (await who(api, "later-still"))[0] == 401
    assert len([body for body in hook.at("/tokens") if body["spec"]["token"] == "later-still"]) == 1


async def test_what_roles_do_not_give_the_webhook_may(server: tuple[ApiUnderTest, Reviewer]) -> None:
    api, hook = server
    path = "/api/v1/namespaces/default/configmaps"
    assert (await api.request("GET", path + "?labelSelector=a%3Db", user=GRACE)).status == 200
    requested = hook.at("/access")[-1]
    assert requested["apiVersion"] == "authorization.k8s.io/v1" and requested["kind"] == "SubjectAccessReview"
    assert requested["spec"]["resourceAttributes"] == {
        "namespace": "default",
        "verb": "list",
        "version": "v1",
        "resource": "configmaps",
        "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
    }
    assert requested["spec"]["user"] == "grace" and requested["spec"]["groups"] == ["system:authenticated"]
    before = len(hook.at("/access"))
    assert (await api.request("GET", path + "?labelSelector=a%3Db", user=GRACE)).status == 200
    assert len(hook.at("/access")) == before, "an answer is kept"
    refused = await api.request("DELETE", path + "/x", user=GRACE)
    assert refused.status == 403 and refused.json["message"].endswith(": so says the hook")
    denied = await api.request("GET", path, user=("evil", ()))
    assert denied.status == 403 and denied.json["message"].endswith(": we know you")
    before = len(hook.at("/access"))
    assert (await api.request("GET", path)).status == 200
    assert len(hook.at("/access")) == before, "system:masters are never asked about"


async def test_reviews_go_through_the_same_authorizers(server: tuple[ApiUnderTest, Reviewer]) -> None:
    api, _ = server
    requested = {"namespace": "default", "verb": "get", "resource": "secrets"}
    path = "/apis/authorization.k8s.io/v1/"
    spec = {"user": "grace", "resourceAttributes": requested}
    found = (await api.request("POST", path + "subjectaccessreviews", {"spec": spec})).json["status"]
    assert found == {"allowed": True, "reason": "so says the hook"}
    spec["user"] = "evil"
    found = (await api.request("POST", path + "subjectaccessreviews", {"spec": spec})).json["status"]
    assert found == {"allowed": False, "denied": True, "reason": "we know you"}
    body = {"spec": {"namespace": "default"}}
    found = (await api.request("POST", path + "selfsubjectrulesreviews", body, user=GRACE)).json["status"]
    assert found["incomplete"] is True
    assert found["evaluationError"] == "webhook authorizer does not support user rule resolution"


async def test_expressions_of_policies_wait_for_the_webhook(server: tuple[ApiUnderTest, Reviewer]) -> None:
    api, hook = server
    base = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    text = "!has(object.data) || authorizer.serviceAccount('default', object.data.who).group('')"
    policy = {
        "metadata": {"name": "asks"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": text + ".resource('pods').namespace('default').check('get').allowed()"}],
        },
    }
    assert (await api.request("POST", f"{base}/validatingadmissionpolicies", policy)).status == 201
    binding = {"metadata": {"name": "asks"}, "spec": {"policyName": "asks", "validationActions": ["Deny"]}}
    assert (await api.request("POST", f"{base}/validatingadmissionpolicybindings", binding)).status == 201
    path = "/api/v1/namespaces/default/configmaps?dryRun=All"
    try:
        async with asyncio.timeout(30):
            while True:  # until the policy holds
                body = {"metadata": {"name": "x"}, "data": {"who": "nobody"}}
                if (await api.request("POST", path, body)).status == 422:
                    break
        users = {body["spec"].get("user") for body in hook.at("/access")}
        assert "system:serviceaccount:default:nobody" in users
    finally:
        await api.request("DELETE", f"{base}/validatingadmissionpolicybindings/asks")
        await api.request("DELETE", f"{base}/validatingadmissionpolicies/asks")


async def reloaded(api: ApiUnderTest, status: str = "success") -> float:
    name = "apiserver_authorization_config_controller_automatic_reloads_total"
    for line in (await api.request("GET", "/metrics")).body.decode().splitlines():
        if line.startswith(name) and f'status="{status}"' in line:
            return float(line.rpartition(" ")[2])
    return 0.0


async def change(api: ApiUnderTest, text: str, status: str = "success") -> None:
    """Write the file and wait until the server has taken or refused it."""
    file = api.directory / "authorization.yaml"
    before = await reloaded(api, status)
    file.write_text(text)
    async with asyncio.timeout(30):
        while await reloaded(api, status) == before:
            await asyncio.sleep(0.02)


async def test_a_changed_file_holds_at_once_and_a_bad_one_changes_nothing(
    server: tuple[ApiUnderTest, Reviewer],
) -> None:
    api, hook = server
    path = "/api/v1/namespaces/default/services"
    await change(api, configuration(hook, "request.user == 'heidi'", "has(request.resourceAttributes)", path="/other"))
    assert (await api.request("GET", path, user=GRACE)).status == 403
    assert (await api.request("GET", path, user=("heidi", ()))).status == 200
    assert (await api.request("GET", "/metrics", user=("heidi", ()))).status == 403
    for bad in ("kind: [", configuration(hook, "request.nothing == 1"), configuration(hook).replace("RBAC", "ABAC")):
        await change(api, bad, "failure")
        assert (await api.request("GET", path, user=("heidi", ()))).status == 200
    without = json.loads(json.dumps(yaml.safe_load(configuration(hook))))
    del without["authorizers"][1]
    await change(api, yaml.safe_dump(without), "failure")
    await change(api, configuration(hook))
    assert (await api.request("GET", path, user=("heidi", ()))).status == 403


@pytest.mark.parametrize(("policy", "status"), [("NoOpinion", 200), ("Deny", 403)])
async def test_a_failure_is_handled_according_to_its_failure_policy(
    server: tuple[ApiUnderTest, Reviewer], policy: str, status: int
) -> None:
    api, hook = server
    text = yaml.safe_load(configuration(hook, policy=policy, path="/away"))
    # The hook first: what roles allow must be kept from nobody, or from everybody.
    text["authorizers"].insert(0, text["authorizers"].pop())
    await change(api, yaml.safe_dump(text))
    try:
        assert (await api.request("GET", "/version", user=("ivan", ()))).status == status
    finally:
        await change(api, configuration(hook))
