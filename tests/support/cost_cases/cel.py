"""CEL expressions, and values that they are evaluated for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from control.cel import CompileError, Declarations, EvaluationError, compile
from control.cel.errors import BudgetExceeded
from control.cel.program import PER_CALL_LIMIT
from control.cel.types import INT, STRING, list_of
from tests.support.cost import Case
from tests.support.cost_cases.inputs import OBJECT, cases, combining, each, fill

DECLARED = Declarations({"n": INT, "s": STRING, "list": list_of(STRING), "free": list_of(STRING)})
EXPRESSIONS: dict[str, Callable[[int], str]] = {
    "a sum": fill("1+", "", "1"),
    "ands": fill("true&&", "", "true"),
    "a chain of calls": fill(".trim()", "s"),
    "a chain of selections": fill(".a", "s"),
    "indices": fill("[0]", "list"),
    "parentheses": fill("("),
    "nots": fill("!", "", "true"),
    "minus signs": fill("-", "", "1"),
    "ternaries": fill("true?1:", "", "1"),
    "a list": fill("1,", "[", "1]"),
    "a list of different things": each("'v%d',", "[", "1]"),
    "a map": each("'k%d':1,", "{", "'a':1}"),
    "a long string": fill("a", "'", "'"),
    "escapes": fill("\\n", "'", "'"),
    "a string without an end": fill("a", "'"),
    "quotes without an end": fill("'"),
    "triple quotes without an end": fill("''' ", "'''"),
    "raw strings without an end": fill("r'"),
    "digits": fill("9"),
    "digits of a double": fill("9", "0."),
    "hexadecimal": fill("f", "0x"),
    "names": fill("a"),
    "different names": each("a%d+", "", "1"),
    "spaces": fill(" ", "1", "+1"),
    "comments": fill("//\n", "1+", "1"),
    "macros": fill("list.all(x,", "", "true"),
    "strange characters": fill("#"),
    "dots": fill("."),
}
EVALUATIONS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    name: (
        expression,
        lambda size: {
            "n": 1,
            "s": "a" * size,
            "list": ["a"] * (size // 4),
            "free": [f"v{i}" for i in range(size // 6)],
        },
    )
    for name, expression in {
        "all in all": "list.all(x, list.all(y, x == y))",
        "in": "list.all(x, x in list)",
        "different values in": "free.all(x, x in free)",
        "sets": "sets.contains(list, list)",
        "sets of different values": "sets.equivalent(free, free.map(x, x))",
        "sets that meet": "sets.intersects(free, free.map(x, x + 'a'))",
        "unique": "free.filter(x, true).size() > 0 && free.isSorted()",
        "concatenation": "list.map(x, s + s + x).size() > 0",
        "a pattern": "s.matches('(a*)*b')",
        "a pattern of the text": "s.matches(s)",
        "find": "s.findAll('a').size() > 0",
        "replace": "s.replace('a', 'bb').size() > 0",
        "replace by itself": "s.replace('a', s).size() > 0",
        "split": "s.split('').size() > 0",
        "join": "list.join(s).size() > 0",
        "index": "s.indexOf('b') < 0 && s.lastIndexOf('b') < 0",
        "index of half of it": "s.indexOf(s.substring(0, s.size() / 2) + 'b') < 0",
        "last index of half of it": "s.lastIndexOf('ab' + s.substring(0, s.size() / 2)) < 0",
        "find everywhere": "s.findAll('').size() > 0",
        "find that looks ahead": "s.findAll('a*b|a').size() > 0",
        "quantity": "isQuantity(s)",
        "url": "isURL(s)",
        "ip": "isIP(s)",
        "cidr": "isCIDR(s)",
        "semver": "isSemver(s)",
        "format": "'%s%s'.format([s, list]).size() > 0",
        "equality of lists": "free == free.map(x, x)",
        "sums": "list.map(x, 1).sum() > 0",
        "duration": "duration(s) == duration('1h')",
        "timestamp": "timestamp(s) == timestamp(s)",
        "integer": "int(s) == 1",
        "double": "double(s) == 1.0",
        "reverse": "s.reverse() == s",
        "case": "s.upperAscii() == s.lowerAscii()",
    }.items()
}
DIGITS: dict[str, str] = {
    "quantity of digits": "isQuantity(s)",
    "semver of digits": "isSemver('1.' + s + '.1')",
    "semver of parts": "isSemver('1.1.1-' + s.replace('9', '9.'))",
    "integer of digits": "int(s) == 1",
    "unsigned of digits": "uint(s) == 1u",
    "double of digits": "double(s) == 1.0",
    "duration of digits": "duration(s + 'h') == duration('1h')",
    "url with a port": "isURL('http://a:' + s)",
    "ip of digits": "isIP(s)",
    "format of digits": "('%.' + s + 'f').format([1.0]).size() > 0",
}


QUADRATIC = {"all in all", "different values in", "sets of different values", "sets that meet"}
"""Expressions that are quadratic and so end at the budget; a tenth of it shows as well that they do."""


def evaluated(expression: str, budget: int = PER_CALL_LIMIT) -> Callable[[dict[str, Any]], object]:
    program = compile(expression, DECLARED)
    return lambda variables: program.evaluate(variables, budget)


def _combining(size: int) -> dict[str, Any]:
    return {"n": 1, "s": combining()(size), "list": [], "free": []}


CEL_REFUSED = (CompileError, EvaluationError, BudgetExceeded)


def _digits(size: int) -> dict[str, Any]:
    return {"n": 1, "s": "9" * size, "list": [], "free": []}


CASES = [
    *cases("CEL", EXPRESSIONS, lambda text: compile(text, DECLARED), largest=OBJECT, refused=CEL_REFUSED, memory=5000),
    *(
        Case(
            f"CEL value: {name}",
            values,
            evaluated(expression, PER_CALL_LIMIT // (10 if name in QUADRATIC else 1)),
            OBJECT,
            CEL_REFUSED,
        )
        for name, (expression, values) in EVALUATIONS.items()
    ),
    *(
        Case(f"CEL value: {name}", _digits, evaluated(expression), OBJECT, CEL_REFUSED)
        for name, expression in DIGITS.items()
    ),
    Case(
        "CEL value: url of combining characters",
        _combining,
        evaluated("isURL('http://' + s) && url('http://' + s).getHost() == s"),
        OBJECT,
        CEL_REFUSED,
    ),
]
