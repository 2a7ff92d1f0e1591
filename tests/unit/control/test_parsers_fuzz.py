"""Parsers of clients' text and patches reject any input with their own errors, and soon: any other exception is a 500.

The same examples each time; WHERRY_FUZZ_EXAMPLES=50000 draws as many others of each, by the seed of `--hypothesis-seed`.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.cel import CompileError, Declarations, EvaluationError, compile
from control.cel.types import BOOL, DOUBLE, DYN, INT, STRING, list_of, map_of, object_of
from control.decoding.decode import load_json
from control.decoding.yaml_body import load_yaml
from control.patch.apply import apply, track_update
from control.patch.json_patch import apply_json_patch
from control.patch.merge_patch import apply_merge_patch
from control.patch.schema import of_object
from control.patch.strategic import strategic_merge
from kube import quantity, selectors
from kube.api import apps_v1, core_v1
from kube.errors import StatusError

EXAMPLES = int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "0"))
long = settings(
    max_examples=EXAMPLES or 150,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None if EXAMPLES else 20_000,
    suppress_health_check=list(HealthCheck),
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "labels": {"a": "b"},
        "finalizers": ["x/y"],
        "ownerReferences": [{"uid": "1", "name": "o"}],
    },
    "spec": {
        "containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "A"}]}
        ],
        "tolerations": [{"key": "k"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "10.0.0.1"}]},
}
KEYS = st.sampled_from(
    [
        *(
            "metadata",
            "spec",
            "status",
            "name",
            "labels",
            "finalizers",
            "ownerReferences",
            "containers",
            "ports",
            "env",
        ),
        *(
            "volumes",
            "tolerations",
            "conditions",
            "type",
            "key",
            "containerPort",
            "protocol",
            "uid",
            "image",
            "a",
            "",
            "~",
        ),
        *(
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$setElementOrder/env",
            "$deleteFromPrimitiveList/finalizers",
        ),
        *("$setElementOrder/ports", "$deleteFromPrimitiveList/containers", "managedFields", "annotations", "emptyDir"),
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["a", "c", "delete", "replace", "merge", "TCP", "x/y", "name", "image", "", "\x00", "é"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


def like(sample: Any) -> st.SearchStrategy[Any]:
    """Draw what resembles the sample: parts of it, with something else here and there."""
    if isinstance(sample, dict):
        known = st.fixed_dictionaries({}, optional={key: like(value) for key, value in sample.items()})
        return st.one_of(
            known, st.tuples(known, st.dictionaries(KEYS, VALUES, max_size=2)).map(lambda t: t[0] | t[1]), VALUES
        )
    if isinstance(sample, list):
        return st.one_of(st.lists(like(sample[0]), max_size=3), st.lists(like(sample[0]), max_size=3), VALUES)
    return st.one_of(st.just(sample), SCALARS, st.just(sample))


PODS = like(POD)
OBJECTS = PODS.filter(lambda value: isinstance(value, dict))
POINTERS = st.one_of(
    st.lists(
        st.one_of(KEYS, st.sampled_from(["0", "1", "-", "-1", "01", "99", "~0", "~1", "~2", "/"])), max_size=4
    ).map(lambda steps: "".join(f"/{step}" for step in steps)),
    st.text(max_size=4),
    SCALARS,
)
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "", 1]), "path": POINTERS},
    optional={"value": VALUES, "from": POINTERS},
)
SCHEMAS = {"Pod": of_object(core_v1.Pod), "Deployment": of_object(apps_v1.Deployment)}


@long
@given(st.one_of(st.lists(OPERATIONS, max_size=6), VALUES))
def test_json_patches(patch: Any) -> None:
    before = copy.deepcopy(POD)
    with contextlib.suppress(StatusError):
        json.dumps(apply_json_patch(POD, patch))
    assert before == POD, "the object that is patched is not touched"


@long
@given(PODS)
def test_merge_patches(patch: Any) -> None:
    before = copy.deepcopy(POD)
    with contextlib.suppress(StatusError):
        json.dumps(apply_merge_patch(POD, patch))
    assert before == POD


@long
@given(OBJECTS, PODS)
def test_strategic_merge_patches(live: Any, patch: Any) -> None:
    for original in (POD, live):
        before = copy.deepcopy(original)
        with contextlib.suppress(StatusError):
            json.dumps(strategic_merge(original, patch, core_v1.Pod))
        assert before == original


@long
@given(OBJECTS, OBJECTS, st.sampled_from(sorted(SCHEMAS)), st.booleans())
def test_applied_configurations(first: Any, second: Any, kind: str, force: bool) -> None:
    named = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}
    live: Any = None
    for manager, config in (("one", first), ("two", second), ("one", second)):
        meta = config.get("metadata")
        config = {**config, **named, "metadata": {**(meta if isinstance(meta, dict) else {}), "name": "a"}}
        config["metadata"].pop("managedFields", None)
        with contextlib.suppress(StatusError):
            live = apply(live, config, manager, force=force, schema=SCHEMAS[kind], now=NOW)
            json.dumps(live)
    if live is not None:
        changed = {**live, "spec": second.get("spec")}
        json.dumps(track_update(live, changed, "three", "", SCHEMAS[kind], NOW))


TERMS = st.lists(
    st.sampled_from(
        ["a", "b/c", " ", "in", "notin", "(", ")", ",", "=", "==", "!=", "!", ">", "<", "1", "é", "\\", "x" * 70]
    ),
    max_size=9,
).map("".join)


@long
@given(st.one_of(TERMS, st.text(max_size=20)))
def test_selectors(text: str) -> None:
    with contextlib.suppress(selectors.SelectorError):
        selectors.parse_labels(text).matches({"a": "1", "b/c": ""})
    with contextlib.suppress(selectors.SelectorError):
        selectors.parse_fields(text).matches({"a": "1"})


NUMERALS = st.lists(
    st.sampled_from(
        [*"0123456789.+-eEKMi", "Ki", "m", "n", "u", "e9", "E99", "e9999999", "E-99999999", "9" * 30, "0" * 30]
    ),
    max_size=7,
)


@long
@given(st.one_of(NUMERALS.map("".join), st.text(max_size=8)))
def test_quantities(text: str) -> None:
    with contextlib.suppress(quantity.QuantityError):
        shown = quantity.canonical(text)
        assert quantity.canonical(shown) == shown
        quantity.value(text), quantity.milli(text)


BYTES = st.one_of(
    st.binary(max_size=60),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.lists(
        st.sampled_from(
            [
                "a: ",
                "- ",
                "\n",
                "  ",
                "{",
                "}",
                "[",
                "]",
                "&a ",
                "*a",
                "!!binary ",
                "!x ",
                "<<: ",
                "? ",
                "|",
                ">",
                "---\n",
            ]
        )
        | st.text(max_size=3)
        | st.sampled_from(
            ["1e999", ".inf", ".nan", "0x1F", "2001-01-01", "1:30", "null", "~", "'", '"', "%YAML 1.1\n", "\t", "#"]
        ),
        max_size=12,
    ).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass")),
)


@long
@given(BYTES)
def test_bodies(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        load_json(body)
    with contextlib.suppress(ValueError):
        json.dumps(load_yaml(body), allow_nan=False)


SELF = object_of(
    {
        "n": INT,
        "d": DOUBLE,
        "s": STRING,
        "b": BOOL,
        "list": list_of(object_of({"a": INT, "b": STRING}), size=10),
        "map": map_of(STRING, STRING, size=10),
        "any": DYN,
    }
)
DECLARED = Declarations({"self": SELF, "oldSelf": SELF})
VALUE = {
    "n": 3,
    "d": 1.5,
    "s": "web",
    "b": True,
    "list": [{"a": 1, "b": "x"}],
    "map": {"a": "b"},
    "any": {"x": [1, "2", None]},
}
ATOMS = st.sampled_from(
    [
        *(
            "self.n",
            "self.d",
            "self.s",
            "self.b",
            "self.list",
            "self.map",
            "self.any",
            "self.any.x",
            "self.list[0].a",
            "self",
            "oldSelf",
        ),
        *(
            "1",
            "-1",
            "0",
            "2u",
            "1.5",
            "1e308",
            "9223372036854775807",
            "''",
            "'a'",
            "'1h'",
            "b'a'",
            "true",
            "null",
            "[]",
            "{}",
            "[1, 'a']",
        ),
        *(
            "{'a': 1}",
            "'2026-01-02T03:04:05Z'",
            "'10.0.0.1'",
            "'10.0.0.0/8'",
            "'1Gi'",
            "'https://x/y'",
            "'1.2.3'",
            "x",
            "int",
            "optional.none()",
        ),
    ]
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    unary = [
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "bool",
        "size",
        "type",
        "dyn",
        "duration",
        "timestamp",
        "quantity",
    ]
    unary += [
        "ip",
        "cidr",
        "url",
        "isIP",
        "isQuantity",
        "semver",
        "has",
        "-",
        "!",
        "optional.of",
        "format.named",
        "isURL",
    ]
    methods = [
        "size",
        "contains",
        "startsWith",
        "matches",
        "split",
        "join",
        "replace",
        "substring",
        "find",
        "findAll",
        "format",
    ]
    methods += [
        "lowerAscii",
        "charAt",
        "indexOf",
        "sum",
        "min",
        "isSorted",
        "getHours",
        "getSeconds",
        "add",
        "sub",
        "asInteger",
    ]
    methods += [
        "isLessThan",
        "compareTo",
        "value",
        "orValue",
        "or",
        "containsIP",
        "containsCIDR",
        "family",
        "getPort",
        "distinct",
    ]
    loops = ["all", "exists", "exists_one", "filter", "map", "sort"]
    binary = ["+", "-", "*", "/", "%", "<", "<=", "==", "!=", "&&", "||", "in", "?.", "."]
    return st.one_of(
        st.tuples(st.sampled_from(unary), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, st.sampled_from(methods)).map(lambda t: f"({t[0]}).{t[1]}()"),
        st.tuples(inner, st.sampled_from(methods), inner).map(lambda t: f"({t[0]}).{t[1]}({t[2]})"),
        st.tuples(inner, st.sampled_from(methods), inner, inner).map(lambda t: f"({t[0]}).{t[1]}({t[2]}, {t[3]})"),
        st.tuples(inner, st.sampled_from(loops), inner).map(lambda t: f"({t[0]}).{t[1]}(x, {t[2]})"),
        st.tuples(inner, st.sampled_from(binary), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]})[{t[1]}]"),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]}, {t[1]}]"),
        st.tuples(inner, inner).map(lambda t: f"{{{t[0]}: {t[1]}}}"),
    )


@long
@given(st.one_of(st.recursive(ATOMS, _larger, max_leaves=6), st.text(max_size=20)))
def test_cel_expressions(text: str) -> None:
    with contextlib.suppress(CompileError, EvaluationError):
        program = compile(text, DECLARED)
        assert program.estimated_cost >= 0
        found = program.evaluate({"self": VALUE, "oldSelf": VALUE}, 100_000)
        assert found.cost <= 100_000
