"""The syntax tree of an expression. Macros are nodes of their own: they are neither calls to check nor loops to unfold."""

from __future__ import annotations

from typing import Any

from control.cel.types import DYN, Type


class Node:
    """A place in an expression. `type` is filled in by the checker."""

    __slots__ = ("at", "type")

    def __init__(self, at: int) -> None:
        self.at = at
        self.type: Type = DYN


class Literal(Node):
    __slots__ = ("value",)

    def __init__(self, at: int, value: Any) -> None:
        super().__init__(at)
        self.value = value


class Ident(Node):
    __slots__ = ("name",)

    def __init__(self, at: int, name: str) -> None:
        super().__init__(at)
        self.name = name


class Select(Node):
    """`operand.field`; `test` for has(), `optional` for `operand.?field`."""

    __slots__ = ("field", "operand", "optional", "test")

    def __init__(self, at: int, operand: Node, field: str, *, optional: bool = False) -> None:
        super().__init__(at)
        self.operand, self.field, self.optional, self.test = operand, field, optional, False


class Call(Node):
    """A function, a method (`target`), or an operator under its CEL name (`_+_`). `function` is resolved by the checker."""

    __slots__ = ("args", "function", "name", "target")

    def __init__(self, at: int, name: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(at)
        self.name, self.args, self.target = name, args, target
        self.function = name

    @property
    def all_args(self) -> list[Node]:
        return self.args if self.target is None else [self.target, *self.args]


class MakeList(Node):
    __slots__ = ("items", "optional")

    def __init__(self, at: int, items: list[Node], optional: list[bool]) -> None:
        super().__init__(at)
        self.items, self.optional = items, optional


class MakeMap(Node):
    __slots__ = ("entries", "name", "optional")

    def __init__(self, at: int, entries: list[tuple[Node, Node]], optional: list[bool], name: str = "") -> None:
        super().__init__(at)
        self.entries, self.optional, self.name = entries, optional, name


class Loop(Node):
    """all, exists, exists_one, map, filter, each with one variable or two, and the transform macros."""

    __slots__ = ("body", "condition", "macro", "over", "variables")

    def __init__(
        self, at: int, macro: str, over: Node, variables: list[str], condition: Node | None, body: Node
    ) -> None:
        super().__init__(at)
        self.macro, self.over, self.variables, self.condition, self.body = macro, over, variables, condition, body


class Bind(Node):
    """cel.bind(variable, value, body), and optMap and optFlatMap, whose value is what an optional holds."""

    __slots__ = ("body", "macro", "value", "variable")

    def __init__(self, at: int, macro: str, variable: str, value: Node, body: Node) -> None:
        super().__init__(at)
        self.macro, self.variable, self.value, self.body = macro, variable, value, body


FREE_OPERATORS = frozenset({"_&&_", "_||_"})


def free_nodes(*nodes: Node | None) -> int:
    """Return how many literals, `&&` and `||` there are in these: cel-go charges nothing for their evaluation."""
    found, waiting = 0, [node for node in nodes if node is not None]
    while waiting:
        node = waiting.pop()
        found += isinstance(node, Literal) or (isinstance(node, Call) and node.name in FREE_OPERATORS)
        for name in type(node).__slots__:
            part = getattr(node, name)
            for each in part if isinstance(part, list) else (part,):
                waiting += [
                    inner for inner in (each if isinstance(each, tuple) else (each,)) if isinstance(inner, Node)
                ]
    return found
