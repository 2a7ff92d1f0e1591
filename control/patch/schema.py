"""Merge rules of a type's values, for patches and server-side apply.

A `Node` says of a value whether it is a leaf (a scalar, or an atomic list or map that is replaced as a whole), a struct of
named fields, a map of free keys, or a list whose items have an identity (a key made of some of their fields, or
their own value). Nodes come from the generated Struct types with their schema facts, or from a custom resource's OpenAPI
schema; without either, a shape is deduced from the value: maps merge by key, lists are atomic. Struct fields are resolved
on first use, because the types refer to each other in circles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from kube import schema as facts_of
from kube.bounded_cache import bounded_cache
from kube.schema.fields import FieldType
from kube.schema.fields import fields as type_fields

JSONSchema = Mapping[str, Any]


class Shape(IntEnum):
    LEAF = 0
    STRUCT = 1
    MAP = 2
    KEYED = 3
    """A list whose items are known by the values of `keys`."""
    SET = 4
    """A list of scalars without duplicates."""
    DEDUCED = 5


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A struct's field. `path` is its name in FieldsV1; the patch facts are for strategic merge patches."""

    path: str
    node: Node
    merge_key: str = ""
    strategy: tuple[str, ...] = ()
    always: bool = False
    """In the API's Go types the field is a plain struct, so it is there even when nothing is in it."""
    bare: bool = False
    """A required list or map: an empty object has it as null."""
    skipped: bool = False
    """Nobody owns it: names, versions and other bookkeeping of the API itself."""


class Node:
    """The shape of one value."""

    __slots__ = ("_fields", "_resolve", "defaults", "item", "keys", "shape")

    def __init__(
        self,
        shape: Shape,
        *,
        item: Node | None = None,
        keys: tuple[str, ...] = (),
        defaults: Mapping[str, Any] | None = None,
        resolve: Callable[[], dict[str, Field]] | None = None,
    ) -> None:
        self.shape, self.item, self.keys, self.defaults = shape, item, keys, defaults or {}
        self._resolve = resolve
        self._fields: dict[str, Field] | None = None

    @property
    def fields(self) -> dict[str, Field]:
        """A struct's fields by wire name; a struct that is atomic for apply has them too, for strategic merges."""
        if self._fields is None:
            self._fields = self._resolve() if self._resolve else {}
        return self._fields

    def atomic(self) -> Node:
        """Return this shape as one that is replaced as a whole."""
        return Node(Shape.LEAF, item=self.item, resolve=self._resolve)


SCALAR = Node(Shape.LEAF)
DEDUCED = Node(Shape.DEDUCED)

# Non-pointer structs of the Go types that the OpenAPI definitions do not tell from pointers, where an update's ownership
# shows the difference (`f:strategy` without ".").
_PLAIN = {
    "DeploymentSpec.strategy",
    "DaemonSetSpec.updateStrategy",
    "StatefulSetSpec.updateStrategy",
    "ServiceStatus.loadBalancer",
    "IngressStatus.loadBalancer",
    "Container.resources",
    "EphemeralContainer.resources",
    "PersistentVolumeClaimSpec.resources",
    "NodeStatus.daemonEndpoints",
    "NodeStatus.nodeInfo",
    "NodeDaemonEndpoints.kubeletEndpoint",
    "JobTemplateSpec.spec",
    "ContainerStatus.state",
    "ContainerStatus.lastState",
}
LONGEST_SCHEMA = 32 * 1024
"""Characters of a custom resource's schema whose shape is kept here; a definition keeps its own shape, however large."""
# Defaults of fields that are list keys (+default in the API's Go types; OpenAPI v2 does not carry them).
_KEY_DEFAULTS = {"ContainerPort": {"protocol": "TCP"}, "ServicePort": {"protocol": "TCP"}}
# Bookkeeping of the API server in the metadata of an object (not of a template), as upstream's stripmeta has it.
_SKIPPED_METADATA = frozenset(
    "name namespace creationTimestamp selfLink uid clusterName generation managedFields resourceVersion".split()
)


@functools.cache
def of_object(kind: Any) -> Node:
    """Return the shape of a whole object: its type's, without fields that are never owned."""
    return _without_bookkeeping(of_struct(kind))


@bounded_cache(256, longest=LONGEST_SCHEMA)
def of_custom(schema: str) -> Node:
    """Return the shape of a custom resource from its OpenAPI v3 schema, given as JSON text so that a short one can be kept."""
    from kube.api.meta_v1 import ObjectMeta

    root = from_openapi(msgspec.json.decode(schema))
    known = dict(root.fields) if root.shape is Shape.STRUCT else {}
    known["metadata"] = Field("f:metadata", of_struct(ObjectMeta), always=True)
    for name in ("apiVersion", "kind"):
        known[name] = Field(f"f:{name}", SCALAR)
    return _without_bookkeeping(Node(Shape.STRUCT, item=DEDUCED, resolve=lambda: known))


def _without_bookkeeping(root: Node) -> Node:
    fields = dict(root.fields)
    for name in ("apiVersion", "kind"):
        fields[name] = Field(f"f:{name}", SCALAR, skipped=True)
    if "metadata" in fields:
        inner = fields["metadata"].node
        metadata = {
            name: Field(field.path, field.node, field.merge_key, field.strategy, skipped=name in _SKIPPED_METADATA)
            for name, field in inner.fields.items()
        }
        node = Node(Shape.STRUCT, resolve=lambda: metadata)
        fields["metadata"] = Field("f:metadata", node, always=True)
    return Node(Shape.STRUCT, item=root.item, resolve=lambda: fields)


@functools.cache
def of_struct(kind: type[msgspec.Struct]) -> Node:
    """Return the shape of a generated type."""
    atomic = facts_of.facts(kind).map_type == "atomic"
    shape = Shape.LEAF if atomic else Shape.STRUCT
    return Node(shape, defaults=_KEY_DEFAULTS.get(kind.__name__), resolve=lambda: _struct_fields(kind))


def _struct_fields(kind: type[msgspec.Struct]) -> dict[str, Field]:
    required = facts_of.facts(kind).required
    fields: dict[str, Field] = {}
    for field in type_fields(kind):
        wire, fact = field.name, field.facts
        plain = not field.type.optional or f"{kind.__name__}.{wire}" in _PLAIN
        bare = wire in required and field.type.item is not None
        strategy = tuple(part for part in fact.strategy.split(",") if part)
        always = field.type.struct is not None and plain
        fields[wire] = Field(f"f:{wire}", _of_type(field.type, fact), fact.merge_key, strategy, always, bare)
    return fields


def _of_type(type_: FieldType, fact: facts_of.FieldFacts) -> Node:
    if type_.item is not None:
        item = _of_type(type_.item, facts_of.FieldFacts())
        if type_.kind == "list":
            return _list(item, fact.list_type, fact.list_keys, fact.strategy, fact.merge_key)
        node = Node(Shape.MAP, item=item)
    elif type_.struct is not None:
        node = of_struct(type_.struct)
    else:
        return SCALAR
    return node.atomic() if fact.map_type == "atomic" else node


def _list(item: Node, list_type: str, keys: tuple[str, ...], strategy: str, merge_key: str) -> Node:
    if not list_type and "merge" in strategy.split(","):
        # What merges in a patch but declares no list type merges in an apply too.
        list_type, keys = ("map", (merge_key,)) if merge_key else ("set", ())
    if list_type == "map" and keys:
        return Node(Shape.KEYED, item=item, keys=tuple(sorted(keys)), defaults=item.defaults)
    return Node(Shape.SET if list_type == "set" else Shape.LEAF, item=item)


def from_openapi(schema: JSONSchema) -> Node:
    """Return the shape that a structural OpenAPI v3 schema describes."""
    if schema.get("x-kubernetes-int-or-string"):
        return SCALAR
    if "items" in schema:
        item = from_openapi(schema["items"])
        defaults = {
            name: part["default"]
            for name, part in (schema["items"].get("properties") or {}).items()
            if part.get("default") is not None
        }
        node = _list(
            item,
            schema.get("x-kubernetes-list-type", ""),
            tuple(schema.get("x-kubernetes-list-map-keys") or ()),
            schema.get("x-kubernetes-patch-strategy", ""),
            schema.get("x-kubernetes-patch-merge-key", ""),
        )
        return Node(node.shape, item=item, keys=node.keys, defaults=defaults)
    extra = schema.get("additionalProperties")
    if schema.get("properties"):
        properties: JSONSchema = schema["properties"]
        free = DEDUCED if schema.get("x-kubernetes-preserve-unknown-fields") else None
        node = Node(
            Shape.STRUCT,
            item=free,
            resolve=lambda: {name: Field(f"f:{name}", from_openapi(part)) for name, part in properties.items()},
        )
    elif extra:
        node = Node(Shape.MAP, item=from_openapi(extra) if isinstance(extra, Mapping) else DEDUCED)
    elif schema.get("type") in ("string", "integer", "number", "boolean"):
        return SCALAR
    else:
        node = DEDUCED
    return Node(Shape.LEAF) if schema.get("x-kubernetes-map-type") == "atomic" else node
