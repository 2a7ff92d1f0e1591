"""Merge rules of a type's values, for patches and server-side apply.

A `Node` says of a value whether it is a leaf (a scalar, or an atomic list or map that is replaced as a whole), a struct of
named fields, a map of free keys, or a list whose items have an identity (a key made of some of their fields, or
their own value). Nodes come from the generated Struct types with their schema facts, or from a custom resource's schema
(`control.schemas.merge_rules`); without either, a shape is deduced from the value: maps merge by key, lists are atomic.
Struct fields are resolved on first use, because the types refer to each other in circles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import msgspec

from kube import schema as facts_of
from kube.schema.fields import FieldType
from kube.schema.fields import fields as type_fields


class Shape(IntEnum):
    LEAF = 0
    STRUCT = 1
    MAP = 2
    KEYED = 3
    """A list whose items are known by the values of `keys`."""
    SET = 4
    """A list of scalars without duplicates."""
    DEDUCED = 5


class Field(msgspec.Struct, frozen=True, eq=False):
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
# Defaults of fields that are list keys (+default in the API's Go types; OpenAPI v2 does not carry them).
_KEY_DEFAULTS = {"ContainerPort": {"protocol": "TCP"}, "ServicePort": {"protocol": "TCP"}}
# Bookkeeping of the API server in the metadata of an object (not of a template), as upstream's stripmeta has it.
_SKIPPED_METADATA = frozenset(
    "name namespace creationTimestamp selfLink uid clusterName generation managedFields resourceVersion".split()
)


@functools.cache
def of_object(kind: Any) -> Node:
    """Return the shape of a whole object: its type's, without fields that are never owned."""
    return without_bookkeeping(of_struct(kind))


def without_bookkeeping(root: Node) -> Node:
    """Return the shape of a whole object without an owner of the bookkeeping in its fields."""
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
            return list_node(item, *_list_type(fact), item.defaults)
        node = Node(Shape.MAP, item=item)
    elif type_.struct is not None:
        node = of_struct(type_.struct)
    else:
        return SCALAR
    return node.atomic() if fact.map_type == "atomic" else node


def _list_type(fact: facts_of.FieldFacts) -> tuple[str, tuple[str, ...]]:
    """Return a list's type and keys; what merges in a patch but declares no list type merges in an apply too."""
    if not fact.list_type and "merge" in fact.strategy.split(","):
        return ("map", (fact.merge_key,)) if fact.merge_key else ("set", ())
    return fact.list_type, fact.list_keys


def list_node(item: Node, list_type: str, keys: tuple[str, ...], defaults: Mapping[str, Any]) -> Node:
    """Return the shape of a list of a declared type; `defaults` are those of its items' keys."""
    if list_type == "map" and keys:
        return Node(Shape.KEYED, item=item, keys=tuple(sorted(keys)), defaults=defaults)
    return Node(Shape.SET if list_type == "set" else Shape.LEAF, item=item)
