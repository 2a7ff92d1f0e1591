"""The types that expressions are checked against: CEL's own, those of Kubernetes' libraries, and objects of a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Type:
    """A type. Objects have `fields` (by the name that expressions use), resolved when first requested.

    `size` is the most that a value can hold (characters, items, entries), None if nothing says: cost estimates go by it.
    `unique` is the list type of Kubernetes, "set" or "map" with `keys`, whose values are equal in any order.
    `required` are the names of fields that each value has in a request.
    """

    __slots__ = (
        "_fields",
        "_resolve",
        "convert",
        "keys",
        "kind",
        "name",
        "params",
        "required",
        "size",
        "smallest",
        "unique",
        "weight",
    )

    def __init__(
        self,
        kind: str,
        params: tuple[Type, ...] = (),
        *,
        name: str = "",
        fields: Callable[[], Mapping[str, tuple[str, Type]]] | None = None,
        size: int | None = None,
        unique: str = "",
        keys: tuple[str, ...] = (),
        convert: Callable[[Any], Any] | None = None,
        required: frozenset[str] = frozenset(),
    ) -> None:
        self.kind, self.params, self.name, self.size = kind, params, name, size
        self.required = required
        self.smallest: int | None = None
        """Bytes of the smallest JSON value, once computed (estimate.py)."""
        self.unique, self.keys = unique, keys
        self.weight: int = 1 + sum(each.weight for each in params)
        """Number of types that it consists of, shared ones counted each time: comparing or showing it visits so many."""
        self.convert = convert
        """Makes the CEL value of the JSON one, where they differ (times, durations, bytes, numbers)."""
        self._resolve = fields
        self._fields: Mapping[str, tuple[str, Type]] | None = None

    @property
    def fields(self) -> Mapping[str, tuple[str, Type]]:
        """An object's fields: name in expressions -> (name in the object, type)."""
        if self._fields is None:
            self._fields = self._resolve() if self._resolve else {}
        return self._fields

    def __str__(self) -> str:
        if self.kind == "object":
            return self.name or "object"
        if self.kind == "param":
            return self.name
        if self.params:
            return f"{_SHOWN.get(self.kind, self.kind)}({', '.join(map(str, self.params))})"
        return _SHOWN.get(self.kind, self.kind)

    __repr__ = __str__


_SHOWN = {
    "optional": "optional_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "null": "null",
    "quantity": "kubernetes.Quantity",
    "url": "kubernetes.URL",
    "ip": "net.IP",
    "cidr": "net.CIDR",
    "semver": "kubernetes.Semver",
    "format": "kubernetes.NamedFormat",
}


def _double(value: Any) -> Any:
    """JSON does not distinguish 1 and 1.0."""
    return float(value) if type(value) is int else value


DYN, BOOL, INT, UINT = Type("dyn"), Type("bool"), Type("int"), Type("uint")
DOUBLE, STRING, BYTES, NULL = Type("double", convert=_double), Type("string"), Type("bytes"), Type("null")
TIMESTAMP, DURATION, TYPE = Type("timestamp"), Type("duration"), Type("type")


def list_of(item: Type, **more: Any) -> Type:
    return Type("list", (item,), **more)


def map_of(key: Type, value: Type, **more: Any) -> Type:
    return Type("map", (key, value), **more)


def optional_of(item: Type) -> Type:
    return Type("optional", (item,))


def object_of(fields: Mapping[str, Type], name: str = "object") -> Type:
    """Return an object type whose fields have the same names in expressions and in the object; `fields` may grow."""
    shown = _SameNames(fields)
    return Type("object", name=name, fields=lambda: shown)


class _SameNames(Mapping[str, tuple[str, Type]]):
    def __init__(self, fields: Mapping[str, Type]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> tuple[str, Type]:
        return name, self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


_SCALARS = {t.kind: t for t in (DYN, BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION, TYPE)}


def parse(text: str) -> Type:
    """Read a type as signatures write it: `string`, `list(A)`, `map(string, dyn)`; capital letters are parameters."""
    text = text.strip()
    name, found, inner = text.partition("(")
    if not found:
        if len(name) == 1 and name.isupper():
            return Type("param", name=name)
        return _SCALARS.get(name) or _SCALARS.setdefault(name, Type(name))
    return Type(name, tuple(parse(part) for part in split(inner[:-1])))


def split(text: str) -> list[str]:
    """Split at the commas that are in no parentheses."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]] if text.strip() else []


def assignable(given: Type, wanted: Type, bound: dict[str, Type]) -> bool:
    """Return whether a value of one type fits another; parameters are bound to what they meet first, or widened to dyn."""
    if wanted.kind == "param":
        known = bound.get(wanted.name)
        if known is None or known.kind == "dyn":
            if known is None:
                bound[wanted.name] = given
            return True
        if assignable(given, known, {}):
            return True
        if assignable(known, given, {}):
            bound[wanted.name] = given
            return True
        return False
    if given is wanted or given.kind == "dyn" or wanted.kind == "dyn":
        return True
    if given.kind == "null":
        return wanted.kind in ("null", "object", "timestamp", "duration", "optional", "quantity", "url", "ip", "cidr")
    if given.kind != wanted.kind:
        return False
    if given.kind == "object":
        return given is wanted or given.name == wanted.name
    return all(assignable(g, w, bound) for g, w in zip(given.params, wanted.params, strict=False))


def substitute(type_: Type, bound: dict[str, Type]) -> Type:
    """Return a result type with its parameters replaced."""
    if type_.kind == "param":
        return bound.get(type_.name, DYN)
    if not type_.params:
        return type_
    return Type(type_.kind, tuple(substitute(p, bound) for p in type_.params), name=type_.name)


def join(one: Type, other: Type) -> Type:
    """Return the type of a value that is of one or the other: the same, or dyn."""
    if one.kind == "dyn" or other.kind == "dyn":
        return DYN
    if assignable(one, other, {}):
        return other
    return one if assignable(other, one, {}) else DYN
