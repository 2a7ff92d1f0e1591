"""Text to syntax tree: CEL's grammar by recursive descent, with the macros and the optional syntax that Kubernetes has on."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from control.cel.errors import CompileError, Issue
from control.cel.syntax import Bind, Call, Ident, Literal, Loop, MakeList, MakeMap, Node, Select
from control.cel.values import Uint

DEEPEST = 60
"""Maximum nesting of parentheses and operators (each level takes a dozen frames of Python's stack here)."""
_LONGEST_NUMBER = 100
"""Maximum number of digits of an integer literal: converting more takes time that grows with their square."""
LONGEST = 100_000
"""Maximum length of an expression, in code points."""
_TOKEN = re.compile(
    r"""(?P<space>(?:\s+|//[^\n]*)+)
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+[uU]?)
    |(?P<string>(?:[rR][bB]?|[bB][rR]?)?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<raw>[rR][bB]?(?:"[^"\n]*"|'[^'\n]*'))
    |(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<op>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_RAW = re.compile(r"""(?:[rR][bB]?|[bB][rR])(?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*')""", re.DOTALL)
RESERVED = frozenset(
    "as break const continue else for function if import let loop package namespace return var void while".split()
)
_LOOPS = {"all", "exists", "exists_one", "existsOne", "map", "filter"}
_TRANSFORMS = {"transformList", "transformMap", "transformMapEntry"}
_LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_OPERATORS = {
    "==": "_==_", "!=": "_!=_", "<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "in": "@in",
    "+": "_+_", "-": "_-_", "*": "_*_", "/": "_/_", "%": "_%_", "||": "_||_", "&&": "_&&_",
}  # fmt: skip


def parse(source: str) -> Node:
    """Parse an expression; raises CompileError."""
    if len(source) > LONGEST:
        raise CompileError(
            source[:80], [Issue(0, f"expression code point size exceeds limit: size: {len(source)}, limit {LONGEST}")]
        )
    return _Parser(source).whole()


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(source):
            found = _RAW.match(source, at)
            kind = "string"
            if found is None:
                found = _TOKEN.match(source, at)
                kind = (found.lastgroup or "") if found else ""
            if found is None:
                self.fail(at, f"Syntax error: token recognition error at: '{source[at]}'")
            if kind != "space":
                self.tokens.append((kind, found.group(), at))
            at = found.end()
        self.tokens.append(("end", "<EOF>", len(source)))
        self.place = 0
        self.depth = 0

    def fail(self, at: int, message: str) -> NoReturn:
        raise CompileError(self.source, [Issue(at, message)])

    # -- tokens ---------------------------------------------------------------------------------------------------
    def peek(self) -> str:
        kind, text, _ = self.tokens[self.place]
        return text if kind in ("op", "end") or text == "in" else ""

    def take(self) -> tuple[str, str, int]:
        token = self.tokens[self.place]
        if token[0] != "end":
            self.place += 1
        return token

    def accept(self, text: str) -> int | None:
        if self.peek() == text:
            return self.take()[2]
        return None

    def expect(self, text: str) -> int:
        at = self.accept(text)
        if at is None:
            _, found, where = self.tokens[self.place]
            self.fail(where, f"Syntax error: mismatched input '{found}' expecting '{text}'")
        return at

    # -- grammar --------------------------------------------------------------------------------------------------
    def whole(self) -> Node:
        node = self.expression()
        _, text, at = self.tokens[self.place]
        if text != "<EOF>":
            self.fail(at, f"Syntax error: mismatched input '{text}' expecting <EOF>")
        return node

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(self.tokens[self.place][2], f"expression recursion limit exceeded: {DEEPEST}")
        node = self.binary(0)
        at = self.accept("?")
        if at is not None:
            yes = self.binary(0)
            self.expect(":")
            node = Call(at, "_?_:_", [node, yes, self.expression()])
        self.depth -= 1
        return node

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        node = self.binary(level + 1)
        parts: list[tuple[int, Node]] = []
        while self.peek() in _LEVELS[level]:
            _, operator, at = self.take()
            right = self.binary(level + 1)
            if level < 2:
                parts.append((at, right))  # long chains of && and || are balanced, so that they do not nest deep
            else:
                node = Call(at, _OPERATORS[operator], [node, right])
        return _balanced(_OPERATORS[_LEVELS[level][0]], node, parts) if parts else node

    def unary(self) -> Node:
        text = self.peek()
        if text == "!":
            signs, at = 0, self.tokens[self.place][2]
            while self.accept("!") is not None:
                signs += 1
            node = self.member()
            return Call(at, "!_", [node]) if signs % 2 else node
        if text == "-":
            at = self.take()[2]
            kind, digits, _ = self.tokens[self.place]
            if kind == "number":
                self.take()
                return self.members(Literal(at, self.number("-" + digits, at)))
            signs = 1
            while self.accept("-") is not None:
                signs += 1
            node = self.member()
            return Call(at, "-_", [node]) if signs % 2 else node
        return self.member()

    def member(self) -> Node:
        return self.members(self.primary())

    def members(self, node: Node) -> Node:
        while True:
            text = self.peek()
            if text in (".", ".?"):
                at = self.take()[2]
                kind, name, where = self.take()
                if kind == "quoted":
                    node = Select(at, node, name[1:-1], optional=text == ".?")
                    continue
                if kind != "name" or name in ("in", "true", "false", "null"):
                    self.fail(where, f"Syntax error: no viable alternative at input '.{name}'")
                if text == "." and self.peek() == "(":
                    node = self.call(name, node)
                else:
                    node = Select(at, node, name, optional=text == ".?")
            elif text in ("[", "[?"):
                at = self.take()[2]
                index = self.expression()
                self.expect("]")
                node = Call(at, "_[_]" if text == "[" else "_[?_]", [node, index])
            elif text == "{" and isinstance(node, Ident | Select) and (name := _dotted(node)):
                at = self.take()[2]
                entries, optional = self.entries("}", names=True)
                node = MakeMap(at, entries, optional, name)
            else:
                return node

    def primary(self) -> Node:
        kind, text, at = self.take()
        if kind == "number":
            return Literal(at, self.number(text, at))
        if kind in ("string", "raw"):
            return Literal(at, self.string(text, at))
        if kind == "name":
            if text in ("true", "false"):
                return Literal(at, text == "true")
            if text == "null":
                return Literal(at, None)
            if text == "in":
                self.fail(at, "Syntax error: mismatched input 'in'")
            if text in RESERVED:
                self.fail(at, f"reserved identifier: {text}")
            return self.call(text, None) if self.peek() == "(" else Ident(at, text)
        if text == ".":
            kind, name, where = self.take()
            if kind != "name":
                self.fail(where, f"Syntax error: mismatched input '{name}'")
            return self.call(name, None) if self.peek() == "(" else Ident(at, name)
        if text == "(":
            node = self.expression()
            self.expect(")")
            return node
        if text in ("[", "[?"):
            items, optional = [], []
            marked = text == "[?"
            while marked or self.peek() != "]":
                optional.append(marked or self.accept("?") is not None)
                marked = False
                items.append(self.expression())
                if self.accept(",") is None:
                    break
            self.expect("]")
            return MakeList(at, items, optional)
        if text == "{":
            entries, optional = self.entries("}")
            return MakeMap(at, entries, optional)
        self.fail(at, f"Syntax error: mismatched input '{text}'")

    def entries(self, end: str, *, names: bool = False) -> tuple[list[tuple[Node, Node]], list[bool]]:
        entries: list[tuple[Node, Node]] = []
        optional: list[bool] = []
        while self.peek() != end:
            optional.append(self.accept("?") is not None)
            if names:
                kind, name, at = self.take()
                if kind != "name":
                    self.fail(at, f"Syntax error: mismatched input '{name}' expecting IDENTIFIER")
                key: Node = Literal(at, name)
            else:
                key = self.expression()
            self.expect(":")
            entries.append((key, self.expression()))
            if self.accept(",") is None:
                break
        self.expect(end)
        return entries, optional

    # -- calls and macros -----------------------------------------------------------------------------------------
    def call(self, name: str, target: Node | None) -> Node:
        at = self.expect("(")
        args: list[Node] = []
        while self.peek() != ")":
            args.append(self.expression())
            if self.accept(",") is None:
                break
        self.expect(")")
        return self.macro(at, name, target, args) or Call(at, name, args, target)

    def macro(self, at: int, name: str, target: Node | None, args: list[Node]) -> Node | None:
        if target is None:
            if name != "has" or len(args) != 1:
                return None
            tested = args[0]
            if not isinstance(tested, Select) or tested.optional:
                self.fail(at, "invalid argument to has() macro")
            found = Select(tested.at, tested.operand, tested.field)
            found.test = True
            return found
        if name in _LOOPS and len(args) in (2, 3):
            macro = {"existsOne": "exists_one"}.get(name, name)
            if name == "map":
                return Loop(at, "map", target, [self.variable(args[0])], args[1] if len(args) == 3 else None, args[-1])
            if len(args) == 3 and name == "filter":
                return None
            return Loop(at, macro, target, [self.variable(a) for a in args[:-1]], None, args[-1])
        if name in _TRANSFORMS and len(args) in (3, 4):
            variables = [self.variable(a) for a in args[:2]]
            return Loop(at, name, target, variables, args[2] if len(args) == 4 else None, args[-1])
        if name == "bind" and isinstance(target, Ident) and target.name == "cel" and len(args) == 3:
            return Bind(at, "bind", self.variable(args[0]), args[1], args[2])
        if name in ("optMap", "optFlatMap") and len(args) == 2:
            return Bind(at, name, self.variable(args[0]), target, args[1])
        return None

    def variable(self, node: Node) -> str:
        if not isinstance(node, Ident):
            self.fail(node.at, "argument must be a simple name")
        return node.name

    # -- literals -------------------------------------------------------------------------------------------------
    def number(self, text: str, at: int) -> Any:
        unsigned = text[-1] in "uU"
        digits = text[:-1] if unsigned else text
        if not unsigned and any(c in digits for c in ".eE") and "x" not in digits.lower():
            return float(digits)
        if len(digits) > _LONGEST_NUMBER:
            self.fail(at, f"invalid {'uint' if unsigned else 'int'} literal")
        value = int(digits, 16 if "x" in digits.lower() else 10)
        if unsigned:
            if not 0 <= value < 1 << 64:
                self.fail(at, "invalid uint literal")
            return Uint(value)
        if not -(1 << 63) <= value < 1 << 63:
            self.fail(at, "invalid int literal")
        return value

    def string(self, text: str, at: int) -> Any:
        prefix = ""
        while text[0] not in "\"'":
            prefix, text = prefix + text[0].lower(), text[1:]
        quote = 3 if text[:3] in ('"""', "'''") else 1
        body = text[quote:-quote]
        if "r" in prefix:
            return body.encode() if "b" in prefix else body
        try:
            return _unescape_bytes(body) if "b" in prefix else _unescape(body)
        except ValueError as error:
            self.fail(at, f"invalid string literal: {error}")


def _dotted(node: Node) -> str:
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.optional and (before := _dotted(node.operand)):
        return f"{before}.{node.field}"
    return ""


def _balanced(operator: str, first: Node, parts: list[tuple[int, Node]]) -> Node:
    nodes, places = [first, *(node for _, node in parts)], [at for at, _ in parts]

    def build(low: int, high: int) -> Node:
        if low == high:
            return nodes[low]
        middle = (low + high) // 2
        return Call(places[middle], operator, [build(low, middle), build(middle + 1, high)])

    return build(0, len(nodes) - 1)


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {c: c for c in "\\'\"`?"}


def _unescape(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        what = found.group(1)
        if what in _SIMPLE:
            return _SIMPLE[what]
        if what[0] in "xXuU" and len(what) > 1:
            return chr(int(what[1:], 16))
        if what[0] in "0123" and len(what) == 3:
            return chr(int(what, 8))
        raise ValueError(f"unable to unescape \\{what}")

    return _ESCAPE.sub(replace, text) if "\\" in text else text


def _unescape_bytes(text: str) -> bytes:
    parts, last = [], 0
    for found in _ESCAPE.finditer(text):
        parts.append(text[last : found.start()].encode())
        what = found.group(1)
        if what[0] in "xX" and len(what) > 1:
            parts.append(bytes([int(what[1:], 16)]))
        elif what[0] in "0123" and len(what) == 3:
            parts.append(bytes([int(what, 8)]))
        else:
            parts.append(_unescape(found.group()).encode())
        last = found.end()
    return b"".join([*parts, text[last:].encode()])
