"""Type checker for CEL expressions: cel-go's checker for the supported language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from control.cel.errors import MOST_ISSUES, CompileError, EvaluationError, Issue
from control.cel.functions import pattern
from control.cel.signatures import Overload, Signatures
from control.cel.syntax import Bind, Call, Ident, Literal, Loop, MakeList, MakeMap, Node, Select
from control.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    TYPE,
    UINT,
    Type,
    assignable,
    join,
    list_of,
    map_of,
    optional_of,
    substitute,
)
from control.cel.values import Uint, parse_duration, parse_timestamp

_LITERALS = {bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL}
TYPE_NAMES = {
    "bool": "bool", "int": "int", "uint": "uint", "double": "double", "string": "string", "bytes": "bytes",
    "list": "list", "map": "map", "null_type": "null_type", "type": "type", "optional_type": "optional_type",
}  # fmt: skip


MOST_TYPES = 256
"""Most types that a type consists of. `[1].map(v, {v: v})` doubles it for two characters more."""


class TypeTooLarge(Exception):
    """A part of an expression has a type that consists of too many types."""


_WRITTEN_OUT: dict[str, Callable[[str], Any]] = {
    "matches": pattern,
    "duration": parse_duration,
    "timestamp": parse_timestamp,
}


class Checker:
    """Checks one expression."""

    def __init__(
        self, source: str, variables: Mapping[str, Type], signatures: Signatures, types: Mapping[str, Type]
    ) -> None:
        self.source, self.scope, self.signatures, self.types = source, dict(variables), signatures, types
        self.issues: list[Issue] = []
        self._more = 0
        """Further issues than those."""
        self.used: set[str] = set()
        """The variables that the expression refers to."""
        self._local: dict[str, int] = {}
        self._mixed = 0
        """Greater than 0 if literals may hold values of different types: among the arguments of format()."""

    def check(self, node: Node) -> Type:
        """Return the expression's type, and leave each part's on it; raises CompileError, TypeTooLarge."""
        found = self.visit(node)
        if self.issues:
            raise CompileError(self.source, self.issues, self._more)
        return found

    def issue(self, node: Node, message: str) -> Type:
        if len(self.issues) < MOST_ISSUES:
            self.issues.append(Issue(node.at, message))
        else:
            self._more += 1
        return DYN

    def visit(self, node: Node) -> Type:
        node.type = found = self._visit(node)
        if found.weight > MOST_TYPES:
            raise TypeTooLarge
        return found

    def _visit(self, node: Node) -> Type:
        if isinstance(node, Literal):
            found = _LITERALS[type(node.value)]
            size = len(node.value) if isinstance(node.value, str | bytes) else None
            return found if size is None else Type(found.kind, size=size)
        if isinstance(node, Ident):
            return self._ident(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, MakeList):
            return self._list(node)
        if isinstance(node, MakeMap):
            return self._map(node)
        if isinstance(node, Loop):
            return self._loop(node)
        assert isinstance(node, Bind)
        return self._bind(node)

    def _ident(self, node: Ident) -> Type:
        found = self.scope.get(node.name)
        if found is not None:
            if not self._local.get(node.name):
                self.used.add(node.name)
            return found
        if node.name in TYPE_NAMES:
            return TYPE
        return self.issue(node, f"undeclared reference to '{node.name}' (in container '')")

    def _select(self, node: Select) -> Type:
        operand = self.visit(node.operand)
        chained = operand.kind == "optional"
        inner = operand.params[0] if chained else operand
        found = self._field(node, inner)
        if node.test:
            return BOOL
        if chained or node.optional:
            return found if found.kind == "optional" and chained else optional_of(found)
        return found

    def _field(self, node: Select, operand: Type) -> Type:
        if operand.kind == "object":
            known = operand.fields.get(node.field)
            return known[1] if known else self.issue(node, f"undefined field '{node.field}'")
        if operand.kind == "map":
            return operand.params[1]
        if operand.kind == "dyn":
            return DYN
        return self.issue(node, f"type '{operand}' does not support field selection")

    # -- calls ----------------------------------------------------------------------------------------------------
    def _call(self, node: Call) -> Type:
        if node.target is not None and (path := self._namespace(node.target)):
            qualified = f"{path}.{node.name}"
            if qualified in self.signatures:
                node.function, node.target = qualified, None
        forms = self.signatures.get(node.function)
        self._mixed += node.name == "format"
        arguments = [self.visit(arg) for arg in node.all_args]
        self._mixed -= node.name == "format"
        if forms is None:
            return self.issue(node, f"undeclared reference to '{node.function}' (in container '')")
        method = node.target is not None
        results = [r for form in forms if form.method == method and (r := _fits(form, arguments)) is not None]
        if not results:
            return self.issue(
                node,
                f"found no matching overload for '{node.function}' applied to '{_argument_types(arguments, method=method)}'",
            )
        self._literal_argument(node)
        found = results[0]
        for other in results[1:]:
            found = found if str(found) == str(other) else DYN
        return found

    def _literal_argument(self, node: Call) -> None:
        """Try what can be tried now: patterns, durations and timestamps that are written out."""
        check = _WRITTEN_OUT.get(node.function)
        if check is None or not node.args:
            return
        last = node.args[-1]
        if isinstance(last, Literal) and isinstance(last.value, str):
            try:
                check(last.value)
            except EvaluationError:
                self.issue(last, f"invalid {node.function} argument")

    def _same(self, node: Node, known: Type | None, found: Type) -> Type:
        """Return the type of a literal's items with one more; they have to be of one type."""
        if known is None:
            return found
        both = join(known, found)
        if both.kind == "dyn" and "dyn" not in (known.kind, found.kind) and not self._mixed:
            self.issue(node, f"expected type '{known}' but found '{found}'")
        return both

    def _namespace(self, node: Node) -> str:
        """Return `a.b` where it stands for no variable: then it may be the beginning of a function's name."""
        if isinstance(node, Ident):
            return "" if node.name in self.scope else node.name
        if isinstance(node, Select) and not node.optional and not node.test:
            before = self._namespace(node.operand)
            return f"{before}.{node.field}" if before else ""
        return ""

    # -- literals -------------------------------------------------------------------------------------------------
    def _list(self, node: MakeList) -> Type:
        item: Type | None = None
        for part, optional in zip(node.items, node.optional, strict=True):
            found = self.visit(part)
            if optional:
                found = found.params[0] if found.kind == "optional" else found
            item = self._same(part, item, found)
        return list_of(item or DYN, size=len(node.items))

    def _map(self, node: MakeMap) -> Type:
        if node.name:
            made = self.types.get(node.name)
            if made is None:
                self.issue(node, f"undeclared reference to '{node.name}' (in container '')")
            for key, value in node.entries:
                given = self.visit(value)
                name = key.value if isinstance(key, Literal) else ""
                if made is None:
                    continue
                if name not in made.fields:
                    self.issue(key, f"undefined field '{name}'")
                elif not assignable(given, wanted := made.fields[name][1], {}):
                    why = f"expected type of field '{name}' is '{wanted}' but provided type is '{given}'"
                    self.issue(key, why)
            return made or DYN
        key_type: Type | None = None
        value_type: Type | None = None
        for (key, value), optional in zip(node.entries, node.optional, strict=True):
            found = self.visit(key)
            key_type = self._same(key, key_type, found)
            found = self.visit(value)
            if optional:
                found = found.params[0] if found.kind == "optional" else found
            value_type = self._same(value, value_type, found)
        return map_of(key_type or DYN, value_type or DYN, size=len(node.entries))

    # -- macros ---------------------------------------------------------------------------------------------------
    def _loop(self, node: Loop) -> Type:
        over = self.visit(node.over)
        if over.kind == "list":
            first, second = INT, over.params[0]
        elif over.kind == "map":
            first, second = over.params
        elif over.kind == "dyn":
            first = second = DYN
        else:
            return self.issue(
                node.over,
                f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
        if len(node.variables) == 1:
            types = [first if over.kind == "map" else second]
        else:
            types = [first, second]
        saved = {name: self.scope.get(name) for name in node.variables}
        for name, each in zip(node.variables, types, strict=True):
            self.scope[name] = each
            self._local[name] = self._local.get(name, 0) + 1
        if node.condition is not None:
            self._must_be_bool(node.condition)
        if node.macro in ("all", "exists", "exists_one", "filter"):
            self._must_be_bool(node.body)
            body = BOOL
        else:
            body = self.visit(node.body)
        for name, before in saved.items():
            self._local[name] -= 1
            if before is None:
                del self.scope[name]
            else:
                self.scope[name] = before
        if node.macro == "filter":
            return list_of(over.params[0], size=over.size) if over.kind == "list" else list_of(first, size=over.size)
        if node.macro in ("map", "transformList"):
            return list_of(body, size=over.size)
        if node.macro == "transformMap":
            return map_of(first, body, size=over.size)
        if node.macro == "transformMapEntry":
            return body if body.kind == "map" else map_of(DYN, DYN, size=over.size)
        return BOOL

    def _must_be_bool(self, node: Node) -> None:
        found = self.visit(node)
        if found.kind not in ("bool", "dyn"):
            self.issue(node, f"expected type 'bool' but found '{found}'")

    def _bind(self, node: Bind) -> Type:
        value = self.visit(node.value)
        if node.macro != "bind":
            if value.kind not in ("optional", "dyn"):
                return self.issue(
                    node, f"found no matching overload for '{node.macro}' applied to '{value}.(dyn, dyn)'"
                )
            value = value.params[0] if value.params else DYN
        before = self.scope.get(node.variable)
        self.scope[node.variable] = value
        self._local[node.variable] = self._local.get(node.variable, 0) + 1
        body = self.visit(node.body)
        self._local[node.variable] -= 1
        if before is None:
            del self.scope[node.variable]
        else:
            self.scope[node.variable] = before
        return optional_of(body) if node.macro == "optMap" else body


def _fits(form: Overload, arguments: list[Type]) -> Type | None:
    if len(form.params) != len(arguments):
        return None
    bound: dict[str, Type] = {}
    for given, wanted in zip(arguments, form.params, strict=True):
        if not assignable(given, wanted, bound):
            return None
        if given.kind == "dyn":
            for parameter in _parameters(wanted):
                bound.setdefault(parameter, DYN)
    return substitute(form.result, bound)


def _parameters(type_: Type) -> list[str]:
    if type_.kind == "param":
        return [type_.name]
    return [name for inner in type_.params for name in _parameters(inner)]


def _argument_types(arguments: list[Type], *, method: bool) -> str:
    if method:
        return f"{arguments[0]}.({', '.join(map(str, arguments[1:]))})"
    return f"({', '.join(map(str, arguments))})"
