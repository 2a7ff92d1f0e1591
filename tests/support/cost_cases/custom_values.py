"""Schema rules for single values: formats, patterns, and the JSON paths of columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from control.cel import formats, patterns
from control.custom.columns import Columns
from control.schemas import jsonpath
from control.server_tasks import policy_checking
from kube.resources import RESOURCES
from tests.support.cost import Case
from tests.support.cost_cases.inputs import NOW, OBJECT, cases, combining, fill

FORMATS: dict[str, Callable[[int], str]] = {
    "letters": fill("a"),
    "digits": fill("9"),
    "letters and dots": fill("a.", "", "!"),
    "letters and dashes": fill("a-", "a@", "!"),
    "colons": fill("1:"),
    "slashes": fill("/1"),
    "spaces": fill(" ", "1", "!"),
    "hours": fill("1h", "", "!"),
    "addresses": fill("a@"),
    "base64": fill("YWJj"),
    "combining characters of a URL's host": combining("http://", "/"),
}
JSON_PATHS: dict[str, Callable[[int], str]] = {
    "fields": fill(".a"),
    "dots": fill("."),
    "descents": fill("..a"),
    "brackets": fill("["),
    "quotes": fill("['"),
    "a quote without an end": fill("a", "['"),
    "backslashes": fill("\\", ".a"),
    "escapes": fill("\\.", ".a"),
    "indices": fill("[0]"),
    "a long index": fill("9", "[", "]"),
    "a slice": fill("9", "[1:", "]"),
    "filters": fill("[?(@.a==1)]"),
    "filters without an end": fill("[?(@"),
    "filters with brackets": fill("[]", "[?(@", ")]"),
    "nested filters": fill("[?(@.a", "", ""),
    "operators": fill("=", "[?(@.a", "1)]"),
    "spaces": fill(" ", "[?(@.a ==", ")"),
    "an operand": fill("a", "[?(@.a==", ")]"),
    "an operand of digits": fill("9", "[?(@.a==", ")]"),
    "spaces in an index": fill(" ", "[1", "x"),
}


def _nest(levels: int) -> Any:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


def _columns(path: str, content: Callable[[int], Any]) -> Callable[[int], tuple[Columns, Any]]:
    return lambda size: (Columns([{"jsonPath": path, "type": "string", "name": "a"}]), content(size))


CASES = [
    *cases("pattern", {"text": fill("a", "", "b")}, lambda text: patterns.found("^(a+)+$", text)),
    *cases(
        "pattern of a schema",
        {"groups": fill("("), "stars": fill("(a*)*"), "classes": fill("[a]"), "counts": fill("a{1000}")},
        lambda text: patterns.found(text, "a"),
        largest=OBJECT,
    ),
    *cases("JSON path", JSON_PATHS, lambda text: jsonpath.compiled.__wrapped__(text), largest=OBJECT),
    Case(
        "columns",
        _columns("..a", lambda size: {"x": [{"a": 1}] * (size // 8)}),
        lambda given: given[0].row(given[1], NOW),
        OBJECT,
    ),
    Case(
        "columns of descents",
        _columns("..a..a..a", lambda size: _nest(min(300, size // 8))),
        lambda given: given[0].row(given[1], NOW),
        OBJECT,
    ),
    Case(
        "columns of descents in a filter",
        _columns(".a[?(@..a..a..a==1)]", lambda size: _nest(min(300, size // 8))),
        lambda given: given[0].row(given[1], NOW),
        OBJECT,
    ),
    Case(
        "columns of a filter with many fields",
        _columns(f".x[?(@{'.a' * 1000}==1)]", lambda size: {"x": [{}] * (size // 3)}),
        lambda given: given[0].row(given[1], NOW),
        OBJECT,
    ),
]
SERVED = policy_checking.by_group_version(RESOURCES)
CASES.append(
    Case(
        "kinds of a policy's rule",
        lambda size: {
            "apiGroups": [f"g{number}" for number in range(size // 16)],
            "apiVersions": [f"v{number}" for number in range(size // 16)],
            "resources": [f"r{number}" for number in range(size // 16)],
        },
        lambda rule: list(policy_checking.named(rule, SERVED)),
        OBJECT,
    )
)
for name in formats._TESTS:
    CASES += cases(f"format {name}", FORMATS, functools.partial(formats.valid, name), largest=OBJECT)
