"""Validation of definitions with messages: structure, lists, defaults, rules and their cost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.decoding.decode import Decoder
from control.schemas import rulechecks, structural
from kube.api import apiextensions_v1
from kube.errors import StatusError
from kube.json_object import Object


def reported(spec: Object, check: Any = structural.check) -> list[str]:
    """Return what is wrong with a schema whose objects have one field of interest, without the path to it."""
    whole = {"type": "object", "properties": {"spec": spec}}
    return [str(error).replace("S.properties[spec]", "@") for error in check(whole, "S")]


STRUCTURE: dict[str, tuple[Object, list[str]]] = {
    "a type is needed": ({}, ["@.type: Required value: must not be empty for specified object fields"]),
    "items need a type": (
        {"type": "array", "items": {}},
        ["@.items.type: Required value: must not be empty for specified array items"],
    ),
    "arrays need items": ({"type": "array"}, ["@.items: Required value: must be specified"]),
    "shape under anyOf": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"type": "object", "default": 1}]},
        [
            "@.anyOf[0].default: Forbidden: must be undefined to be structural",
            "@.anyOf[0].type: Forbidden: must be empty to be structural",
        ],
    ),
    "fields only judged": (
        {"type": "object", "oneOf": [{"properties": {"a": {"minimum": 1}}}]},
        ["@.properties[a]: Required value: because it is defined in @.oneOf[0].properties[a]"],
    ),
    "int or string may say so": ({"x-kubernetes-int-or-string": True, "anyOf": structural._INT_OR_STRING}, []),
    "preserve false": (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
        ["@.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
    ),
    "embedded without fields": (
        {"type": "object", "x-kubernetes-embedded-resource": True},
        [
            "@.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        ],
    ),
    "properties and additionalProperties": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
        ["@.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    ),
    "closed objects": (
        {"type": "object", "additionalProperties": False},
        ["@.additionalProperties: Forbidden: additionalProperties cannot be set to false"],
    ),
    "unique items": (
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        ["@.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"],
    ),
    "bad pattern": (
        {"type": "string", "pattern": "(a"},
        [
            '@.pattern: Invalid value: "(a": must be a valid regular expression, but isn\'t: error parsing regexp: '
            "missing ): `(a`"
        ],
    ),
    "map keys that are no fields": (
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "port"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
        [
            "@.items.properties[name].default: Required value: this property is in x-kubernetes-list-map-keys, so it "
            "must have a default or be a required property",
            '@.x-kubernetes-list-map-keys[1]: Invalid value: "port": entries must all be names of item properties',
        ],
    ),
    "list type of what is no list": (
        {"type": "string", "x-kubernetes-list-type": "set"},
        ['@.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified'],
    ),
    "default of a wrong type": (
        {"type": "integer", "default": "x"},
        ['@.default: Invalid value: "string": @.default in body must be of type integer: "string"'],
    ),
    "default with unknown fields": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}},
        ['@.default: Invalid value: {"b":1}: must not have unknown fields'],
    ),
    "valid": ({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}, []),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_a_schema_is_checked(name: str) -> None:
    spec, wanted = STRUCTURE[name]
    assert reported(spec) == wanted


MALFORMED = [
    {"type": "array", "items": {"properties": 5}},
    {"type": "object", "additionalProperties": {"properties": [1]}},
    {"type": "object", "additionalProperties": 7},
    {"type": "array", "items": [1]},
    {"type": "array", "items": [{"type": 1}]},
    {"type": "array", "items": {"type": "string", "maxLength": 2**63}},
    {"type": "object", "dependencies": {"a": [1]}},
    {"type": "array", "items": {"type": "array", "items": {"type": "string", "pattern": 5}}},
    {"type": "array", "items": {"type": "string", "allOf": 5}},
    {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [5]}},
]


@pytest.mark.parametrize("spec", MALFORMED)
def test_what_is_no_schema_is_refused_wherever_it_hides(spec: Object) -> None:
    decoder = Decoder(apiextensions_v1.CustomResourceDefinition, "apiextensions.k8s.io/v1", "CustomResourceDefinition")
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": spec}}}}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    body = msgspec.json.encode(head | {"spec": {"versions": [version]}})
    with pytest.raises(
        StatusError, match=r"json: cannot unmarshal .* into Go struct field .*versions\.schema\.open"
    ) as refused:
        decoder.decode(body, "application/json", "Ignore", [])
    assert refused.value.code == 400


def test_the_root_is_an_object_whose_metadata_only_restrict_names() -> None:
    assert [str(e) for e in structural.check({"type": "string"}, "S")] == [
        'S.type: Invalid value: "string": must be object at the root'
    ]
    names = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}
    assert structural.check({"type": "object", "properties": {"metadata": names}}, "S") == []
    more = {"type": "object", "properties": {"labels": {"type": "object"}}}
    assert [str(e) for e in structural.check({"type": "object", "properties": {"metadata": more}}, "S")] == [
        "S.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is "
        "implicitly specified"
    ]


MAP: Object = {"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string"}}


def with_rule(rule: str, **more: Any) -> Object:
    return {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}}, "map": MAP},
        "x-kubernetes-validations": [{"rule": rule, **more}],
    }


RULES: dict[str, tuple[Object, list[str]]] = {
    "unknown field": (
        with_rule("self.b > 1"),
        [
            '.rule: Invalid value: {"Rule":"self.b > 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"",'
            "\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'b'\n"
            " | self.b > 1\n | ....^"
        ],
    ),
    "no bool": (with_rule("self.a"), ['.rule: Invalid value: "self.a": cel expression must evaluate to a bool']),
    "empty": (with_rule(" "), [".rule: Required value: rule is not specified"]),
    "message of two lines": (
        with_rule("self.a > 1", message="a\nb"),
        ['.message: Invalid value: "a\\nb": message must not contain line breaks'],
    ),
    "message expression that is no text": (
        with_rule("self.a > 1", messageExpression="self.a"),
        ['.messageExpression: Invalid value: "self.a": messageExpression must evaluate to a string'],
    ),
    "reason": (
        with_rule("self.a > 1", reason="Nope"),
        [
            '.reason: Unsupported value: "Nope": supported values: "FieldValueDuplicate", "FieldValueForbidden", '
            '"FieldValueInvalid", "FieldValueRequired"'
        ],
    ),
    "field path": (
        with_rule("self.a > 1", fieldPath=".nope"),
        ['.fieldPath: Invalid value: ".nope": must be a valid path'],
    ),
    "optionalOldSelf without oldSelf": (
        with_rule("self.a > 1", optionalOldSelf=True),
        [".optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"],
    ),
    "too dear": (
        with_rule("self.list.all(x, self.list.all(y, x == y))"),
        [
            ".rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, "
            "or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
        ],
    ),
    "keys of a map": (with_rule("self.map.all(key, key.matches('^[a-z]{1,63}$') && key.split('/')[0].size() < 9)"), []),
    "valid": (with_rule("!has(self.a) || self.a >= oldSelf.a", message="only up", fieldPath=".a"), []),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_checked(name: str) -> None:
    spec, wanted = RULES[name]
    assert reported(spec, rulechecks.check) == ["@.x-kubernetes-validations[0]" + text for text in wanted]


def with_items(**item: object) -> dict[str, object]:
    """A list without a limit, whose items have a rule."""
    rule = "(has(self.cidr) && size(self.cidr) > 0) == (has(self.operator) && size(self.operator) > 0)"
    properties = {
        "action": {"type": "string"},
        "cidr": {"type": "string", "maxLength": 18},
        "operator": {"type": "string", "enum": ["In", "NotIn"]},
    }
    rules = [{"rule": rule}]
    return {
        "type": "array",
        "items": {"type": "object", "properties": properties, "x-kubernetes-validations": rules, **item},
    }


def test_required_fields_limit_how_many_items_a_request_has() -> None:
    """As in upstream's SchemaDeclType; Calico's definition of BGP filters depends on it."""
    assert reported(with_items(required=["action"]), rulechecks.check) == []
    (found,) = reported(with_items(), rulechecks.check)
    assert found.startswith(
        "@.items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor"
    )
    spec: Any = with_items(required=["action"])
    spec["items"]["properties"]["action"]["default"] = "Accept"
    assert reported(spec, rulechecks.check) == [found], "what a default fills in is not in the request"


def test_old_values_cannot_be_found_in_lists_without_keys() -> None:
    items = {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    found = reported({"type": "array", "maxItems": 3, "items": items}, rulechecks.check)
    assert found == [
        '@.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the '
        "uncorrelatable portion of the schema within @"
    ]


def test_all_rules_together_have_a_budget_too() -> None:
    text = {"type": "string", "maxLength": 7000, "x-kubernetes-validations": [{"rule": "self.contains(self)"}]}
    spec = {"type": "object", "properties": {f"f{i}": text for i in range(30)}}
    found = [str(e) for e in rulechecks.check({"type": "object", "properties": {"spec": spec}}, "S")]
    assert found[-1].startswith(
        "S: Forbidden: x-kubernetes-validations estimated rule & messageExpression cost total for entire OpenAPIv3 schema "
        "exceeds budget by factor of "
    )


NAME = {"type": "string", "maxLength": 63}
FIELDS: Object = {
    "type": "object",
    "properties": {
        "a": NAME,
        "b": NAME,
        "port": {"type": "integer", "format": "int32"},
        "mode": {"type": "string", "enum": ["A", "B"]},
        "wait": {"type": "string"},
        "url": {"type": "string", "maxLength": 2048},
        "weights": {"type": "array", "maxItems": 10, "items": {"type": "integer"}},
        "names": {"type": "array", "maxItems": 10, "items": NAME},
        "labels": {"type": "object", "maxProperties": 10, "additionalProperties": NAME},
        "q": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+$",
        },
        "conds": {
            "type": "array",
            "maxItems": 8,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {"type": NAME, "status": NAME, "reason": NAME},
            },
        },
        "nested": {
            "type": "object",
            "properties": {"deep": {"type": "object", "properties": {"v": {"type": "integer"}}}},
        },
        "ratio": {"type": "number"},
        "on": {"type": "boolean"},
        "start": {"type": "string", "format": "date-time"},
        "set": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": NAME},
    },
}
AS_WRITTEN = r"""
self == oldSelf
!has(oldSelf.a) || has(self.a)
self.port >= 1 && self.port <= 65535
self.names.all(x, x.matches('^[a-z]+$'))
duration(self.wait) > duration('0s')
isURL(self.url) && url(self.url).getScheme() in ['http', 'https']
self.weights.sum() == 100
[has(self.a), has(self.b)].exists_one(x, x)
[has(self.a),has(self.b)].filter(x,x==true).size() == 1
(has(self.a) ? 1 : 0) + (has(self.b) ? 1 : 0) == 1
'x' in self.labels && self.labels['x'] == 'y'
self.labels.all(key, key.startsWith('a') && self.labels[key].size() < 10)
type(self.q) == string ? self.q.endsWith('%') : self.q < 100
quantity(string(self.q)).isGreaterThan(quantity('1'))
isQuantity(string(self.q))
self.conds.exists(c, c.type == 'Ready' && c.status == 'True')
self.conds.filter(c, c.type == 'Ready').all(c, c.?reason.orValue('') != '')
self.conds.all(c, c.type in oldSelf.conds.map(o, o.type))
has(self.nested) && has(self.nested.deep) && has(self.nested.deep.v) && self.nested.deep.v > 0
self.?nested.?deep.?v.orValue(0) >= 0
self.?names.orValue([]).size() < 5
self.ratio >= 0.5 && self.ratio <= 1
self.ratio > 0 && double(self.port) > self.ratio
self.on == true || !self.on
self.start < timestamp('2030-01-01T00:00:00Z')
self.set == oldSelf.set && oldSelf.set.all(x, x in self.set)
self.names.map(n, n.lowerAscii()).isSorted()
self.mode == 'A' ? has(self.a) : !has(self.a)
self.a.split('.').size() == 2 && self.a.substring(1) != ''
string(self.port) == '80' || int(self.b) == self.port
self.names.indexOf('x') == -1
self.names.size() == 0 || self.names[0] != self.names[size(self.names) - 1]
self.conds.map(c, c.type).join(',') != ''
self.conds == oldSelf.conds
sets.contains(self.names, ['a'])
cidr(self.a).containsIP(self.b) && ip(self.b).family() == 4
!format.dns1123Label().validate(self.a).hasValue()
self.names.exists(n, self.labels.exists(k, k == n))
"""


@pytest.mark.parametrize("rule", AS_WRITTEN.strip().splitlines())
def test_rules_as_operators_write_them_are_taken(rule: str) -> None:
    assert reported({**FIELDS, "x-kubernetes-validations": [{"rule": rule}]}, rulechecks.check) == []


def test_the_root_has_its_name_and_kind_in_rules() -> None:
    rules = [{"rule": "self.metadata.name == self.spec.a && self.kind != ''"}]
    whole = {"type": "object", "properties": {"spec": FIELDS}, "x-kubernetes-validations": rules}
    assert structural.check(whole, "S") == [] and rulechecks.check(whole, "S") == []
    rules[0]["rule"] = "self.metadata.labels['a'] == 'b'"
    assert "undefined field 'labels'" in str(rulechecks.check(whole, "S")[0])
