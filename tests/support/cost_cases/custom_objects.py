"""Custom resources, and the schemas that they are read by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from control.custom.decoder import CustomDecoder
from control.schemas import structural, uniqueness, validation
from control.schemas.schema import Schema
from tests.support.cost_cases.inputs import OBJECT, cases

FREE: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object"}}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "free": FREE,
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "mixed": {
                    "type": "array",
                    "items": {"x-kubernetes-preserve-unknown-fields": True},
                    "x-kubernetes-list-type": "set",
                },
                "keyed": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"k": {"type": "string"}, "v": {"type": "string", "default": "d"}},
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                },
                "unique": {"type": "array", "items": {"type": "string"}},
                "words": {"type": "array", "items": {"type": "string", "enum": [f"w{i}" for i in range(50)]}},
                "pattern": {"type": "string", "pattern": "^(a+)+$"},
            },
        }
    },
}
CUSTOM = Schema(SCHEMA)
CUSTOMS = CustomDecoder(CUSTOM, "example.com/v1", "Thing")
THINGS: dict[str, Callable[[int], Any]] = {
    "items below a long key": lambda size: {"spec": {"free": {"k" * (size // 2): [{}] * (size // 6)}}},
    "wrong items below a long key": lambda size: {"spec": {"free": {"k" * (size // 2): [1] * (size // 4)}}},
    "unknown fields below a long key": lambda size: {
        "spec": {"free": {"k" * (size // 2): [{f"u{i}": 1 for i in range(size // 20)}]}}
    },
    "unknown fields": lambda size: {"spec": {f"u{i}": 1 for i in range(size // 10)}},
    "a set": lambda size: {"spec": {"set": [f"v{i}" for i in range(size // 9)]}},
    "a set of one value": lambda size: {"spec": {"set": ["v"] * (size // 4)}},
    "a set of objects": lambda size: {"spec": {"mixed": [{"a": i} for i in range(size // 10)]}},
    "keys": lambda size: {"spec": {"keyed": [{"k": f"v{i}"} for i in range(size // 14)]}},
    "one key": lambda size: {"spec": {"keyed": [{"k": "v"}] * (size // 10)}},
    "words": lambda size: {"spec": {"words": ["x"] * (size // 4)}},
    "a pattern": lambda size: {"spec": {"pattern": "a" * size + "b"}},
}


def thing(given: Any) -> object:
    problems: list[str] = []
    obj = CUSTOMS.convert(given, "Warn", problems)
    return problems, validation.check(obj, CUSTOM), uniqueness.check_structure(obj, CUSTOM)


def changed_thing(given: Any) -> object:
    return validation.check(given, CUSTOM, {**given, "spec": {**given["spec"], "x": 1}})


SCHEMAS: dict[str, Callable[[int], Any]] = {
    "properties": lambda size: {
        "type": "object",
        "properties": {f"p{i}": {"type": "string"} for i in range(size // 26)},
    },
    "requirements": lambda size: {"type": "object", "required": [f"p{i}" for i in range(size // 8)]},
    "alternatives": lambda size: {"type": "object", "anyOf": [{"required": ["a"]}] * (size // 20)},
    "properties below a long name": lambda size: {
        "type": "object",
        "properties": {"k" * (size // 2): {"type": "object", "properties": {f"p{i}": {} for i in range(size // 24)}}},
    },
    "deep": lambda size: _deep(min(90, size // 40)),
    "words": lambda size: {"type": "string", "enum": [f"w{i}" for i in range(size // 9)]},
    "keys of a list": lambda size: {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [f"k{i}" for i in range(size // 40)],
        "items": {"type": "object", "properties": {f"k{i}": {"type": "string"} for i in range(size // 40)}},
    },
    "one key of a list again and again": lambda size: {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"] * (size // 4),
        "items": {"type": "object", "properties": {"k": {"type": "string"}}},
    },
}


def _deep(levels: int) -> Any:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        found = {"type": "object", "properties": {"a": found}}
    return found


CASES = [
    *cases("custom resource", THINGS, thing),
    *cases(
        "changed custom resource",
        {name: THINGS[name] for name in ("a set", "keys", "one key", "words", "a set of objects")},
        changed_thing,
    ),
    *cases("schema that is built", SCHEMAS, Schema, largest=OBJECT, memory=5000),
    *cases("schema", SCHEMAS, lambda source: structural.check(source, "spec"), largest=OBJECT, memory=2000),
]
