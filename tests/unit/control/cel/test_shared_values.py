"""Values and types that share their parts have an exponential size; what looks at all of it costs as much, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import pytest

from control.cel import BudgetExceeded, CompileError, Declarations, EvaluationError, compile, times
from control.cel.checker import MOST_TYPES
from control.cel.errors import LONGEST_TEXT, MOST_ISSUES
from control.cel.types import DYN, INT, STRING, Type, list_of, object_of
from tests.support.cost import Lines

LIMIT = 5000
SET, MAP = (
    Type("list", (STRING,), unique="set"),
    Type("list", (object_of({"k": STRING, "v": INT}),), unique="map", keys=("k",)),
)
SETS = Declarations(
    {
        "self": object_of({"set": SET, "sets": Type("list", (list_of(INT),), unique="set"), "map": MAP}),
        "other": object_of({"set": SET, "map": MAP, "changed": MAP, "another": MAP}),
        "any": DYN,
    }
)


def shared(levels: int, value: str = "1") -> str:
    """Return an expression for lists of ten in each other, of so many levels and few characters."""
    return f"[{value}]" + ".map(v, [v, v, v, v, v, v, v, v, v, v])" * levels


OPTIONALS = "[1]" + ".map(v, [optional.of(v), optional.of(v), optional.of(v), optional.of(v), optional.of(v)])" * 17
MAPS = "[1]" + ".map(v, {'a': v, 'b': v, 'c': v, 'd': v, 'e': v})" * 17


def instructions(work: Callable[[], object]) -> int:
    with Lines() as lines:
        work()
    return lines.count


def steps(expression: str, variables: dict[str, Any] | None = None) -> int:
    program = compile(expression, SETS)
    return instructions(lambda: _evaluated(program, variables or {}))


def _evaluated(program: Any, variables: dict[str, Any]) -> None:
    with pytest.raises(BudgetExceeded):
        program.evaluate(variables, LIMIT)


@pytest.mark.parametrize(
    "expression",
    [
        f"{shared(12)} == {shared(12)}",
        f"{shared(12)} != {shared(12)}",
        f"{shared(12)} in [{shared(12)}]",
        f"[{shared(12)}].indexOf({shared(12)}) == 0",
        f"[{shared(12)}].lastIndexOf({shared(12)}) == 0",
        f"sets.contains([{shared(12)}], [{shared(12)}])",
        f"sets.equivalent([{shared(12)}], [{shared(12)}])",
        f"sets.intersects([{shared(12)}], [{shared(12)}])",
        f"optional.of({shared(12)}) == optional.of({shared(12)})",
        f"{{'a': {shared(12)}}} == {{'a': {shared(12)}}}",
        f"{OPTIONALS} == {OPTIONALS}",
        f"{MAPS} == {MAPS}",
        f"'%s'.format([{MAPS}]) == ''",
        f"'%s'.format([{shared(12)}]) == ''",
        f"'%s'.format([{{'a': {shared(12)}}}]) == ''",
        "'%s%s%s%s%s%s'.format([any, any, any, any, any, any]) == ''",
        f"self.sets + [dyn({shared(12)})] == self.sets + [dyn({shared(12)})]",
    ],
)
def test_looking_at_all_of_a_shared_value_ends_at_the_limit(expression: str) -> None:
    assert steps(expression, {"self": {"sets": []}, "any": "x" * 20_000}) < 400_000


def test_values_without_shared_parts_cost_as_before() -> None:
    for expression, cost in (("[1, 2] == [1, 2]", 21), ("'%s'.format(['abc']) == 'abc'", 12), ("1 in [1, 2]", 12)):
        assert compile(expression, SETS).evaluate({}).cost == cost


def test_equality_is_what_it_was_on_every_level() -> None:
    for expression in (
        "[[dyn(1), 'a'], [dyn(2.0), 'b']] == [[dyn(1), 'a'], [dyn(2), 'b']]",
        "{'a': dyn([1]), 'b': dyn({'c': null})} == {'b': dyn({'c': null}), 'a': dyn([1u])}",
        "[['a']] != [['b']] && [dyn('a')] != [dyn(1)] && [dyn(1)] != [dyn('1')] && [dyn(true)] != [dyn(1)]",
        "[[1]].indexOf([1]) == 0 && ['a', 'b', 'a'].lastIndexOf('a') == 2 && 'abca'.lastIndexOf('a') == 3",
        "'abca'.indexOf('a', 1) == 3 && 'abca'.lastIndexOf('a', 2) == 0",
        "'%s'.format([[dyn(1), dyn(['a', dyn({'b': 2})])]]) == '[1, [a, {b: 2}]]'",
    ):
        assert compile(expression, SETS).evaluate({}).value is True, expression


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("self.set == ['b', 'a']", True),
        ("self.set == ['b', 'c']", False),
        ("self.set != ['b', 'a']", False),
        ("self.set + ['c', 'a'] == ['a', 'b', 'c']", True),
        ("self.sets == [[2], [1, 2]]", True),
        ("(self.sets + [[2], [3]]).size() == 3", True),
        ("self.map == other.map", True),
        ("self.map == other.changed", False),
        ("self.map != other.changed", True),
        ("(self.map + other.changed)[0].v == 7 && (self.map + other.changed).size() == 2", True),
        ("(self.map + other.another).size() == 3", True),
    ],
)
def test_lists_of_kubernetes_types_are_compared_and_joined_by_their_keys(expression: str, *, wanted: bool) -> None:
    x, y = {"k": "x", "v": 1}, {"k": "y", "v": 2}
    value = {"set": ["a", "b"], "sets": [[1, 2], [2]], "map": [x, y]}
    other = {"map": [y, x], "changed": [y, {"k": "x", "v": 7}], "another": [{"k": "z", "v": 7}]}
    assert compile(expression, SETS).evaluate({"self": value, "other": other}).value is wanted


@pytest.mark.parametrize("expression", ["self.set == other.set", "(self.set + other.set).size() > 0"])
def test_comparing_and_joining_such_lists_is_linear(expression: str) -> None:
    program = compile(expression, SETS)

    def taken(count: int) -> int:
        one, other = ([f"x{(i * step) % count}" for i in range(count)] for step in (1, 7))
        return instructions(lambda: program.evaluate({"self": {"set": one}, "other": {"set": other}}))

    assert taken(2000) < 5 * taken(500)


# -- types ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "expression",
    [
        "[1]" + ".map(v, {v: v})" * 40 + " && true",
        "[1]" + ".map(v, {v: v})" * 40 + " == 1",
        "[" + ", ".join(["[1]" + ".map(v, {v: v})" * 30] * 2) + "]",
        "cel.bind(x, [1]" + ".map(v, {v: v})" * 40 + ", x == x)",
    ],
)
def test_a_type_of_too_many_types_is_refused_at_once(expression: str) -> None:
    def refused() -> None:
        with pytest.raises(CompileError, match="the type of a part of the expression is too large"):
            compile(expression, SETS)

    assert instructions(refused) < 1_000_000


def test_types_that_nest_as_deep_as_anybody_writes_them_are_taken() -> None:
    expression = "[1]" + ".map(v, [v])" * 60 + ".size() == 1"
    assert compile(expression, SETS).evaluate({}).value is True
    assert MOST_TYPES > 60


# -- messages -------------------------------------------------------------------------------------------------------------
def error(expression: str) -> str:
    with pytest.raises(CompileError) as raised:
        compile(expression, SETS)
    return str(raised.value)


def test_further_issues_are_counted_as_cel_go_does() -> None:
    found = error("\n||".join(["a"] * (MOST_ISSUES + 7)))
    assert found.count("ERROR:") == MOST_ISSUES and found.endswith("\n7 more errors were truncated")
    assert error("\n||".join(["a"] * MOST_ISSUES)).count("ERROR:") == MOST_ISSUES
    assert "truncated" not in error("\n||".join(["a"] * MOST_ISSUES))


def test_the_text_of_issues_does_not_grow_with_their_number_times_the_line() -> None:
    assert len(error("||".join(["a"] * 4000))) < 2 * LONGEST_TEXT
    assert len(error(" " * 20_000 + "a")) < 100, "a longer line is not shown"


def test_an_issue_is_shown_with_its_line_and_place() -> None:
    assert error("1 == 1 &&\n\tnone == 2\n&& 1 == 1") == (
        "ERROR: <input>:2:2: undeclared reference to 'none' (in container '')\n |  none == 2\n | .^"
    )


@pytest.mark.parametrize("key", [shared(12), "[1].map(v, {'a': v})", f"{{'a': {shared(12)}}}"])
def test_a_key_with_parts_is_not_written_out(key: str) -> None:
    """The text of a list of twelve levels would have terabytes."""
    for expression in (f"{{'a': 1}}[dyn({key})] == 1", f"{{'a': {{'b': 1}}}}.a[dyn({key})] == 1"):
        with pytest.raises(EvaluationError, match=r"no such key: (list|map)$"):
            compile(expression, SETS).evaluate({})
    optional = compile(f"{{'a': 1}}[?dyn({key})].hasValue()", SETS)
    assert optional.evaluate({}).value is False


def test_a_long_key_is_cut_in_a_message() -> None:
    for expression in ("{'a': 1}['%s'] == 1", "{'%s': 1, 'a' + 'b': 2}.size() == 2 && {'%s' + '': 1, '%s': 2} == {}"):
        with pytest.raises(EvaluationError) as caught:
            compile(expression.replace("%s", "k" * 5000), SETS).evaluate({})
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("part", ["false||", "{}.a||", "[][0]||", "'a'.startsWith('b')||"])
def test_a_round_of_a_loop_costs_in_proportion_to_its_body(part: str) -> None:
    """Upstream evaluates literals and `||` free, so that loops in each other with a long body cost only their rounds."""
    body = f"({part * (8000 // len(part))}true)"
    for variable in "abc":
        body = f"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all({variable}, {body})"
    program = compile(body, SETS)
    assert instructions(lambda: _evaluated(program, {})) < 60 * LIMIT


@pytest.mark.parametrize(("call", "text"), [("getQuery", "?" + "%41=%41&" * 1000), ("getEscapedPath", "%41/" * 2000)])
def test_the_parts_of_a_url_cost_their_length(call: str, text: str) -> None:
    for part in (text, text * 2):
        cost = compile(f"url('http://a/{part}').{call}() == dyn(1)", Declarations({})).evaluate({}).cost
        assert len(part) // 2 <= cost <= 2 * len(part)


def test_an_unknown_time_zone_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[str] = []

    def zone(name: str) -> None:
        looked_for.append(name)
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(times, "ZoneInfo", zone)
    program = compile("[1, 2, 3].all(v, timestamp('2020-01-01T00:00:00Z').getHours('No/Where') == 1)", SETS)
    with pytest.raises(EvaluationError, match="unknown time zone No/Where"):
        program.evaluate({})
    long = compile("timestamp('2020-01-01T00:00:00Z').getHours('" + "a/" * 1000 + "') == 1", SETS)
    with pytest.raises(EvaluationError, match="unknown time zone a/a/"):
        long.evaluate({})
    assert looked_for == ["No/Where"]
