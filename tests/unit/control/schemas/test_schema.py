"""Objects against a schema: pruning, defaults, and errors with their messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.cel import formats
from control.custom.columns import Columns
from control.registry.apiextensions.naming import plan
from control.schemas import jsonpath, validation
from control.schemas.schema import Schema, fill, prune
from control.schemas.uniqueness import check_structure
from kube.clock import parse_time

NOW = parse_time("2026-01-02T03:04:05Z")


def one(part: dict[str, Any]) -> Schema:
    return Schema({"type": "object", "properties": {"f": part}})


def reported(part: dict[str, Any], value: Any) -> list[str]:
    return [str(error) for error in validation.check({"f": value}, one(part))]


LIST = {"type": "array", "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}
MESSAGES: list[tuple[dict[str, Any], Any, list[str]]] = [
    ({"type": "integer"}, "x", ['f: Invalid value: "string": f in body must be of type integer: "string"']),
    ({"type": "integer"}, 1.5, ['f: Invalid value: "number": f in body must be of type integer: "number"']),
    ({"type": "integer"}, 1.0, []),
    ({"type": "boolean"}, 1, ['f: Invalid value: "integer": f in body must be of type boolean: "integer"']),
    ({"type": "string"}, None, ['f: Invalid value: "null": f in body must be of type string: "null"']),
    ({"type": "string", "nullable": True}, None, []),
    (
        {"x-kubernetes-int-or-string": True},
        [],
        ['f: Invalid value: "array": f in body must be of type integer,string: "array"'],
    ),
    ({"type": "string", "enum": ["a", "b"]}, "c", ['f: Unsupported value: "c": supported values: "a", "b"']),
    ({"type": "integer", "maximum": 5}, 6, ["f: Invalid value: 6: f in body should be less than or equal to 5"]),
    (
        {"type": "number", "minimum": 1.5, "exclusiveMinimum": True},
        1.5,
        ["f: Invalid value: 1.5: f in body should be greater than 1.5"],
    ),
    ({"type": "integer", "multipleOf": 3}, 7, ["f: Invalid value: 7: f in body should be a multiple of 3"]),
    ({"type": "string", "maxLength": 2}, "abc", ["f: Too long: may not be more than 2 bytes"]),
    ({"type": "string", "minLength": 2}, "a", ['f: Invalid value: "a": f in body should be at least 2 chars long']),
    ({"type": "string", "pattern": "^a+$"}, "b", ["f: Invalid value: \"b\": f in body should match '^a+$'"]),
    (
        {"type": "string", "pattern": "(a"},
        "b",
        [
            'f: Invalid value: "b": f in body should match '
            "'(a, but pattern is invalid: error parsing regexp: missing ): `(a`'"
        ],
    ),
    (
        {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        ["a", "b"],
        ["f: Too many: 2: must have at most 1 items"],
    ),
    (
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        [],
        ["f: Invalid value: 0: f in body should have at least 1 items"],
    ),
    (LIST, [{"n": 1}, {}], ["f[1].n: Required value"]),
    (LIST, [{"n": "x"}], ['f[0].n: Invalid value: "string": f[0].n in body must be of type integer: "string"']),
    (
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"k": 1},
        ['f.k: Invalid value: "integer": f.k in body must be of type string: "integer"'],
    ),
    (
        {"type": "string", "format": "date-time"},
        "yesterday",
        ['f: Invalid value: "yesterday": f in body must be of type date-time: "yesterday"'],
    ),
    (
        {"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 9}]},
        7,
        ['<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
    ),
    (
        {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 3}]},
        4,
        [
            '<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)',
            "f: Invalid value: 4: f in body should be greater than or equal to 5",
        ],
    ),
    (
        {
            "type": "object",
            "properties": {"type": {"type": "string"}, "value": {"type": "string"}},
            "oneOf": [
                {
                    "properties": {
                        "type": {"enum": ["IPAddress"]},
                        "value": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
                    }
                },
                {"properties": {"type": {"not": {"enum": ["IPAddress"]}}}},
            ],
        },
        {"type": "IPAddress", "value": "192.0.2.1:80"},
        [
            '<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found none valid',
            '<nil>: Invalid value: "": "f.value" must validate at least one schema (anyOf)',
            'f.value: Invalid value: "192.0.2.1:80": f.value in body must be of type ipv4: "192.0.2.1:80"',
        ],
    ),
    (
        {"type": "integer", "not": {"minimum": 5}},
        6,
        ['<nil>: Invalid value: "": "f" must not validate the schema (not)'],
    ),
    (
        {"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 9}]},
        4,
        [
            "f: Invalid value: 4: f in body should be greater than or equal to 5",
            '<nil>: Invalid value: "": "f" must validate all the schemas (allOf)',
        ],
    ),
]


@pytest.mark.parametrize(("part", "value", "wanted"), MESSAGES)
def test_what_is_wrong_with_a_value(part: dict[str, Any], value: Any, wanted: list[str]) -> None:
    assert reported(part, value) == wanted


def test_unchanged_values_are_not_validated_again() -> None:
    schema = Schema(
        {"type": "object", "properties": {"a": {"type": "integer", "maximum": 1}, "b": {"type": "integer"}}}
    )
    assert validation.check({"a": 5, "b": 2}, schema, {"a": 5, "b": 1}) == []
    assert len(validation.check({"a": 6, "b": 2}, schema, {"a": 5, "b": 1})) == 1


FORMATS = {
    "ipv4": ("10.0.0.1", "10.0.0.256"),
    "ipv6": ("::1", "10.0.0.1"),
    "cidr": ("10.0.0.0/8", "10.0.0.0"),
    "uri": ("https://a/b", "a b"),
    "email": ("a@example.com", "a@"),
    "hostname": ("a.example.com", "-a-.com."),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "123"),
    "uuid4": ("123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    "byte": ("aGk=", "a"),
    "date": ("2026-01-02", "2026-13-02"),
    "date-time": ("2026-01-02T03:04:05Z", "2026-01-02"),
    "duration": ("1h30m", "soon"),
    "mac": ("00:1b:44:11:3a:b7", "00:1b"),
    "hexcolor": ("#ff00ff", "#ff"),
    "isbn": ("0-306-40615-2", "0-306-40615-3"),
    "isbn13": ("978-0-306-40615-7", "\u00b2" * 13),
    "unknown": ("anything", None),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats(name: str) -> None:
    good, bad = FORMATS[name]
    assert formats.valid(name, str(good))
    assert bad is None or not formats.valid(name, bad)


def test_unknown_fields_are_dropped_and_named() -> None:
    schema = Schema(
        {
            "type": "object",
            "properties": {
                "known": {"type": "string"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "raw": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": {"type": "object"}},
                },
            },
        }
    )
    value = {
        "apiVersion": "v1",
        "known": "x",
        "odd": 1,
        "free": {"any": {"thing": 1}},
        "map": {"k": {"odd": 1}},
        "list": [{"a": "x", "odd": 2}],
        "raw": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": {"odd": 3}},
    }
    unknown: list[str] = []
    assert prune(value, schema, "", unknown, resource=True) == {
        "apiVersion": "v1",
        "known": "x",
        "free": {"any": {"thing": 1}},
        "map": {"k": {}},
        "list": [{"a": "x"}],
        "raw": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": {}},
    }
    assert unknown == ["odd", "map.k.odd", "list[0].odd", "raw.spec.odd"]
    assert value["odd"] == 1, "the value that came in is left as it is"


def test_nulls_go_where_they_are_not_allowed_and_become_defaults() -> None:
    parts = {
        "plain": {"type": "string"},
        "may": {"type": "string", "nullable": True},
        "filled": {"type": "string", "default": "x"},
        "deep": {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 5}}},
        "left": {"type": "object", "properties": {"n": {"type": "integer", "default": 5}}},
    }
    schema = Schema({"type": "object", "properties": parts})
    value = prune({"plain": None, "may": None, "filled": None}, schema, "", [])
    fill(value, schema)
    assert value == {"may": None, "filled": "x", "deep": {"n": 5}}, "a default is not made for what has none itself"
    value["deep"]["n"] = 6
    again: dict[str, Any] = {}
    fill(again, schema)
    assert again["deep"] == {"n": 5}, "defaults are not shared between objects"


def test_sets_and_maps_have_no_duplicates_and_embedded_objects_are_objects() -> None:
    schema = Schema(
        {
            "type": "object",
            "properties": {
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["n", "p"],
                    "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}},
                },
                "raw": {"type": "object", "x-kubernetes-embedded-resource": True},
            },
        }
    )
    value = {
        "set": ["a", "b", "a"],
        "map": [{"n": 1}, {"n": 1, "p": "UDP"}, {"n": 1, "p": "TCP"}],
        "raw": {"kind": "Pod", "metadata": {"labels": 5}},
    }
    found = [str(error) for error in check_structure(value, schema)]
    assert found[:3] == [
        'set[2]: Duplicate value: "a"',
        'map[2]: Duplicate value: {"n":1,"p":"TCP"}',
        "raw.apiVersion: Required value: must not be empty",
    ]
    assert found[3] == (
        'raw.metadata: Invalid value: {"labels":5}: json: cannot unmarshal number into Go struct field ObjectMeta.labels '
        "of type map[string]string"
    )


def test_paths_find_what_columns_show() -> None:
    obj = {"a": {"b.c": 1, "list": [{"t": "x", "v": 1}, {"t": "y", "v": 2}]}, "n": [3, 4, 5]}
    for path, wanted in {
        ".a['b.c']": [1],
        ".a.b\\.c": [1],
        '.a.list[?(@.t=="y")].v': [2],
        ".a.list[?(@.v>1)].t": ["y"],
        ".a.list[*].v": [1, 2],
        ".n[0]": [3],
        ".n[-1]": [5],
        ".n[1:]": [4, 5],
        ".nope.x": [],
        "{.n[1]}": [4],
        "..v": [1, 2],
    }.items():
        assert jsonpath.find(path, obj) == wanted, path


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "path", [".a..[*]..[*]..[*]..[*]", ".a[?(@..[*]..[*]..[*]..[*]==2)]", ".a..[?(@..[*]..[*]==2)]"]
)
def test_values_that_a_filter_follows_are_counted(path: str) -> None:
    with pytest.raises(jsonpath.PathError, match="more than 100000 values to follow"):
        jsonpath.find(path, {"a": [nested(90)]})


def test_values_are_counted_for_all_columns_of_a_row() -> None:
    """Return nothing in the columns of a row after so many values."""
    paths = [".s", *[".a..[*]..[*]"] * 100, ".s"]
    columns = Columns([{"name": "S", "type": "string", "jsonPath": path} for path in paths])
    row = columns.row({"metadata": {"name": "n"}, "s": "x", "a": nested(100)}, NOW)
    assert row[1] == "x" and row[2] and row[-2] is None
    assert columns.row({"metadata": {"name": "n"}, "s": "x", "a": nested(3)}, NOW)[-1] == "x"


def test_cells_are_printed_by_their_columns_type() -> None:
    columns = Columns(
        [
            {"name": "S", "type": "string", "jsonPath": ".s"},
            {"name": "M", "type": "string", "jsonPath": ".m"},
            {"name": "I", "type": "integer", "jsonPath": ".f"},
            {"name": "B", "type": "boolean", "jsonPath": ".b"},
            {"name": "D", "type": "date", "jsonPath": ".d"},
            {"name": "X", "type": "date", "jsonPath": ".s"},
            {"name": "N", "type": "string", "jsonPath": ".nope"},
        ]
    )
    obj = {"metadata": {"name": "n"}, "s": "x", "m": {"a": 1}, "f": 2.0, "b": True, "d": "2026-01-02T03:03:05Z"}
    assert columns.row(obj, NOW) == ["n", "x", '{"a":1}', 2, True, "60s", "<invalid>", None]


def test_names_conflict_within_a_group() -> None:
    def definition(plural: str, kind: str, *short: str) -> dict[str, Any]:
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": kind + "List"}
        return {"spec": {"group": "g", "names": names | ({"shortNames": list(short)} if short else {})}}

    assert plan(definition("as", "A", "x"), (), (), NOW)["acceptedNames"]["shortNames"] == ["x"]
    taken = {"as", "a", "x"}, {"A", "AList"}
    found = plan(definition("bs", "A", "x", "as"), *taken, NOW)
    conditions = {c["type"]: c for c in found["conditions"]}
    assert (conditions["NamesAccepted"]["status"], conditions["Established"]["reason"]) == ("False", "NotAccepted")
    assert found["acceptedNames"] == {"plural": "bs"}
    shorts = plan(definition("bs", "B", "x", "as"), *taken, NOW)["conditions"][0]
    assert (shorts["reason"], shorts["message"]) == (
        "ShortNamesConflict",
        '["x" is already in use, "as" is already in use]',
    )


_names = st.sampled_from(["a", "b", "c", "metadata"])
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.sampled_from(["", "a", "b"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_names, inner, max_size=3)),
    max_leaves=8,
)
_limits = st.fixed_dictionaries(
    {},
    optional={
        "nullable": st.booleans(),
        "default": _values,
        "minimum": st.integers(-3, 3),
        "maxLength": st.integers(0, 1),
        "maxItems": st.integers(0, 1),
        "enum": st.lists(_values, min_size=1, max_size=2),
        "x-kubernetes-preserve-unknown-fields": st.just(True),
        "x-kubernetes-int-or-string": st.just(True),
    },
)
_schemas = st.recursive(
    st.builds(lambda kind, more: {"type": kind, **more}, st.sampled_from(["string", "integer", "boolean"]), _limits),
    lambda inner: st.one_of(
        st.builds(
            lambda p, m: {"type": "object", "properties": p, **m}, st.dictionaries(_names, inner, max_size=3), _limits
        ),
        st.builds(lambda p, m: {"type": "object", "additionalProperties": p, **m}, inner, _limits),
        st.builds(
            lambda p, kind, m: {"type": "array", "items": p, "x-kubernetes-list-type": kind, **m},
            inner,
            st.sampled_from(["atomic", "set"]),
            _limits,
        ),
        st.builds(lambda p, m: {"type": "object", "anyOf": [p], "not": p, **m}, inner, _limits),
    ),
    max_leaves=6,
)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(_schemas, _values, _values)
def test_any_value_against_any_schema_is_settled_once_and_judged(source: Any, value: Any, old: Any) -> None:
    schema = Schema(source)
    settled = prune(value, schema, "", [])
    fill(settled, schema)
    again = prune(settled, schema, "", [])
    fill(again, schema)
    unknown: list[str] = []
    prune(settled, schema, "", unknown)
    assert again == settled or "default" in repr(source), "only a default may bring in what is dropped again"
    assert unknown == [] or "default" in repr(source)
    check_structure(settled, schema)
    assert len(validation.check(settled, schema, old)) <= len(validation.check(settled, schema))
    assert validation.check(settled, schema, settled) == []


def test_a_definition_whose_conditions_another_server_stored_as_null_gets_its_conditions() -> None:
    names = {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"}
    stored = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}
    found = plan({"spec": {"group": "g", "names": names}, "status": stored}, (), (), NOW)
    assert {c["type"]: c["status"] for c in found["conditions"]} == {"NamesAccepted": "True", "Established": "True"}


def test_items_of_sets_are_not_ratcheted_as_those_of_maps_are() -> None:
    def errors(kind: Any) -> list[str]:
        items = {"type": "object", "properties": {"k": {"type": "string", "enum": ["new"]}}}
        schema = Schema({"type": "array", "items": items, **kind})
        return [str(error) for error in validation.check([{"k": "old"}], schema, [{"k": "old"}, {"k": "other"}])]

    assert errors({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}) == []
    assert errors({"x-kubernetes-list-type": "set"}) and errors({})
