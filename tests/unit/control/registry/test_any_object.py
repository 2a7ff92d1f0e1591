"""Whatever a client may send that has the right types, a strategy finds words for: it never breaks."""

from __future__ import annotations

import copy
import functools
import random
import types
import typing
from typing import Any

import msgspec
import pytest

from control.decoding.canonical import rewrite
from control.registry.strategies import strategy_for
from kube import serialize
from kube.errors import StatusError
from kube.resources import RESOURCES, Resource
from tests.unit.control.registry.strategies import NOW

STRINGS = ("", "a", "..", "/x", "Always", "None", "TCP", "ClusterIP", "NodePort", "10.0.0.1", "fe80::1", "10.0.0.0/8")
STRINGS += (
    "RollingUpdate",
    "Localhost",
    "Container",
    "Exact",
    "In",
    "Exists",
    "metadata.name",
    "* * * * *",
    "%",
    "50%",
    "{}",
)
QUANTITIES: tuple[Any, ...] = ("1", "500m", "1Gi", "2e3", -1, 0.5, "-3")
TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z")


fields = functools.cache(msgspec.structs.fields)
"""The fields of a type, whose annotations are evaluated once."""


class Maker:
    """Makes objects of a type at random; the seed makes them again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def struct(self, kind: type[msgspec.Struct], depth: int) -> Any:
        values: dict[str, Any] = {}
        for field in fields(kind):
            if field.name in ("api_version", "kind") and depth == 0:
                continue
            if self.random.random() < (0.75 if depth < 3 else 0.35):
                values[field.name] = self.value(field.type, field.name, depth + 1)
        return kind(**values)

    def value(self, hint: Any, name: str, depth: int) -> Any:
        origin = typing.get_origin(hint)
        if origin in (typing.Union, types.UnionType):
            members = [m for m in typing.get_args(hint) if m is not type(None)]
            if float in members:
                return self.random.choice(QUANTITIES)
            return self.value(self.random.choice(members), name, depth)
        if origin is list:
            if depth > 9:
                return []
            (member,) = typing.get_args(hint)
            return [self.value(member, name, depth) for _ in range(self.random.randint(0, 2))]
        if origin is dict:
            _, member = typing.get_args(hint)
            keys = self.random.sample(("a", "cpu", "memory", "a/b", "x y", "storage"), self.random.randint(0, 3))
            return {key: self.value(member, name, depth) for key in keys}
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.struct(hint, depth) if depth < 9 else hint()
        if hint is str:
            timed = name.endswith(("_time", "timestamp", "_at"))
            if name in ("data", "binary_data", "ca_bundle", "request", "certificate"):
                return "YQ=="
            return self.random.choice(TIMES if timed else STRINGS)
        if hint is int:
            return self.random.choice((-1, 0, 1, 2, 600, 70000))
        if hint is bool:
            return self.random.random() < 0.5
        if hint is float:
            return 0.5
        return self.random.choice(({}, "x", 1, [], {"a": "b"}))


def made(resource: Resource, seed: int) -> dict[str, Any]:
    while True:
        obj = serialize.to_dict(Maker(seed).struct(resource.type, 0))
        try:
            rewrite(obj, resource.type)
            break
        except ValueError:
            seed += 10_000_000  # the decoder refuses it, so no strategy ever sees it
    obj["metadata"] = {"name": "x", "namespace": "default", "creationTimestamp": TIMES[0], "labels": {"a": "b"}}
    return typing.cast("dict[str, Any]", obj)


STORED = [r for r in RESOURCES if "list" in r.verbs and r.plural != "componentstatuses"]


@pytest.mark.parametrize("resource", STORED, ids=lambda r: f"{r.api_version}/{r.plural}")
def test_no_object_of_the_right_type_breaks_a_strategy(resource: Resource) -> None:
    strategy = strategy_for(resource)
    for seed in range(120):
        obj, other = made(resource, seed), made(resource, seed + 1000)
        try:
            old = copy.deepcopy(other)
            strategy.default(old)
            strategy.default(obj)
            strategy.prepare_create(obj)
            strategy.default(obj)
            for problem in strategy.validate(obj):
                assert problem.body and problem.cause
            strategy.warnings(obj, None)
            strategy.fields(obj)
            assert len(strategy.row(obj, NOW)) == len(strategy.columns)
            assert len(strategy.row(other, NOW)) == len(strategy.columns)
            for subresource in ("", *resource.subresources):
                new = copy.deepcopy(other)
                if subresource:
                    strategy.prepare_subresource(subresource, new, old)
                    found = strategy.validate_subresource(subresource, new, old)
                else:
                    strategy.prepare_update(new, old)
                    found = strategy.validate_update(new, old)
                assert all(str(problem) for problem in found)
            new = made(resource, seed + 5000)
            strategy.default(new)
            strategy.prepare_update(new, obj)
            assert all(str(problem) for problem in strategy.validate_update(new, obj))
        except StatusError as refused:
            assert refused.code < 500, f"seed {seed}"


@pytest.mark.parametrize("resource", STORED, ids=lambda r: f"{r.api_version}/{r.plural}")
def test_defaults_settle(resource: Resource) -> None:
    strategy = strategy_for(resource)
    for seed in range(20):
        obj = made(resource, seed)
        try:
            strategy.default(obj)
        except StatusError:
            continue
        once = copy.deepcopy(obj)
        strategy.default(obj)
        assert obj == once
