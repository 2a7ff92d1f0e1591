"""Merge rules of a custom resource's values, from its compiled schema, for patches and server-side apply."""

from __future__ import annotations

from control.patch.schema import DEDUCED, SCALAR, Field, Node, Shape, list_node, of_struct, without_bookkeeping
from control.schemas.schema import MISSING, Schema
from kube.api.meta_v1 import ObjectMeta

_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def of_custom(schema: Schema) -> Node:
    """Return the merge rules of a whole object; it has apiVersion, kind and metadata, whatever its schema says of them."""
    root = _of_schema(schema)
    known = dict(root.fields) if root.shape is Shape.STRUCT else {}
    known["metadata"] = Field("f:metadata", of_struct(ObjectMeta), always=True)
    for name in ("apiVersion", "kind"):
        known[name] = Field(f"f:{name}", SCALAR)
    return without_bookkeeping(Node(Shape.STRUCT, item=DEDUCED, resolve=lambda: known))


def _of_schema(schema: Schema) -> Node:
    if schema.int_or_string:
        return SCALAR
    if schema.items is not None:
        return list_node(_of_schema(schema.items), schema.list_type, schema.list_keys, _defaults(schema.items))
    if schema.properties:
        node = Node(Shape.STRUCT, item=DEDUCED if schema.preserve else None, resolve=lambda: _fields(schema))
    elif schema.additional is not None:
        node = Node(Shape.MAP, item=_of_schema(schema.additional))
    elif schema.type in _SCALARS:
        return SCALAR
    else:
        node = DEDUCED
    return Node(Shape.LEAF) if schema.map_type == "atomic" else node


def _fields(schema: Schema) -> dict[str, Field]:
    return {name: Field(f"f:{name}", _of_schema(part)) for name, part in schema.properties.items()}


def _defaults(item: Schema) -> dict[str, object]:
    defaults = {name: part.default for name, part in item.properties.items()}
    return {name: default for name, default in defaults.items() if default is not MISSING and default is not None}
