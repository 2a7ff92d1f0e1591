"""Label and field selectors: parsing, matching, and the text form, as apimachinery's pkg/labels and pkg/fields.

A selector is a tuple of requirements that must all hold. Parse errors carry upstream's messages and become 400s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube import names
from kube.label_rules import Rules
from kube.label_rules import whole as _whole

_FEW = 8
"""So many requirements are compared one by one, which is faster than joining them first."""


class SelectorError(ValueError):
    """A selector cannot be read."""


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label. `operator` is in, notin, exists, !, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        (bound,) = self.values
        number, limit = _whole(value or ""), _whole(bound)
        if number is None or limit is None:
            return False
        return number > limit if self.operator == "gt" else number < limit

    def __str__(self) -> str:
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return "!" + self.key
        if self.operator in ("gt", "lt"):
            return f"{self.key}{'>' if self.operator == 'gt' else '<'}{next(iter(self.values))}"
        if len(self.values) == 1 and self.operator == "in":
            return f"{self.key}={next(iter(self.values))}"
        return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; none of them means everything. `nothing` matches no object at all."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False
    _joined: Rules | None = field(default=None, init=False, repr=False, compare=False)

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        if len(self.requirements) <= _FEW:
            for requirement in self.requirements:  # `all` takes as long again
                if not requirement.matches(labels):
                    return False
            return True
        return self._rules().match(labels)

    def matcher(self) -> Callable[[Mapping[str, str]], bool]:
        """Return `matches`, without the requirements if there are many: joined they take a third of the memory."""
        if self.nothing or len(self.requirements) <= _FEW:
            return self.matches
        return self._rules().match

    def cost(self, labels: Sized) -> int:
        """Return how many steps it takes to compare these labels; one is some 10 lines of Python, 2 µs."""
        return 1 if self.nothing or len(self.requirements) <= _FEW else 1 + self._rules().cost(labels)

    def parts(self, labels: Mapping[str, str], steps: int) -> Iterator[bool]:
        """Compare in parts of so many steps, each of which returns a result: the labels match if all do.

        Nothing may change the labels meanwhile.
        """
        if self.nothing or len(self.requirements) <= _FEW:
            return iter((self.matches(labels),))
        return self._rules().parts(labels, steps)

    def prepare(self) -> None:
        """Join many requirements, which the first comparison does otherwise."""
        if len(self.requirements) > _FEW:
            self._rules()

    @property
    def prepared(self) -> bool:
        """True if a comparison has nothing to join first."""
        return self._joined is not None or len(self.requirements) <= _FEW

    def _rules(self) -> Rules:
        if self._joined is None:
            rules = Rules((r.key, r.operator, r.values) for r in self.requirements)
            object.__setattr__(self, "_joined", rules)
            return rules
        return self._joined

    @property
    def empty(self) -> bool:
        return not self.requirements and not self.nothing

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(nothing=True)

_TOKEN = re.compile(r"\s*(?:(==|!=|=|!|\(|\)|,|>|<)|([^\s=!(),<>]+))")


def parse_labels(text: str) -> LabelSelector:
    """Parse "a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1"."""
    tokens: list[str] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise SelectorError(f"unable to parse requirement: found '{text[position:]}', expected: identifier")
        tokens.append(match.group(1) or match.group(2))
        position = match.end()
    parser = _Parser(tokens)
    requirements = parser.parse() if tokens else []
    return LabelSelector(tuple(sorted(requirements, key=lambda r: r.key)))


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def fail(self, found: str, expected: str) -> SelectorError:
        return SelectorError(f"unable to parse requirement: found '{found}', expected: {expected}")

    def parse(self) -> list[Requirement]:
        found = []
        while True:
            found.append(self.requirement())
            token = self.take()
            if not token:
                return found
            if token != ",":
                raise self.fail(token, "',' or 'end of string'")

    def requirement(self) -> Requirement:
        negated = self.peek() == "!"
        if negated:
            self.take()
        key = self.take()
        if not key or not _identifier(key):
            raise self.fail(key, "identifier" if negated else "!, identifier, or 'end of string'")
        _check(names.qualified_name(key), key, "key")
        if negated:
            return Requirement(key, "!")
        operator = self.peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self.take()
        if operator in ("in", "notin"):
            return Requirement(key, operator, self.value_set(key))
        if operator in ("=", "==", "!="):
            value = self.take() if _identifier(self.peek()) else ""
            _check(names.label_value(value), value, f"values[0][{key}]")
            return Requirement(key, "notin" if operator == "!=" else "in", frozenset({value}))
        if operator in (">", "<"):
            value = self.take()
            if _whole(value) is None:
                raise SelectorError(
                    f"values[0][{key}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
                )
            return Requirement(key, "gt" if operator == ">" else "lt", frozenset({value}))
        raise self.fail(operator, "in, notin, =, ==, !=, gt, lt")

    def value_set(self, key: str) -> frozenset[str]:
        if (token := self.take()) != "(":
            raise self.fail(token, "'('")
        values: set[str] = set()
        if self.peek() == ")":
            self.take()
            return frozenset({""})
        while True:
            value = self.take() if _identifier(self.peek()) else ""
            _check(names.label_value(value), value, f"values[{len(values)}][{key}]")
            values.add(value)
            token = self.take()
            if token == ")":
                return frozenset(values)
            if token != ",":
                raise self.fail(token, "',' or ')'")


def _identifier(token: str) -> bool:
    return bool(token) and token not in ("=", "==", "!=", "!", "(", ")", ",", ">", "<")


def _check(problems: list[str], value: str, where: str) -> None:
    if problems:
        raise SelectorError(f'{where}: Invalid value: "{value}": {"; ".join(problems)}')


OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"}
"""The operators of expressions, in labels as in node affinity, as requirements name them."""


def from_label_selector(selector: Any) -> LabelSelector:
    """Build from a metav1.LabelSelector (Struct or dict): None matches nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    if isinstance(selector, dict):
        labels = selector.get("matchLabels") or {}
        expressions = [
            (e.get("key", ""), e.get("operator", ""), e.get("values") or ())
            for e in selector.get("matchExpressions") or ()
        ]
    else:
        labels = selector.match_labels
        expressions = [(e.key, e.operator, e.values) for e in selector.match_expressions]
    requirements = [Requirement(key, "in", frozenset({value})) for key, value in sorted(labels.items())]
    for key, operator, values in expressions:
        if operator not in OPERATORS:
            raise SelectorError(f'"{operator}" is not a valid label selector operator')
        requirements.append(Requirement(key, OPERATORS[operator], frozenset(values)))
    return LabelSelector(tuple(requirements))


def printed(selector: Any) -> str:
    """Print a metav1.LabelSelector as upstream's messages do, which show the pointer to one; "nil" for None."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{e.key},Operator:{e.operator},Values:[{' '.join(e.values)}],}},"
        for e in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def from_map(labels: Mapping[str, str]) -> LabelSelector:
    """Build from plain equalities, as a Service's selector."""
    return LabelSelector(tuple(Requirement(k, "in", frozenset({v})) for k, v in sorted(labels.items())))


class FieldSelector(msgspec.Struct, frozen=True):
    """Terms of a field selector: (field, value, equal)."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        for name, value, equal in self.terms:
            if (fields.get(name, "") == value) is not equal:
                return False
        return True

    @property
    def empty(self) -> bool:
        return not self.terms

    def exact(self, field: str) -> str | None:
        """Return the value that the selector demands of a field, if it does."""
        for name, value, equal in self.terms:
            if name == field and equal:
                return value
        return None


def parse_fields(text: str) -> FieldSelector:
    r"""Parse "a=b,c!=d,e==f" and sort the terms, as upstream; a backslash in a value escapes comma, equals sign and itself.

    Blanks count. A term ends at a comma, its field at the first operator.
    """
    terms = []
    for part in sorted(_TERM.findall(text)):
        match = _FIELD_OPERATOR.search(part)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, value = part[: match.start()], _SPECIAL.sub(_unescaped, part[match.end() :])
        if field or value:
            terms.append((field, value, match.group() != "!="))
    return FieldSelector(tuple(terms))


_TERM = re.compile(r"(?:[^\\,]|\\.|\\\Z)++", re.DOTALL)
_FIELD_OPERATOR = re.compile("!=|==|=")
_SPECIAL = re.compile(r"\\(.?)|[,=]", re.DOTALL)


def _unescaped(match: re.Match[str]) -> str:
    found, escaped = match.group(), match.group(1)
    if escaped is None:
        raise SelectorError(f"invalid field selector: unescaped character in value: {ord(found)}")
    if escaped not in ("\\", ",", "="):
        raise SelectorError(f"invalid field selector: invalid escape sequence: {found}")
    return str(escaped)
