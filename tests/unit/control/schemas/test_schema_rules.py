"""Validation rules (CEL) of a schema: messages, transition rules, ratcheting, their budget and types."""

from __future__ import annotations

from typing import Any

from control.schemas import rules
from control.schemas.schema import Schema


def checked(spec: dict[str, Any], value: Any, old: Any = None) -> tuple[list[str], list[str]]:
    found = rules.build(Schema({"type": "object", "properties": {"spec": spec}}))
    assert found is not None
    problems, warnings = found.check({"spec": value}, None if old is None else {"spec": old})
    return [str(problem) for problem in problems], warnings


def ruled(*wanted: dict[str, Any], **more: Any) -> dict[str, Any]:
    properties = {"n": {"type": "integer"}, "m": {"type": "integer"}}
    return {"type": "object", "properties": properties, "x-kubernetes-validations": list(wanted), **more}


def test_rules_report_their_messages() -> None:
    spec = ruled({"rule": "self.n > 1"})
    assert checked(spec, {"n": 2}) == ([], [])
    assert checked(spec, {"n": 1}) == (['spec: Invalid value: "object": failed rule: self.n > 1'], [])
    assert checked(spec, {}) == (['spec: Invalid value: "object": no such key: n evaluating rule: self.n > 1'], [])
    message = ruled(
        {"rule": "self.n > 1", "message": " too small ", "fieldPath": ".n", "reason": "FieldValueForbidden"}
    )
    assert checked(message, {"n": 1}) == (["spec.n: Forbidden: too small"], [])
    made = ruled({"rule": "self.n > 1", "message": "plain", "messageExpression": "'got %d'.format([self.n])"})
    assert checked(made, {"n": 1})[0] == ['spec: Invalid value: "object": got 1']
    failing = ruled({"rule": "self.n > 1", "message": "plain", "messageExpression": "string(self.m)"})
    assert checked(failing, {"n": 1})[0] == ['spec: Invalid value: "object": plain']


def test_transition_rules_compare_with_what_was() -> None:
    spec = ruled({"rule": "self.n >= oldSelf.n", "message": "only up"})
    assert checked(spec, {"n": 1}) == ([], []), "there is nothing to compare with"
    assert checked(spec, {"n": 1}, {"n": 2})[0] == ['spec: Invalid value: "object": only up']
    optional = ruled({"rule": "oldSelf.hasValue() || self.n == 0", "optionalOldSelf": True})
    assert len(checked(optional, {"n": 1})[0]) == 1
    assert checked(optional, {"n": 1}, {"n": 5}) == ([], [])
    items = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {
            "type": "object",
            "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.v == oldSelf.v", "message": "fixed"}],
        },
    }
    old = [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    assert checked(items, [{"k": "b", "v": 2}, {"k": "c", "v": 9}, {"k": "a", "v": 5}], old)[0] == [
        'spec[2]: Invalid value: "object": fixed'
    ]


def test_rules_that_did_not_hold_before_only_warn_where_nothing_changed() -> None:
    spec = {"type": "object", "properties": {"a": ruled({"rule": "self.n > 1"}), "b": {"type": "integer"}}}
    problems, warnings = checked(spec, {"a": {"n": 0}, "b": 2}, {"a": {"n": 0}, "b": 1})
    assert problems == [] and warnings == ['spec.a: Invalid value: "object": failed rule: self.n > 1']
    assert len(checked(spec, {"a": {"n": -1}, "b": 2}, {"a": {"n": 0}, "b": 1})[0]) == 1


def test_rules_have_a_budget_together() -> None:
    spec = {
        "type": "array",
        "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self.matches('^(a|b|c|d|e|f)*$')"}]},
    }
    many = ["a" * 10_000] * 5000
    found = checked(spec, many)[0]
    assert len(found) == 1 and found[0].endswith(
        "validation failed due to running out of cost budget, no further validation rules will be run"
    )


def test_values_of_formats_and_escaped_names_are_reached() -> None:
    properties = {
        "start": {"type": "string", "format": "date-time"},
        "end": {"type": "string", "format": "date-time"},
        "wait": {"type": "string", "format": "duration"},
        "ratio": {"type": "number"},
        "dash-ed.name": {"type": "string"},
        "namespace": {"type": "string"},
        "port": {"x-kubernetes-int-or-string": True},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    }
    spec = {"type": "object", "properties": properties}
    value = {
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-02T00:00:00Z",
        "wait": "90s",
        "ratio": 2,
        "dash-ed.name": "x",
        "namespace": "ns",
        "port": 80,
        "set": ["a", "b"],
    }
    for rule in (
        "self.start < self.end && self.wait == duration('1m30s')",
        "self.ratio / 4.0 == 0.5",
        "self.dash__dash__ed__dot__name == 'x' && self.__namespace__ == 'ns'",
        "type(self.port) == int ? self.port < 100 : self.port == 'http'",
        "self.set == ['b', 'a'] && (self.set + ['a', 'c']).size() == 3",
    ):
        assert checked({**spec, "x-kubernetes-validations": [{"rule": rule}]}, value) == ([], []), rule
