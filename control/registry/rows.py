"""Validation as rows: the path of a field, and the rules of its value (rules.py) or the rows of a part that kinds share.

    spec.nodeName          a field; fields of an absent part are absent
    spec.drivers[*].name   the field of every item
    spec.drivers[*9].name  the field of every item, or, without reading them, the error that there are more than 9
    spec.selector?         only if the field is present; it may be empty
    spec.exempt?.shares    only if the part is present
    spec.{min,max}         rows of several fields, one field after the other
    (empty)                the object, part or item itself, for rules about several fields

Rows are applied in their order, those below the same list item by item, which is the order of upstream's errors. They are
compiled to one function, as columns are (columns.py): walking them for every object took two to four times as long.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from control.registry.checks import Errors
from control.registry.rules import Rule, Test, unique_item
from kube.errors import duplicate, too_many
from kube.json_object import Object

Row = tuple[str, Rule]
_STEP = re.compile(r"(?P<key>[^?[]*)(?P<present>\?)?(?P<items>\[\*(?P<most>[0-9]*)\])?")


class Rows:
    """Rules of the fields of an object, which are together a rule of the object."""

    def __init__(self, *rows: tuple[str, *tuple[Rule, ...]]) -> None:
        self.rows = [
            row for paths, *rules in rows for path in paths_of(paths) for rule in rules for row in _flat(path, rule)
        ]

    def __call__(self, value: Object | None, path: str) -> Errors:
        return self._part(value or {}, path)

    @cached_property
    def errors(self) -> Callable[[Object], Errors]:
        """The function that returns the errors of a whole object."""
        return _Source().compiled(self.rows, "")

    @cached_property
    def _part(self) -> Callable[[Object, str], Errors]:
        return _Source().compiled(self.rows, "{path}")


def paths_of(path: str) -> Iterator[str]:
    """Yield the paths that one with names in braces stands for."""
    before, brace, rest = path.partition("{")
    if not brace:
        yield path
        return
    keys, _, after = rest.partition("}")
    for key in keys.split(","):
        yield from paths_of(f"{before}{key}{after}")


def _flat(path: str, rule: Rule) -> Iterator[Row]:
    if isinstance(rule, Rows):
        yield from ((f"{path}.{below}".strip("."), each) for below, each in rule.rows)
    else:
        yield path, rule


class _Source:
    """Source of the function for rows: parts and items are variables, and the path of a rule is an f-string."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {"NOTHING": {}, "duplicate": duplicate, "too_many": too_many}

    def compiled(self, rows: Iterable[Row], path: str) -> Callable[..., Errors]:
        lines = indented(self._fields(rows, "obj", path, []))
        source = ["def rule(obj, path=''):", " errors = []", *lines, " return errors"]
        exec("\n".join(source), self._names)  # noqa: S102 - of paths in this repository
        rule: Callable[..., Errors] = self._names["rule"]
        return rule

    def _name(self, kind: str, value: Any = None) -> str:
        name = f"{kind}{len(self._names)}"
        self._names[name] = value
        return name

    def _fields(self, rows: Iterable[Row], place: str, path: str, sets: list[str]) -> Iterator[str]:
        """Yield lines for the rows of a part's fields; `sets` gets the names of the sets of unique values."""
        for step, group in itertools.groupby(rows, lambda row: row[0].partition(".")[0]):
            below = [(path.partition(".")[2], rule) for path, rule in group]
            parsed, value = _STEP.fullmatch(step), self._name("value")
            assert parsed is not None, step
            key = parsed["key"]
            where, found = f"{path}.{key}" if path else key, f"{place}.get({key!r})"
            if not step:
                for _, rule in below:
                    yield from self._rule(rule, place, _text(path), sets)
            elif parsed["items"]:
                yield from self._items(below, found, where, parsed["most"])
            elif parsed["present"]:
                yield f"{value} = {found}"
                yield f"if {value} is not None:"
                yield from indented(self._fields(below, value, where, sets))
            else:
                is_part = any(path for path, _ in below)
                yield f"{value} = {found} or NOTHING" if is_part else f"{value} = {found}"
                yield from self._fields(below, value, where, sets)

    def _items(self, rows: Iterable[Row], found: str, path: str, most: str) -> Iterator[str]:
        index, item, items, unique_values = *map(self._name, ("index", "item", "items")), list[str]()
        lines = indented(self._fields(rows, item, f"{path}[{{{index}}}]", unique_values))
        yield f"{items} = {found} or ()"
        if most:
            yield f"if len({items}) > {most}:"
            yield f" errors.append(too_many({_text(path)}, len({items}), {most}))"
            yield f" {items} = ()"
        yield from (f"{name} = set()" for name in unique_values)
        yield f"for {index}, {item} in enumerate({items}):"
        yield from lines

    def _rule(self, rule: Rule, value: str, path: str, sets: list[str]) -> Iterator[str]:
        if rule is unique_item:
            sets.append(self._name("set"))
            yield f"if ({value} or '') in {sets[-1]}: errors.append(duplicate({path}, {value} or ''))"
            yield f"{sets[-1]}.add({value} or '')"
        elif isinstance(rule, Test):
            wrong = rule.wrong.format(value=value, limit=self._name("limit", rule.limit))
            yield f"if {wrong}: errors += {self._name('rule', rule.errors)}({value}, {path})"
        else:
            yield f"errors += {self._name('rule', rule)}({value}, {path})"


def _text(path: str) -> str:
    """Return the source of a path, in which indexes are variables."""
    return f"f{path!r}" if "{" in path else repr(path)


def indented(lines: Iterator[str]) -> list[str]:
    """Return the lines of a block of source."""
    return [f" {line}" for line in lines]
