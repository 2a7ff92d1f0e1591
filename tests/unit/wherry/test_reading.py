"""The functions in docs/reading.md exist, each is named in the one before it, and the lists are no longer than promised."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/reading.md").read_text()
LIMITS = {"A pod from POST to StartContainer": 40, "A Service from POST to rule": 14}

_FUNCTION = re.compile(r"`([\w./]+\.py): ([\w.]+)`")
_HOP = re.compile(r"(\d+)\. (?:through `(\w+)`: |back in (\d+): )?`([\w./]+\.py): ([\w.]+)`(.*)")
_AGAIN = re.compile(r"- Hops \d+ to (\d+) (?:again, through `(\w+)`|of the pod's list): ")
_WORD = re.compile(r"`([A-Za-z_]\w*)`")


@dataclass(frozen=True)
class Hop:
    """A line of a list."""

    number: int
    path: str
    name: str
    through: str
    back_in: int
    uses: list[str]

    @property
    def source(self) -> str:
        return source_of(self.path, self.name)


@dataclass
class Chapter:
    """The hops of one list, and the names that must occur in the source of the hop before."""

    hops: list[Hop] = field(default_factory=list)
    links: list[tuple[Hop, tuple[str, ...]]] = field(default_factory=list)


@cache
def functions(path: str) -> dict[str, str]:
    """Return the source of each function and method of a file, by "function" or "Class.method"."""
    text = (ROOT / path).read_text()
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + member.name] = ast.get_source_segment(text, member) or ""
    return found


def source_of(path: str, name: str) -> str:
    """Return a function's source; LookupError if it does not exist."""
    if not (ROOT / path).is_file():
        raise LookupError(f"there is no file {path}")
    if name not in functions(path):
        raise LookupError(f"{path} has no function {name}")
    return functions(path)[name]


def chapters(text: str) -> dict[str, Chapter]:
    """Return the lists of a document by heading, linked across "hops again" and across the lists."""
    found: dict[str, Chapter] = {}
    every: dict[int, Hop] = {}
    for title, body in re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", text, re.M):
        chapter = found[title] = Chapter()
        before: Hop | None = None
        for line in body.splitlines():
            if again := _AGAIN.match(line):
                if again[2]:
                    assert before is not None
                    chapter.links.append((before, (again[2],)))
                before = every[int(again[1])]
            elif hop := _hop(line):
                every.setdefault(hop.number, hop)
                chapter.hops.append(hop)
                if hop.back_in:
                    before = next(each for each in chapter.hops if each.number == hop.back_in)
                if before is not None:
                    own, _, method = hop.name.rpartition(".")
                    chapter.links.append((before, (hop.through,) if hop.through else (method, own)))
                before = hop
    return found


def _hop(line: str) -> Hop | None:
    match = _HOP.fullmatch(line)
    assert match or not re.match(r"\d+\. ", line), f"not in the form of a hop: {line}"
    if match is None:
        return None
    number, through, back_in, path, name, rest = match.groups()
    uses = _WORD.findall(_FUNCTION.sub("", rest))
    return Hop(int(number), path, name, through or "", int(back_in or 0), uses)


def problems(text: str) -> list[str]:
    """Return what is wrong with a document: functions and names that do not exist, gaps, lists that are too long."""
    found = []
    for path, name in _FUNCTION.findall(text):
        try:
            source_of(path, name)
        except LookupError as error:
            found.append(str(error))
    if found:
        return found
    for title, chapter in chapters(text).items():
        numbers = [hop.number for hop in chapter.hops]
        if numbers != list(range(1, len(numbers) + 1)):
            found.append(f"{title}: the numbers are {numbers}")
        if len(numbers) > LIMITS[title]:
            found.append(f"{title}: {len(numbers)} hops, more than {LIMITS[title]}")
        for hop in chapter.hops:
            found += [f"{hop.name} does not use {name}" for name in hop.uses if not _has(hop.source, name)]
        for before, names in chapter.links:
            if not any(name and _has(before.source, name) for name in names):
                found.append(f"{before.name} does not name {' or '.join(filter(None, names))}")
    return found


def _has(source: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", source) is not None


def test_every_hop_exists_and_leads_to_the_next() -> None:
    assert problems(TEXT) == []
    assert chapters(TEXT).keys() == LIMITS.keys()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("edge.py: Edge.__call__", "edge.py: Edge.serve", "control/server/edge.py has no function Edge.serve"),
        ("edge.py: Edge.__call__", "edges.py: Edge.__call__", "there is no file control/server/edges.py"),
        ("creation.py: create`", "creation.py: creates`", "control/registry/creation.py has no function creates"),
        ("(`admit`)", "(`admits`)", "_create_once does not use admits"),
        ("through `_write`: ", "", "SqliteStore.create does not name _commit or Writer"),
        ("through `post`: ", "through `posts`: ", "DefaultBinder.bind does not name posts"),
        ("back in 21: ", "", "SchedulingCycle.decide does not name _carry_out or Scheduler"),
    ],
)
def test_a_document_with_a_wrong_hop_is_rejected(old: str, new: str, problem: str) -> None:
    assert old in TEXT
    assert problem in problems(TEXT.replace(old, new, 1))


def test_a_list_that_is_too_long_is_rejected() -> None:
    longer = TEXT + "15. `netproxy/xtables/writer.py: RestoreWriter.apply` again.\n"
    assert "A Service from POST to rule: 15 hops, more than 14" in problems(longer)
