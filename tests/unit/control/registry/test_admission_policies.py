"""Validation of policies and bindings that cannot work."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import created, problems, update_problems

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}


def policy(kind: str = "ValidatingAdmissionPolicy", **spec: Any) -> Object:
    if kind.startswith("Validating"):
        body: Object = {"validations": [{"expression": "true", "message": "never"}]}
    else:
        change = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}}
        body = {"mutations": [change], "reinvocationPolicy": "Never"}
    body |= {"matchConstraints": {"resourceRules": [copy.deepcopy(RULE)]}} | spec
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "p.example.com"},
        "spec": body,
    }


def binding(kind: str = "ValidatingAdmissionPolicyBinding", **spec: Any) -> Object:
    body: Object = {"policyName": "p.example.com"}
    if kind.startswith("Validating"):
        body["validationActions"] = ["Deny"]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "b"},
        "spec": body | spec,
    }


def rule(expression: str, **more: str) -> Object:
    return {"validations": [{"expression": expression, **more}]}


BOTH = "validations or auditAnnotations must contain at least one item"
POLICIES: list[tuple[Object, list[str]]] = [
    ({}, []),
    (
        {"validations": []},
        [f"spec.validations: Required value: {BOTH}", f"spec.auditAnnotations: Required value: {BOTH}"],
    ),
    (rule("6"), ['spec.validations[0].expression: Invalid value: "6": must evaluate to bool but got int']),
    (
        rule("object.spec.ready"),
        ['spec.validations[0].expression: Invalid value: "object.spec.ready": must evaluate to bool but got dyn'],
    ),
    (rule("has(object.x) && object.x"), []),
    (
        rule("true", messageExpression="object.metadata.name"),
        [
            'spec.validations[0].messageExpression: Invalid value: "object.metadata.name": must evaluate to string but '
            "got dyn"
        ],
    ),
    (
        {"auditAnnotations": [{"key": "k", "valueExpression": " true "}]},
        [
            'spec.auditAnnotations[0].valueExpression: Invalid value: " true ": must evaluate to one of [string '
            "null_type] but got bool"
        ],
    ),
    (
        {"validations": [{"expression": "true", "reason": "Foo"}]},
        [
            'spec.validations[0].reason: Unsupported value: "Foo": supported values: "Forbidden", "Invalid", '
            '"RequestEntityTooLarge"'
        ],
    ),
    (
        {"validations": [{"expression": "true", "message": "a\nb"}]},
        ['spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks'],
    ),
    (
        {"validations": [{"expression": "true", "message": " ", "messageExpression": " "}]},
        [
            'spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified',
            'spec.validations[0].message: Invalid value: " ": must be non-empty if specified',
        ],
    ),
    (
        {"variables": [{"name": "n-x", "expression": "1"}]},
        ['spec.variables[0].name: Invalid value: "n-x": must be a valid CEL identifier'],
    ),
    (
        {"variables": [{"name": "for", "expression": "1"}]},
        ['spec.variables[0].name: Invalid value: "for": must be a valid CEL identifier'],
    ),
    (
        {"auditAnnotations": [{"key": "a", "valueExpression": "'x'"}, {"key": "a", "valueExpression": "'y'"}]},
        ['spec.auditAnnotations[1].key: Duplicate value: "a"'],
    ),
    (
        {"auditAnnotations": [{"key": f"k{n}", "valueExpression": "'x'"} for n in range(21)]},
        ["must not have more than 20 auditAnnotations"],
    ),
    (
        {"auditAnnotations": [{"key": "k", "valueExpression": "'" + "x" * 6000 + "'"}]},
        ["spec.auditAnnotations[0].valueExpression: Required value: must not exceed 5120 bytes in length"],
    ),
    (
        {"paramKind": {"apiVersion": "a/b/c", "kind": "Config_Map"}},
        [
            'spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
            'spec.paramKind.kind: Invalid value: "Config_Map": may have mixed case, but should otherwise match: ',
        ],
    ),
    (
        {"matchConditions": [{"name": f"c{n}", "expression": "true"} for n in range(65)]},
        ["spec.matchConditions: Too many: 65: must have at most 64 items"],
    ),
    (
        {"matchConstraints": {"resourceRules": [RULE | {"resourceNames": ["a", "a/b", "a"]}], "matchPolicy": "No"}},
        [
            'spec.matchConstraints.matchPolicy: Unsupported value: "No": supported values: "Equivalent", "Exact"',
            'spec.matchConstraints.resourceRules[0].resourceNames[1]: Invalid value: "a/b"',
            'spec.matchConstraints.resourceRules[0].resourceNames[2]: Duplicate value: "a"',
        ],
    ),
    (
        {"matchConstraints": {"resourceRules": [RULE], "excludeResourceRules": [RULE | {"resources": []}]}},
        ["spec.matchConstraints.excludeResourceRules[0].resources: Required value"],
    ),
]


@pytest.mark.parametrize(("spec", "message"), POLICIES)
def test_what_is_wrong_with_a_policy_is_named(spec: Object, message: list[str]) -> None:
    check(problems(policy(**spec)), message)


def test_names_of_conditions_and_annotations_are_qualified_names() -> None:
    conditions = [{"name": "not so", "expression": "true"}]
    notes = [{"key": "n n", "valueExpression": "'x'"}]
    found = problems(policy(matchConditions=conditions, auditAnnotations=notes))
    assert [problem.partition(": ")[0] for problem in found] == [
        "spec.matchConditions[0].name",
        "spec.auditAnnotations[0].key",
    ]
    assert '"p.example.com/n n"' in found[1]


def test_a_policy_that_mutates_is_neither_for_deletions_nor_invoked_by_an_unknown_rule() -> None:
    kind = "MutatingAdmissionPolicy"
    assert problems(policy(kind)) == []
    check(
        problems(policy(kind, reinvocationPolicy="Always")),
        ['spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"'],
    )
    rules = {"resourceRules": [RULE | {"operations": ["CREATE", "DELETE"]}]}
    check(
        problems(policy(kind, matchConstraints=rules)),
        [
            'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", '
            '"CONNECT", "CREATE", "UPDATE"'
        ],
    )
    check(
        problems(binding("MutatingAdmissionPolicyBinding", matchResources=rules)),
        [
            'spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", '
            '"CONNECT", "CREATE", "UPDATE"'
        ],
    )


PATCH, APPLY = {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}, {"expression": "Object{}"}
PATCHES, OBJECT = "must evaluate to list(JSONPatch) but got", "must evaluate to Object but got"
MUTATIONS: list[tuple[Object, list[str]]] = [
    ({"patchType": "JSONPatch", "jsonPatch": PATCH}, []),
    ({"patchType": "ApplyConfiguration", "applyConfiguration": APPLY}, []),
    ({}, ["patchType: Required value"]),
    (
        {"patchType": "Merge"},
        ['patchType: Unsupported value: "Merge": supported values: "ApplyConfiguration", "JSONPatch"'],
    ),
    (
        {"patchType": "ApplyConfiguration", "applyConfiguration": {}},
        ["applyConfiguration.expression: Required value"],
    ),
    (
        {"patchType": "JSONPatch", "applyConfiguration": APPLY},
        [
            "jsonPatch: Required value: must be specified when patchType is JSONPatch",
            'applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when patchType is JSONPatch',
        ],
    ),
    (
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}},
        [f'jsonPatch.expression: Invalid value: "[]": {PATCHES} list(dyn)'],
    ),
    (
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "1 < 2"}},
        [f'applyConfiguration.expression: Invalid value: "1 < 2": {OBJECT} bool'],
    ),
    (
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "object"}},
        [f'applyConfiguration.expression: Invalid value: "object": {OBJECT} dyn'],
    ),
]


@pytest.mark.parametrize(("mutation", "expected"), MUTATIONS)
def test_mutations_name_the_expression_of_their_patch_type(mutation: Object, expected: list[str]) -> None:
    found = problems(policy("MutatingAdmissionPolicy", mutations=[mutation]))
    assert found == [f"spec.mutations[0].{text}" for text in expected]


def test_match_conditions_that_stay_are_not_checked_again() -> None:
    old = policy(matchConditions=[{"name": "c", "expression": "params.foo == 1"}])
    new = copy.deepcopy(old)
    new["spec"]["failurePolicy"] = "Ignore"
    assert not update_problems(created(old), new)
    new["spec"]["matchConditions"][0]["name"] = "d"
    (problem,) = update_problems(created(old), new)
    assert "undeclared reference to 'params'" in problem


def test_the_parts_of_a_json_patch_are_text() -> None:
    def patched(expression: str) -> list[str]:
        change = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
        return problems(policy("MutatingAdmissionPolicy", mutations=[change]))

    assert patched("[JSONPatch{op: 'add', path: '/a', value: 1}]") == []
    [found] = patched("[JSONPatch{op: 1, path: '/a'}]")
    assert "expected type of field 'op' is 'string' but provided type is 'int'" in found


BINDINGS: list[tuple[Object, list[str]]] = [
    ({"paramRef": {"name": "a", "parameterNotFoundAction": "Deny"}}, []),
    ({"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}}, []),
    (
        {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}},
        [
            "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
            "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
        ],
    ),
    (
        {"paramRef": {"namespace": "default"}},
        [
            "spec.paramRef: Required value: one of name or selector must be specified",
            "spec.paramRef.parameterNotFoundAction: Required value",
        ],
    ),
    (
        {"paramRef": {"name": "a", "parameterNotFoundAction": "Foo"}},
        ['spec.paramRef.parameterNotFoundAction: Unsupported value: "Foo": supported values: "Deny", "Allow"'],
    ),
    ({"policyName": "A_b"}, ['spec.policyName: Invalid value: "A_b"']),
    (
        {"matchResources": {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
        ["spec.matchResources.objectSelector.matchExpressions[0].values: Required value"],
    ),
]


@pytest.mark.parametrize("kind", ["ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding"])
@pytest.mark.parametrize(("spec", "message"), BINDINGS)
def test_what_is_wrong_with_a_binding_is_named(kind: str, spec: Object, message: list[str]) -> None:
    check(problems(binding(kind, **spec)), message)


def test_an_action_is_named_once() -> None:
    check(problems(binding(validationActions=["Deny", "Deny"])), ['spec.validationActions[1]: Duplicate value: "Deny"'])


def check(found: list[str], message: list[str]) -> None:
    assert len(found) == len(message), found
    for problem, expected in zip(found, message, strict=True):
        assert expected in problem
