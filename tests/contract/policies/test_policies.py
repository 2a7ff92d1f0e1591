"""Admission policies over the wire: rejections, warnings and audit annotations."""

import asyncio
import json
from typing import Any

import pytest

from control.storage import codec
from kube import bounded_cache
from kube.json_object import Object
from tests.support.admission_policies import (
    GROUP,
    MAPS,
    RULE,
    VALIDATING,
    create,
    establish,
    path_of,
    policy_of,
)
from tests.support.control import ApiUnderTest
from tests.support.webhook import webhook

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_what_fails_an_expression_is_refused_in_upstreams_words(server: ApiUnderTest) -> None:
    await establish(server, {"validations": [{"expression": "size(object.data) <= 1"}]})
    assert (await create(server, "small")).status == 201
    refused = await create(server, "large", {"a": "1", "b": "2"})
    text = (
        "ValidatingAdmissionPolicy 'rule' with binding 'rule-everywhere' denied request: "
        "failed expression: size(object.data) <= 1"
    )
    assert (refused.status, refused.json["reason"]) == (422, "Invalid")
    assert refused.json["message"] == f'configmaps "large" is forbidden: {text}'
    assert refused.json["details"]["causes"] == [{"message": text}]


async def test_messages_reasons_and_variables(server: ApiUnderTest) -> None:
    spec = {
        "variables": [
            {"name": "count", "expression": "size(object.data)"},
            {"name": "twice", "expression": "variables.count * 2"},
        ],
        "validations": [
            {
                "expression": "variables.twice < 6",
                "messageExpression": "'twice is ' + string(variables.twice)",
                "message": "unused",
                "reason": "Forbidden",
            },
            {"expression": "variables.count > 0", "message": "too few"},
        ],
    }
    await establish(server, spec)
    refused = await create(server, "x", {"a": "", "b": "", "c": ""})
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"].endswith("denied request: twice is 6")
    assert (await create(server, "y", {"a": ""})).status == 201


async def test_parameters_by_name_and_by_selector_and_their_absence(server: ApiUnderTest) -> None:
    async def limit(name: str, value: str, **labels: str) -> None:
        body = {"metadata": {"name": name, "labels": labels}, "data": {"most": value}}
        assert (await server.request("POST", MAPS, body)).status == 201

    await limit("limit-one", "1", role="limit")
    await limit("limit-two", "2", role="limit")
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [
            {
                "expression": "size(object.data) <= int(params.data.most)",
                "messageExpression": "string(params.metadata.name)",
            }
        ],
    }
    await establish(server, spec, {"paramRef": {"name": "limit-two", "parameterNotFoundAction": "Deny"}})
    assert (await create(server, "x", {"a": "", "b": ""})).status == 201
    assert (await create(server, "x", {"a": "", "b": "", "c": ""})).json["message"].endswith(": limit-two")
    selector = {"matchLabels": {"role": "limit"}}
    await establish(
        server, spec, {"paramRef": {"selector": selector, "parameterNotFoundAction": "Deny"}}, name="selected"
    )
    assert (await create(server, "x", {"a": "", "b": ""})).json["message"].endswith(": limit-one")
    await establish(server, spec, {"paramRef": {"name": "none", "parameterNotFoundAction": "Allow"}}, name="allowed")
    assert (await create(server, "x", {"a": ""})).status == 201
    await establish(server, spec, {"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}, name="absent")
    refused = await create(server, "x", {"a": ""})
    assert "no params found for policy binding with `Deny` parameterNotFoundAction" in refused.json["message"]


@pytest.mark.parametrize(
    ("chosen", "decoded"),
    [({"name": "limits"}, {"limits"}), ({"selector": {"matchLabels": {"role": "chosen"}}}, {"limits", "more-limits"})],
)
async def test_only_the_parameters_that_a_binding_names_are_decoded(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, chosen: Object, decoded: set[str]
) -> None:
    for namespace in ("params", "another"):
        await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        maps = [
            (name, "chosen") for name in ("limits", "more-limits", "elsewhere")[: 2 if namespace == "params" else 3]
        ]
        for name, role in [*maps, *((f"{namespace}-{number}", "other") for number in range(8))]:
            filler = {f"k{number}": "x" * 20 for number in range(400)}
            body = {"metadata": {"name": name, "labels": {"role": role}}, "data": {"most": "5", **filler}}
            await server.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [RULE | {"resources": ["secrets"]}]},
        "validations": [{"expression": "params.data.most == '5'"}],
    }
    await establish(server, spec, {"paramRef": {**chosen, "namespace": "params", "parameterNotFoundAction": "Deny"}})
    read, decode = list[str](), codec.decode

    def noted(data: bytes) -> Any:
        found = decode(data)
        read.extend([found["metadata"]["name"]] if found.get("kind") == "ConfigMap" else [])
        return found

    monkeypatch.setattr(codec, "decode", noted)
    bounded_cache.forget_all()
    secrets = "/api/v1/namespaces/default/secrets?dryRun=All"
    for _ in range(2):
        made = await server.request("POST", secrets, {"metadata": {"name": "x"}})
        assert made.status == 201, made.body
    assert sorted(read) == sorted(decoded), "each once: what was decoded is kept"


async def test_a_cluster_scoped_kind_has_no_parameters_in_a_namespace(server: ApiUnderTest) -> None:
    spec = {"paramKind": {"apiVersion": "v1", "kind": "Namespace"}, "validations": [{"expression": "true"}]}
    ref = {"name": "default", "namespace": "default", "parameterNotFoundAction": "Allow"}
    await establish(server, spec, {"paramRef": ref})
    refused = await create(server, "x")
    assert "paramRef.namespace must not be provided for a cluster-scoped `paramKind`" in refused.json["message"]


async def test_a_custom_kind_can_be_the_parameter(server: ApiUnderTest) -> None:
    schema = {"type": "object", "properties": {"most": {"type": "integer"}}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "limits.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "limits", "kind": "Limit"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    async with asyncio.timeout(30):
        while (await server.request("GET", "/apis/example.com/v1/limits")).status != 200:
            await asyncio.sleep(0.02)
    limit = {"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "most": 1}
    assert (await server.request("POST", "/apis/example.com/v1/limits", limit)).status == 201
    spec = {
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
        "validations": [{"expression": "size(object.data) <= params.most"}],
    }
    await establish(server, spec, {"paramRef": {"name": "l", "parameterNotFoundAction": "Deny"}})
    assert (await create(server, "x")).status == 201
    assert (await create(server, "x", {"a": "", "b": ""})).status == 422


async def audited(server: ApiUnderTest, note: str) -> Object:
    """Return the annotations of the audit event with this one."""
    async with asyncio.timeout(30):
        while True:
            for line in (server.directory / "audit.log").read_text().splitlines():
                found: Object = json.loads(line).get("annotations", {})
                if note in found:
                    return found
            await asyncio.sleep(0.05)


async def test_a_policy_cannot_replace_what_the_audit_log_says_of_the_authorization(server: ApiUnderTest) -> None:
    notes = [{"key": key, "valueExpression": "'forged'"} for key in ("decision", "reason", "other")]
    await establish(server, {"auditAnnotations": notes}, name="authorization.k8s.io")
    assert (await create(server, "forged")).status == 201
    found = await audited(server, "authorization.k8s.io/other")
    assert found["authorization.k8s.io/decision"] == "allow" and found["authorization.k8s.io/other"] == "forged"
    assert "forged" not in found["authorization.k8s.io/reason"]


async def test_warnings_and_notes_let_the_request_pass(server: ApiUnderTest) -> None:
    spec = {
        "validations": [{"expression": "false", "message": "never good"}],
        "auditAnnotations": [{"key": "name", "valueExpression": "'it is ' + object.metadata.name"}],
    }
    await establish(server, spec, {"validationActions": ["Warn", "Audit"]})
    made = await create(server, "noted")
    assert made.status == 201
    shown = "ValidatingAdmissionPolicy 'rule' with binding 'rule-everywhere'"
    assert made.headers["Warning"] == f'299 - "Validation failed for {shown}: never good"'

    found = await audited(server, "rule/name")
    assert found["rule/name"] == "it is noted"
    [failure] = json.loads(found["validation.policy.admission.k8s.io/validation_failure"])
    assert failure["message"] == "never good" and failure["validationActions"] == ["Warn", "Audit"]


@pytest.mark.parametrize(
    ("policy", "binding", "requested"),
    [
        ({"matchConditions": [{"name": "n", "expression": "object.metadata.name != 'x'"}]}, {}, False),
        ({"matchConditions": [{"name": "n", "expression": "request.operation == 'CREATE'"}]}, {}, True),
        ({"matchConstraints": {"resourceRules": [RULE], "excludeResourceRules": [RULE]}}, {}, False),
        ({"matchConstraints": {"resourceRules": [RULE | {"resourceNames": ["y"]}]}}, {}, False),
        ({"matchConstraints": {"resourceRules": [RULE | {"operations": ["DELETE"]}]}}, {}, False),
        ({}, {"matchResources": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}, False),
        ({}, {"matchResources": {"objectSelector": {"matchLabels": {"team": "b"}}}}, True),
        ({}, {"matchResources": {"resourceRules": [RULE | {"resources": ["secrets"]}]}}, False),
        ({}, {"policyName": "another"}, False),
    ],
)
async def test_constraints_conditions_and_bindings_select_the_policies_to_evaluate(
    server: ApiUnderTest, policy: Object, binding: Object, requested: bool
) -> None:
    await establish(server, {"validations": [{"expression": "false"}], **policy}, binding)
    assert (await create(server, "x", labels={"team": "b"})).status == (422 if requested else 201)


@pytest.mark.parametrize("place", ["matchConstraints", "matchResources"])
async def test_a_patch_cannot_label_a_namespace_past_a_policy(server: ApiUnderTest, place: str) -> None:
    namespaces, rule = "/api/v1/namespaces", RULE | {"resources": ["namespaces"]}
    name, chosen = f"by-{place.lower()}", {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
    assert (await server.request("POST", namespaces, {"metadata": {"name": name}})).status == 201
    constraints = {"resourceRules": [rule], **(chosen if place == "matchConstraints" else {})}
    policy = {"matchConstraints": constraints, "validations": [{"expression": "false"}]}
    await establish(server, policy, {"matchResources": chosen} if place == "matchResources" else {})
    for env, status in (("prod", 422), ("test", 200)):
        patch, merge = {"metadata": {"labels": {"env": env}}}, {"Content-Type": "application/merge-patch+json"}
        answer = await server.request("PATCH", f"{namespaces}/{name}", patch, headers=merge)
        assert answer.status == status, answer.body


async def test_a_failing_expression_is_handled_according_to_the_failure_policy(server: ApiUnderTest) -> None:
    broken = [{"expression": "object.data.missing == 'x'"}]
    await establish(server, {"validations": broken})
    failed = await create(server, "x")
    assert failed.status == 422
    assert failed.json["message"].endswith(
        "expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
    )
    await server.request("DELETE", f"{path_of(VALIDATING)}/rule")
    await server.request("DELETE", f"{path_of(VALIDATING + 'Binding')}/rule-everywhere")
    await establish(server, {"validations": broken, "failurePolicy": "Ignore"}, name="lenient")
    assert (await create(server, "x")).status == 201
    checks = (await server.request("GET", "/metrics")).body.decode()
    for policy, action in (("rule", "deny"), ("lenient", "allow")):
        labels = f'enforcement_action="{action}",error_type="invalid_error",policy="{policy}"'
        assert f"apiserver_validating_admission_policy_check_total{{{labels}," in checks


async def test_expressions_may_use_the_authorizer(server: ApiUnderTest) -> None:
    check = "authorizer.group('').resource('secrets').namespace('default').check('delete').allowed()"
    await establish(server, {"validations": [{"expression": check}]})
    assert (await create(server, "x")).status == 201
    role = {
        "metadata": {"name": "maps"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
    }
    await server.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    bound = {
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    }
    await server.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", bound)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    async with asyncio.timeout(30):
        while (refused := await server.request("POST", MAPS, body, user=("jane", ()))).status == 403:
            await asyncio.sleep(0.02)
    assert refused.status == 422 and "denied request" in refused.json["message"]


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"validations": [{"expression": "object.("}]}, "spec.validations[0].expression", "compilation failed: ERROR"),
        ({"validations": [{"expression": "'text'"}]}, "spec.validations[0].expression", "must evaluate to bool"),
        ({"validations": [{"expression": "request.nothing"}]}, "spec.validations[0].expression", "undefined field"),
        ({"validations": [{"expression": "params.x"}]}, "spec.validations[0].expression", "undeclared reference"),
        (
            {"variables": [{"name": "v", "expression": "1 +"}], "validations": [{"expression": "true"}]},
            "spec.variables[0].expression",
            "compilation failed",
        ),
        (
            {"matchConditions": [{"name": "c", "expression": "1"}], "validations": [{"expression": "true"}]},
            "spec.matchConditions[0].expression",
            "must evaluate to bool",
        ),
    ],
)
async def test_expressions_that_cannot_work_are_refused_when_written(
    server: ApiUnderTest, spec: Object, field: str, message: str
) -> None:
    refused = await server.request("POST", path_of(VALIDATING), policy_of(VALIDATING, spec))
    assert refused.status == 422, refused.body
    [cause] = refused.json["details"]["causes"]
    assert cause["field"] == field and message in cause["message"]


async def test_webhooks_are_called_only_if_their_match_conditions_hold(
    server: ApiUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with webhook(tmp_path_factory.mktemp("hook")) as hook:
        hook.answers["/v"] = lambda request: {"allowed": False}
        entry = {
            "name": "h.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [RULE],
            "clientConfig": hook.client("/v"),
            "matchConditions": [{"name": "not-system", "expression": "!object.metadata.name.startsWith('system-')"}],
        }
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "test"},
            "webhooks": [entry],
        }
        made = await server.request("POST", f"{GROUP}/validatingwebhookconfigurations", body)
        assert made.status == 201, made.body
        assert (await create(server, "system-x")).status == 201 and not hook.received
        assert (await create(server, "x")).status == 400 and hook.paths() == ["/v"]
        await server.request("DELETE", f"{GROUP}/validatingwebhookconfigurations/test")
