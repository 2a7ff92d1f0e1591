"""Counts the entries that C code copies or compares in one line of Python.

Copies are `{**labels}`, `dict(labels)`, `[*items]`, `a + b`. Comparisons with each entry are `name in items` and
`items.index(name)`, where `items` is a list. A count of executed lines sees none of them. While entries are counted, the
functions of some folders run from a second compilation of their source in which each such collection passes through a function
first.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_NAME, _INTERSECTION, _SCAN = "__counted_copy__", "__counted_intersection__", "__counted_scan__"
_BUILTINS = frozenset("dict list set tuple frozenset sorted deque Counter sum min max".split())
_METHODS = frozenset("update extend union difference symmetric_difference join".split())
_COLLECTIONS: tuple[type[Any], ...] = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    deque,
    type({}.items()),
    type({}.keys()),
    type({}.values()),
)
_OPERATORS = (ast.Add, ast.BitOr, ast.Sub)
_SCANNING = frozenset("index count remove".split())
"""Methods that compare their argument with each entry of a list."""
_SCANNED: tuple[type[Any], ...] = (list, tuple, deque, type({}.values()))

Count = Callable[[str, int, int], None]
"""Called with the file, the line and the number of entries that the line copies or compares."""


class _Instrumented(ast.NodeTransformer):
    """Source in which the collections that are copied or searched pass through a function."""

    def __init__(self, file: str) -> None:
        self._file = file

    def _passed(self, value: ast.expr, function: str = _NAME) -> ast.expr:
        if isinstance(value, (ast.GeneratorExp, ast.Constant, ast.ListComp, ast.DictComp, ast.SetComp)):
            return value  # its lines are executed once for each entry
        arguments: list[ast.expr] = [value, ast.Constant(self._file), ast.Constant(value.lineno)]
        call = ast.Call(ast.Name(function, ast.Load()), arguments, [])
        return ast.fix_missing_locations(ast.copy_location(call, value))

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        pairs = zip(node.keys, node.values, strict=True)
        node.values = [value if key is not None else self._passed(value) for key, value in pairs]
        return node

    def _starred(self, node: Any) -> Any:
        self.generic_visit(node)
        for item in node.elts:
            if isinstance(item, ast.Starred) and isinstance(node.ctx, ast.Load):
                item.value = self._passed(item.value)
        return node

    visit_List = visit_Tuple = _starred

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Name) and called.id in _BUILTINS and len(node.args) == 1:
            if not isinstance(node.args[0], ast.Starred):
                node.args = [self._passed(node.args[0])]
        elif isinstance(called, ast.Attribute) and called.attr in _METHODS and len(node.args) == 1:
            node.args = [self._passed(node.args[0])]
        elif isinstance(called, ast.Attribute) and called.attr == "copy" and not node.args:
            called.value = self._passed(called.value)
        elif isinstance(called, ast.Attribute) and called.attr in _SCANNING and node.args:
            called.value = self._passed(called.value, _SCAN)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for index, operator in enumerate(node.ops):
            within = node.comparators[index]
            if isinstance(operator, (ast.In, ast.NotIn)) and not isinstance(within, (ast.Tuple, ast.List)):
                node.comparators[index] = self._passed(within, _SCAN)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, _OPERATORS):
            node.left, node.right = self._passed(node.left), self._passed(node.right)
        if isinstance(node.op, ast.BitAnd):
            arguments = [node.left, node.right, ast.Constant(self._file), ast.Constant(node.lineno)]
            call = ast.Call(ast.Name(_INTERSECTION, ast.Load()), arguments, [])
            return ast.fix_missing_locations(ast.copy_location(call, node))
        return node


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _instrumented(file: str) -> dict[tuple[str, int], CodeType]:
    """Return the second compilation of a file's functions, by qualified name and first line."""
    tree = _Instrumented(file).visit(ast.parse(Path(file).read_text()))
    flags = compile("from __future__ import annotations", file, "exec").co_flags
    module = compile(tree, file, "exec", flags=flags & 0x1000000, dont_inherit=True)
    return {(code.co_qualname, code.co_firstlineno): code for code in _codes(module)}


def _functions(folders: tuple[str, ...]) -> list[FunctionType]:
    gc.unfreeze()  # frozen objects, such as the functions of modules, are not among `get_objects`
    everything = gc.get_objects()
    gc.freeze()
    return [
        found for found in everything if type(found) is FunctionType and found.__code__.co_filename.startswith(folders)
    ]


@contextlib.contextmanager
def counting(folders: tuple[str, ...], count: Count) -> Iterator[None]:
    """Count the entries that functions of these folders copy or compare; those that exist already, and those they define."""

    def passed(value: Any, file: str, line: int) -> Any:
        if isinstance(value, _COLLECTIONS) and value:
            count(file, line, len(value))
        return value

    def scanned(value: Any, file: str, line: int) -> Any:
        if isinstance(value, _SCANNED) and value:
            count(file, line, len(value))
        return value

    def intersection(left: Any, right: Any, file: str, line: int) -> Any:
        if isinstance(left, _COLLECTIONS) and isinstance(right, _COLLECTIONS):
            count(file, line, min(len(left), len(right)))
        return left & right

    files = dict[str, dict[tuple[str, int], CodeType]]()
    before = list[tuple[FunctionType, CodeType]]()
    for found in _functions(folders):
        code = found.__code__
        if code.co_filename not in files:
            files[code.co_filename] = _instrumented(code.co_filename) if Path(code.co_filename).exists() else {}
        twin = files[code.co_filename].get((code.co_qualname, code.co_firstlineno))
        if twin is not None and twin.co_freevars == code.co_freevars:
            before.append((found, code))
    setattr(builtins, _NAME, passed)
    setattr(builtins, _INTERSECTION, intersection)
    setattr(builtins, _SCAN, scanned)
    try:
        for found, code in before:
            twin = files[code.co_filename][code.co_qualname, code.co_firstlineno]
            found.__code__ = twin.replace(co_flags=code.co_flags)  # types.coroutine has set one
        yield
    finally:
        for found, code in before:
            found.__code__ = code
        delattr(builtins, _NAME)
        delattr(builtins, _INTERSECTION)
        delattr(builtins, _SCAN)
