"""Regular expressions that repeat a group: `re` keeps up to 250 bytes for each repetition until the match ends.

Every pattern of the project repeats groups possessively, which keeps nothing, or is listed with what bounds its texts. A
possessive group may not fail after a part of it has been tried with several lengths: CPython before 3.11.5 goes on where
that part has ended.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from control.decoding import yaml_body
from control.registry.networking import ingress
from control.registry.resource import devices
from control.schemas import jsonpath
from kube import duration, group_patterns, names, selectors

ROOT = Path(names.__file__).parents[1]
FOLDERS = ("agent", "control", "kube", "netproxy", "wherry")
BY_HELPER = "kube.group_patterns.fullmatch: 4096 characters"
BOUNDED = {
    "agent.images.names _REFERENCE": "LONGEST, 1024 characters",
    "control.cel.formats _DURATION": BY_HELPER,
    "control.cel.formats _HOSTNAME": "its lookahead, 255 characters",
    "control.cel.kubernetes _SEMVER": BY_HELPER,
    "control.cel.parser _TOKEN": "LONGEST, 100 000 characters, in expressions of administrators",
    "control.cel.values _DURATION": BY_HELPER,
    "control.http.html_page _UNCHANGED": "a piece of a response",
    "control.registry.batch.schedule _DURATION": "LONGEST, 4096 characters",
    "control.registry.core.pod.security _SYSCTL": "253 characters",
    "control.registry.resource.devices _SEMVER": BY_HELPER,
    "control.schemas.jsonpath _FILTER": BY_HELPER,
    "kube.duration _WHOLE": BY_HELPER,
    "netproxy.gateway.request_target _PATH": "the longest target of a request, 16 KiB",
    "wherry.redaction _PATTERNS": "60 characters a repetition, of a text of a bug report: 16 MiB",
    "wherry.value_forms _ETCD_PREFIX": "LONGEST_PREFIX, 253 characters",
    "wherry.wrapping _PIECE": "LONGEST, 16 KiB",
}
"""Patterns that repeat a group and keep something for each repetition, and what is checked first."""
FAILS_AT_THE_END = {
    "control.decoding.yaml_body _REST": "where its last alternative fails, so does the match: another character follows",
}
"""Patterns whose possessive group may fail late."""
MANY = 256
_SINGLE = {codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN, codes.AT, codes.CATEGORY}
_FUNCTIONS = {f"re.{name}" for name in ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")}
_REPEATS = {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}


def groups(parsed: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Return each repetition of more than one character that has no small limit: its code and what is repeated."""
    for code, argument in parsed:
        if code in _REPEATS:
            _, most, part = argument
            if (most is codes.MAXREPEAT or most >= MANY) and not (len(part) == 1 and part[0][0] in _SINGLE):
                yield code, part
            yield from groups(part)
        elif code is codes.SUBPATTERN:
            yield from groups(argument[3])
        elif code is codes.BRANCH:
            for part in argument[1]:
                yield from groups(part)
        elif code is codes.ATOMIC_GROUP:
            yield from groups(argument)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            yield from groups(argument[1])


def keeps(parsed: Iterable[Any]) -> bool:
    """Return whether a pattern keeps something for each repetition of a group."""
    return any(code is not codes.POSSESSIVE_REPEAT for code, _ in groups(parsed))


def fails_late(part: Iterable[Any], *, last: bool = True) -> bool:
    """Return whether a group may fail after a part of it that could have matched in several ways."""
    items, tried = list(part), False
    for place, (code, argument) in enumerate(items):
        optional = code in _REPEATS and argument[0] == 0
        if tried and not optional:
            return True
        if code is codes.SUBPATTERN:
            if fails_late(argument[3], last=last and place == len(items) - 1):
                return True
        elif code is codes.BRANCH:
            if any(each[0] not in _SINGLE for part in argument[1] for each in list(part)[:-1]):
                return True
            tried = True
        elif code not in _SINGLE and not optional:
            tried = True
            if code in (codes.ASSERT, codes.ASSERT_NOT):
                return True
        elif optional:
            tried = True
    return False


def patterns() -> Iterator[tuple[str, Any]]:
    """Return the patterns of all modules, compiled or as they are given to functions of `re`, parsed."""
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            source = file.read_text()
            if not re.search(r"^import re$", source, re.MULTILINE):
                continue
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            module = importlib.import_module(name)
            for attribute, value in vars(module).items():
                for pattern in compiled(value):
                    yield f"{name} {attribute}", parser.parse(pattern.pattern, pattern.flags)
            for text in given(ast.parse(source), vars(module)):
                yield f"{name} {text!r}", parser.parse(text)


def compiled(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from compiled(each)


def given(tree: ast.AST, known: dict[str, Any]) -> Iterator[str | bytes]:
    """Return the patterns that calls of functions of `re` name where they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _FUNCTIONS and node.args:
            try:
                text = eval(ast.unparse(node.args[0]), dict(known))
            except NameError:
                continue  # made from an argument
            if isinstance(text, str | bytes):
                yield text


def test_patterns_that_repeat_a_group_keep_nothing_or_their_texts_are_bounded() -> None:
    found = {name for name, parsed in patterns() if keeps(parsed)}
    assert found == BOUNDED.keys()


def test_possessive_groups_fail_at_once_or_not_at_all() -> None:
    late = {
        name
        for name, parsed in patterns()
        if any(code is codes.POSSESSIVE_REPEAT and fails_late(part) for code, part in groups(parsed))
    }
    assert late == FAILS_AT_THE_END.keys()


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("(a.)*", (True, False)),
        ("(?:a|bc)+?", (True, False)),
        ("x(?:a.)*+", (False, False)),
        ("(?:a+b)*+", (False, True)),
        ("(?:a(?:b*c)?)*+", (False, False)),
        ("a*[bc]+(?:de){0,9}", (False, False)),
    ],
)
def test_such_patterns_are_seen(pattern: str, what: tuple[bool, bool]) -> None:
    parsed = parser.parse(pattern)
    late = any(code is codes.POSSESSIVE_REPEAT and fails_late(part) for code, part in groups(parsed))
    assert (keeps(parsed), late) == what


LONG = 400_000


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (names.dns1123_subdomain, "a." * LONG + "!"),
        (names.dns1123_label, "a." * LONG + "!"),
        (names.dns1123_subdomain_with_underscore, "a." * LONG + "!"),
        (ingress._host_problems, "*." + "a." * LONG + "!"),
        (lambda text: devices._text(text, "p", version=True), "1.2.3-" + "a." * LONG + "!"),
        (lambda text: group_patterns.fullmatch(duration._WHOLE, text), "1s" * LONG),
        (selectors.parse_fields, "a=" + "bc" * LONG),
        (lambda text: jsonpath._FIELD.match(text), "\\a" * LONG),
        (yaml_body._has_too_many_directives, "#\n" * LONG + "%"),
        (lambda text: yaml_body._REST.fullmatch(text, 0), "#\n" * LONG + "x"),
    ],
)
def test_no_memory_is_kept_for_each_repetition_in_a_long_text(read: Any, text: str) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # what was the most until now is forgotten
    before = peak()
    read(text)
    assert peak() - before < 16 << 10


def peak() -> int:
    """Return the most memory that the process had, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def digits_of_all_scripts(parsed: Any) -> bool:
    return bool(parsed.state.flags & re.UNICODE) and "CATEGORY_DIGIT" in repr(parsed)


def test_digits_are_those_of_ascii_as_in_go() -> None:
    r"""In a text `\d` stands for the digits of all scripts, which `int` reads."""
    assert [name for name, parsed in patterns() if digits_of_all_scripts(parsed)] == []
    assert digits_of_all_scripts(parser.parse(r"a[b\d]")) and not digits_of_all_scripts(parser.parse(rb"\d"))
