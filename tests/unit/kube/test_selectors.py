from __future__ import annotations

import gc
import random
import sys
from types import FrameType
from typing import Any

import pytest

from kube import selectors
from kube.api import meta_v1

LABELS = {"app": "web", "tier": "front", "size": "7", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=api", False),
        ("app!=api", True),
        ("missing!=x", True),
        ("app in (api, web)", True),
        ("app notin (api,web)", False),
        ("missing notin (x)", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("size>6,size<8", True),
        ("size>7", False),
        ("app>1", False),
        ("empty=", True),
        ("empty", True),
        ("app=web,tier=back", False),
        ("app in (web),!missing,tier!=back", True),
        ("example.com/x=1", False),
    ],
)
def test_a_label_selector_matches_its_labels(text: str, matches: bool) -> None:
    assert selectors.parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["a=b,", "=x", "a in", "a in (x", "a>b", "a b", "-a=b", "a=-b", "a=b=c", "a,,b"])
def test_a_broken_label_selector_is_refused(text: str) -> None:
    with pytest.raises(selectors.SelectorError):
        selectors.parse_labels(text)


def test_a_selector_prints_so_that_it_reads_back() -> None:
    for text in ("a=b", "a in (b,c)", "a notin (b,c)", "a", "!a", "a>1"):
        assert selectors.parse_labels(str(selectors.parse_labels(text))) == selectors.parse_labels(text)


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not selectors.from_label_selector(None).matches({})
    assert selectors.from_label_selector({}).matches(LABELS)
    assert selectors.from_label_selector(meta_v1.LabelSelector()).matches(LABELS)


def test_a_structured_selector_joins_labels_and_expressions() -> None:
    selector = selectors.from_label_selector(
        {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["back"]}]}
    )
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web", "tier": "back"})
    with pytest.raises(selectors.SelectorError, match='"Near" is not a valid label selector operator'):
        selectors.from_label_selector({"matchExpressions": [{"key": "a", "operator": "Near"}]})


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("metadata.name=x", True),
        ("metadata.name==x,status.phase!=Failed", True),
        ("metadata.name!=x", False),
        (r"note=a\,b", True),
        ("absent=", True),
    ],
)
def test_a_field_selector_matches_its_fields(text: str, matches: bool) -> None:
    fields = {"metadata.name": "x", "status.phase": "Running", "note": "a,b"}
    assert selectors.parse_fields(text).matches(fields) is matches


def test_field_selectors_are_read_term_by_term_as_upstream() -> None:
    assert selectors.parse_fields("b=2,,a=1,b=1").terms == (("a", "1", True), ("b", "1", True), ("b", "2", True))
    assert selectors.parse_fields(" a= 1 ").terms == ((" a", " 1 ", True),), "blanks count"
    assert selectors.parse_fields(r"a=x\\,b=\,\=").terms == (("a", "x\\", True), ("b", ",=", True))
    assert selectors.parse_fields("=,!=").empty
    for wrong in ("a", " ", "a=b=c", r"a=\b", "a=\\", "a!==b", "a\\=b\\"):
        with pytest.raises(selectors.SelectorError):
            selectors.parse_fields(wrong)


def test_a_field_selector_returns_the_value_that_it_requires() -> None:
    assert selectors.parse_fields("spec.nodeName=n1,a!=b").exact("spec.nodeName") == "n1"
    assert selectors.parse_fields("spec.nodeName!=n1").exact("spec.nodeName") is None
    with pytest.raises(selectors.SelectorError):
        selectors.parse_fields("nonsense")


def _requirement(draw: random.Random) -> selectors.Requirement:
    key, operator = draw.choice("abcdefgh"), draw.choice(["in", "notin", "notin", "exists", "!", "gt", "lt"])
    if operator in ("gt", "lt"):
        return selectors.Requirement(key, operator, frozenset({draw.choice(["-1", "0", "3", "+9", "x", "9" * 20])}))
    values = draw.sample(["", "1", "2", "5", "x"], draw.randint(1, 4)) if operator.endswith("in") else ()
    return selectors.Requirement(key, operator, frozenset(values))


def test_many_requirements_match_the_same_joined_as_one_by_one() -> None:
    draw, matched = random.Random(7), 0
    for _ in range(3000):
        labels = {key: draw.choice(["", "1", "2", "5", "x"]) for key in draw.sample("abcdefgh", draw.randint(0, 8))}
        drawn = [_requirement(draw) for _ in range(draw.randint(9, 40))]
        # Drawn freely, hardly any selector of so many requirements matches: half of them hold but perhaps one.
        holding = [r for r in drawn if r.matches(labels)] or [selectors.Requirement("z", "!")]
        parts = holding * 9 + draw.sample(drawn, draw.randint(0, 1))
        for requirements in (drawn, parts):
            one_by_one = all(r.matches(labels) for r in requirements)
            joined = selectors.LabelSelector(tuple(requirements))
            assert joined.matches(labels) is one_by_one, (requirements, labels)
            assert all(joined.parts(labels, draw.choice([1, 2, 256]))) is one_by_one, (requirements, labels)
            matched += one_by_one
    assert 1000 < matched < 5000


def test_a_joined_selector_equals_one_that_was_never_matched() -> None:
    text = ",".join(f"!k{i}" for i in range(20))
    used, fresh = selectors.parse_labels(text), selectors.parse_labels(text)
    assert used.matches({})
    assert used == fresh and hash(used) == hash(fresh) and repr(used) == repr(fresh)


def _steps(selector: selectors.LabelSelector, labels: dict[str, str]) -> int:
    """Return the lines of Python that a match takes once the selector has been used."""
    selector.matches(labels)
    count, before = 0, sys.gettrace()

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    gc.disable()  # what it calls would be counted
    sys.settrace(line)
    try:
        selector.matches(labels)
    finally:
        sys.settrace(before)
        gc.enable()
    return count


@pytest.mark.parametrize("one", ["!k{}", "k{}!=v", "k{}", "k{}=v", "k{}>1", "app!=v{}", "size<{}", "app"])
def test_a_match_costs_the_labels_and_not_the_requirements(one: str) -> None:
    few, many = (selectors.parse_labels(",".join(one.format(i + 100) for i in range(n))) for n in (20, 4000))
    assert _steps(many, LABELS) == _steps(few, LABELS)


@pytest.mark.parametrize("one", ["!k{}", "k{}!=v", "k{}", "k{}=v", "k{}>1", "app!=v{}"])
def test_a_match_costs_the_labels_that_the_selector_names_and_no_others(one: str) -> None:
    selector = selectors.parse_labels(",".join(one.format(i) for i in range(20)))
    few = {f"k{i}": "v" for i in range(20)} | {"app": "web"}
    many = few | {f"other-{i}": "v" for i in range(4000)}
    assert _steps(selector, many) == _steps(selector, few)


OPERATORS = {"k{}": True, "k{}=": True, "k{}!=v": True, "!m{}": True, "k{} in (,a)": True, "k{} notin (a,b)": True}


@pytest.mark.parametrize("one", OPERATORS)
def test_a_comparison_of_many_with_many_reports_its_cost_and_continues_in_parts(one: str) -> None:
    labels = {f"k{number}": "" for number in range(4000)}
    selector = selectors.parse_labels(",".join(one.format(number) for number in range(4000)))
    assert selector.cost(labels) >= 4000 // 4 and selector.cost({}) == 1
    parts = list(selector.parts(labels, 16))
    assert all(parts) and len(parts) >= 4000 // 64
    assert selector.cost(labels) >= 16 * (len(parts) - 6)
    labels["k3999"], labels["m3999"] = "a", "v"
    assert all(selector.parts(labels, 16)) is selector.matches(labels)


def test_small_selectors_and_labels_cost_a_step() -> None:
    assert selectors.parse_labels("a=b,c").cost({f"k{number}": "" for number in range(4000)}) == 1
    assert selectors.NOTHING.cost({"a": "b"}) == 1 and list(selectors.NOTHING.parts({"a": "b"}, 1)) == [False]
