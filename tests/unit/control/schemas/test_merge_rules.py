"""Merge rules of custom resources' values, as their compiled schemas describe them."""

from __future__ import annotations

from typing import Any

from control.patch.schema import Node, Shape
from control.schemas.merge_rules import of_custom
from control.schemas.schema import compile_root


def field(schema: dict[str, Any]) -> Node:
    """Return the merge rules of an object's one field of a schema."""
    return of_custom(compile_root({"type": "object", "properties": {"x": schema}})).fields["x"].node


def test_free_keys_merge_by_key_and_each_value_by_its_schema() -> None:
    node = field({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}})
    assert node.shape is Shape.MAP and node.item is not None and node.item.shape is Shape.LEAF


def test_values_of_any_form_merge_as_they_are() -> None:
    for schema in ({"type": "object"}, {"x-kubernetes-preserve-unknown-fields": True}):
        assert field(schema).shape is Shape.DEDUCED
    node = field({"type": "object", "additionalProperties": True})
    assert node.shape is Shape.MAP and node.item is not None and node.item.shape is Shape.DEDUCED


def test_a_number_or_text_is_replaced_as_a_whole() -> None:
    assert field({"x-kubernetes-int-or-string": True, "additionalProperties": True}).shape is Shape.LEAF


def test_keys_of_list_items_have_the_defaults_of_their_schema() -> None:
    parts = {"id": {"type": "integer"}, "side": {"type": "string", "default": "left"}, "none": {"default": None}}
    items = {"type": "object", "properties": parts}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["side", "id"]}
    node = field({"type": "array", "items": items, **keyed})
    assert (node.shape, node.keys, node.defaults) == (Shape.KEYED, ("id", "side"), {"side": "left"})


def test_metadata_have_the_rules_of_their_type_whatever_a_schema_says() -> None:
    metadata = {"type": "object", "properties": {"name": {"type": "string", "pattern": "a"}}}
    fields = of_custom(compile_root({"type": "object", "properties": {"metadata": metadata}})).fields
    assert fields["metadata"].node.fields["labels"].node.shape is Shape.MAP
    assert fields["metadata"].node.fields["name"].skipped and fields["kind"].skipped
