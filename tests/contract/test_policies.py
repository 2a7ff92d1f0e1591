"""Admission policies over the wire: rejections, mutations, warnings and audit annotations."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from control.cel import Program, Result, parser, program
from control.storage import codec
from kube import bounded_cache
from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server
from tests.support.webhook import webhook

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAPS = "/api/v1/namespaces/default/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}
VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    directory = tmp_path_factory.mktemp("api")
    policy = directory / "audit.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [create]}]\n")
    async with api_server(directory, audit_policy_file=policy, audit_log_file=directory / "audit.log") as api:
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def server(started: ApiUnderTest) -> AsyncIterator[ApiUnderTest]:
    yield started
    for plural in (
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "validatingwebhookconfigurations",
    ):
        await started.request("DELETE", f"{GROUP}/{plural}")


def policy_of(kind: str, spec: Object, name: str = "rule") -> Object:
    full = {"matchConstraints": {"resourceRules": [RULE]}, **spec}
    if kind == MUTATING:
        full.setdefault("reinvocationPolicy", "Never")
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": full,
    }


def path_of(kind: str) -> str:
    return f"{GROUP}/{kind.lower().replace('policybinding', 'policybindings').removesuffix('policy')}" + (
        "policies" if kind.endswith("Policy") else ""
    )


async def establish(
    server: ApiUnderTest, spec: Object, binding: Object | None = None, kind: str = VALIDATING, name: str = "rule"
) -> None:
    """Make a policy and its binding."""
    made = await server.request("POST", path_of(kind), policy_of(kind, spec, name))
    assert made.status == 201, made.body
    bound = {"policyName": name, **(binding or {})}
    if kind == VALIDATING:
        bound.setdefault("validationActions", ["Deny"])
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": f"{name}-everywhere"},
        "spec": bound,
    }
    made = await server.request("POST", path_of(f"{kind}Binding"), body)
    assert made.status == 201, made.body


async def create(server: ApiUnderTest, name: str, data: Object | None = None, **metadata: Any) -> Any:
    given = {"a": "1"} if data is None else data
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": given}
    return await server.request("POST", f"{MAPS}?dryRun=All", body)


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


COSTLY = "object.data.all(a, object.data.all(b, a != '' || b != ''))"


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the threads in which expressions are evaluated to their end."""
    seen = set[str]()
    original = Program.evaluate

    def evaluate(self: Program, *args: Any) -> Result:
        result = original(self, *args)
        seen.add(threading.current_thread().name.partition("_")[0])
        return result

    monkeypatch.setattr(Program, "evaluate", evaluate)
    return seen


@pytest.mark.parametrize("part", ["validations", "matchConditions", "mutations"])
async def test_expressions_that_cost_much_are_evaluated_beside_the_event_loop(
    server: ApiUnderTest, threads: set[str], part: str
) -> None:
    allowed = "authorizer.group('').resource('configmaps').check('create').allowed()"
    spec: Object = {"validations": [{"expression": f"{allowed} && {COSTLY} && has(object.data.none)"}]}
    kind = VALIDATING
    if part == "matchConditions":
        spec = {part: [{"name": "c", "expression": COSTLY}], "validations": [{"expression": "1 == 2"}]}
    elif part == "mutations":
        kind, patch = MUTATING, f"[JSONPatch{{op: 'add', path: '/data/made', value: string({COSTLY})}}]"
        spec = {part: [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]}
    await establish(server, spec, kind=kind)
    answer = await create(server, "x", {f"key-{number}": "v" for number in range(100)})
    assert answer.json["data"]["made"] == "true" if part == "mutations" else answer.status == 422
    assert "large-objects" in threads


LONG = " && ".join(["!has(object.data.none)"] * 10)


async def test_long_expressions_are_compiled_beside_the_event_loop(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[tuple[str, str]] = []
    parse = parser.parse

    def parsing(text: str) -> Any:
        compiled.append((text, threading.current_thread().name.partition("_")[0]))
        return parse(text)

    monkeypatch.setattr(program, "parse", parsing)
    variables = [{"name": "v", "expression": f"{LONG} && true"}]
    conditions = [{"name": "c", "expression": f"{LONG} || true"}]
    spec: Object = {"variables": variables, "matchConditions": conditions, "validations": [{"expression": LONG}]}
    await establish(server, spec)
    assert (await create(server, "x")).status == 201
    path = f"{path_of(VALIDATING)}/rule"
    async with asyncio.timeout(30):
        while not (await server.request("GET", path)).json["status"].get("observedGeneration"):
            await asyncio.sleep(0.02)
    hook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1"},
        "rules": [RULE],
        "matchConditions": [{"name": "c", "expression": f"{LONG} && false"}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {"metadata": {"name": "long"}, "webhooks": [hook]}
    assert (await server.request("POST", f"{GROUP}/validatingwebhookconfigurations", body)).status == 201
    assert (await create(server, "y")).status == 201
    wanted = {LONG, f"{LONG} && true", f"{LONG} || true", f"{LONG} && false"}
    assert {text for text, _ in compiled} >= wanted
    assert {thread for text, thread in compiled if text in wanted} == {"large-objects"}


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


async def test_mutations_lay_a_configuration_over_the_object_or_patch_it(server: ApiUnderTest) -> None:
    apply = "Object{metadata: Object.metadata{labels: {'team': 'a'}}, data: {'added': string(size(object.data))}}"
    patch = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/x'), value: 'patched'}]"
    await establish(
        server,
        {
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": apply}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}},
            ]
        },
        kind=MUTATING,
    )
    made = await create(server, "m", labels={"kept": "yes"})
    assert made.status == 201, made.body
    assert made.json["metadata"]["labels"] == {"kept": "yes", "team": "a", "example.com/x": "patched"}
    assert made.json["data"] == {"a": "1", "added": "1"}


async def test_a_mutation_that_fails_changes_nothing(server: ApiUnderTest) -> None:
    wrong = "Object{data: {'n': 5}}"
    spec = {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": wrong}}]}
    await establish(server, spec, kind=MUTATING)
    refused = await create(server, "m")
    assert refused.status == 403
    assert "policy 'rule' with binding 'rule-everywhere' denied request: " in refused.json["message"]
    await server.request("DELETE", f"{path_of(MUTATING)}/rule")
    await server.request("DELETE", f"{path_of(MUTATING + 'Binding')}/rule-everywhere")
    await establish(server, {**spec, "failurePolicy": "Ignore"}, kind=MUTATING, name="lenient")
    assert (await create(server, "m")).json["data"] == {"a": "1"}


async def test_a_json_patch_whose_test_fails_changes_nothing_and_the_others_are_applied(server: ApiUnderTest) -> None:
    """Upstream: jsonPatcher.Patch in apiserver/pkg/admission/plugin/policy/mutating/patch."""
    add = "JSONPatch{op: 'add', path: '/data/%s', value: 'x'}"
    patches = [
        f"[{add % 'before'}, JSONPatch{{op: 'test', path: '/data/a', value: '2'}}]",
        f"[JSONPatch{{op: 'test', path: '/data/a', value: '1'}}, {add % 'made'}]",
    ]
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}} for patch in patches]
    await establish(server, {"mutations": mutations}, kind=MUTATING)
    assert (await create(server, "m")).json["data"] == {"a": "1", "made": "x"}


async def test_a_mutation_whose_values_share_their_parts_is_refused_before_it_is_written_out(
    server: ApiUnderTest,
) -> None:
    shared = "['x']" + ".map(v, [v, v, v, v, v, v, v, v, v, v])" * 9
    expression = f"[JSONPatch{{op: 'add', path: '/data/made', value: {shared}}}]"
    await establish(
        server, {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}, kind=MUTATING
    )
    refused = await create(server, "m")
    assert refused.status == 403 and "the result has more than" in refused.json["message"], refused.body[:300]


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
