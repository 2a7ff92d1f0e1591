"""JSONPath as definitions use it: printer columns (client-go's dialect) and the plain `.a.b` paths of scale and selectors.

A path is compiled into steps; a step maps the values found so far to those below them. What is absent is no error, there is
only nothing found.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

from kube.bounded_cache import bounded_cache
from kube.group_patterns import fullmatch

MOST_VALUES = 100_000
"""Values that the steps of paths in one object may find together; each `..` can multiply them."""


class PathError(ValueError):
    """A path that cannot be read."""


class Room:
    """The number of values that may still be found in an object, by the steps of all its paths."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_VALUES

    def take(self, values: int) -> None:
        """Subtract values that were found; raises PathError for too many."""
        if values > self.left:
            self.left = 0
            raise PathError(f"more than {MOST_VALUES} values to follow")
        self.left -= values


Step = Callable[[Any, Room], Iterator[Any]]


_FIELD = re.compile(r"(?:\\.|[^.\[\]\s\\{}])++")
_QUOTED = re.compile(r"""\[\s*(?:'((?:\\.|[^'\\])*+)'|"((?:\\.|[^"\\])*+)")\s*\]""")
_INDEX = re.compile(r"\[\s*+(-?[0-9]{1,18})\s*+\]")
_SLICE = re.compile(r"\[\s*+(-?[0-9]{0,18})\s*+:\s*+(-?[0-9]{0,18})\s*+(?::\s*+(-?[0-9]{0,18})\s*+)?\]")
_FILTER = re.compile(r"\s*+@((?:[^()=!<>&|\[]|\[[^]]*\])*)(?:(==|!=|<=|>=|<|>)(.+))?", re.DOTALL)
"""Filter expression between the parentheses of `[?(...)]`."""


@bounded_cache(4096)
def compiled(path: str) -> tuple[Step, ...]:
    """Return the steps of a path such as `.status.conditions[?(@.type=="Ready")].status`; raises PathError."""
    text, steps, at = path.strip().removeprefix("{").removesuffix("}").removeprefix("$"), list[Step](), 0
    while at < len(text):
        if text.startswith("..", at):
            steps.append(_everything)
            at += 1 if text[at + 2 : at + 3] not in ("", "[") else 2
        elif text[at] == "." and text[at + 1 : at + 2] == "*":
            steps.append(_children)
            at += 2
        elif text[at] == "." and (found := _FIELD.match(text, at + 1)):
            steps.append(functools.partial(_field, re.sub(r"\\(.)", r"\1", found.group())))
            at = found.end()
        elif text.startswith("[*]", at):
            steps.append(_children)
            at += 3
        elif found := _QUOTED.match(text, at):
            name = found.group(1) if found.group(1) is not None else found.group(2)
            steps.append(functools.partial(_field, re.sub(r"\\(.)", r"\1", name)))
            at = found.end()
        elif found := _INDEX.match(text, at):
            steps.append(functools.partial(_item, int(found.group(1))))
            at = found.end()
        elif found := _SLICE.match(text, at):
            bounds = [int(g) if g else None for g in found.groups()]
            steps.append(functools.partial(_slice, slice(*bounds)))
            at = found.end()
        elif (
            text.startswith("[?(", at)
            and (end := text.find(")]", at)) > 0
            and (found := fullmatch(_FILTER, text[at + 3 : end].strip()))
        ):
            inner, operator, right = found.groups()
            right = right.strip() if right is not None else None
            steps.append(functools.partial(_where, compiled(inner.strip()), operator or "", _operand(right)))
            at = end + 2
        elif text[at] == "." and at + 1 == len(text):
            at += 1
        else:
            raise PathError(f"unrecognized character in action: {text[at:]!r}")
    return tuple(steps)


def find(path: str, obj: Any, room: Room | None = None) -> list[Any]:
    """Return all values that a path leads to; raises PathError for too many."""
    return _follow(compiled(path), obj, room or Room())


def _follow(steps: tuple[Step, ...], value: Any, room: Room) -> list[Any]:
    found = [value]
    for step in steps:
        found = list(itertools.islice((below for one in found for below in step(one, room)), room.left + 1))
        room.take(len(found))
        if not found:
            break
    return found


def plain(path: str) -> tuple[str, ...]:
    """Return the field names of a path that only names fields (`.spec.replicas`)."""
    return tuple(part for part in path.strip().split(".") if part)


def get(names: tuple[str, ...], obj: Any) -> Any:
    """Follow field names into an object; None if there is nothing."""
    for name in names:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(name)
    return obj


def _field(name: str, value: Any, room: Room) -> Iterator[Any]:
    if isinstance(value, dict) and name in value:
        yield value[name]


def _item(index: int, value: Any, room: Room) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield value[index]


def _slice(bounds: slice, value: Any, room: Room) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value[bounds]


def _children(value: Any, room: Room | None = None) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _everything(value: Any, room: Room) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        waiting.extend(reversed(list(_children(value))))


def _where(steps: tuple[Step, ...], operator: str, right: Any, value: Any, room: Room) -> Iterator[Any]:
    for item in _children(value):
        room.take(1)
        found = _follow(steps, item, room)
        if found and (not operator or _compare(found[0], operator, right)):
            yield item


def _operand(text: str | None) -> Any:
    if text is None:
        return None
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise PathError(f"unrecognized value in filter: {text}") from None


def _compare(left: Any, operator: str, right: Any) -> bool:
    if operator == "==":
        return bool(left == right)
    if operator == "!=":
        return bool(left != right)
    if isinstance(left, str) != isinstance(right, str) or not isinstance(left, str | int | float):
        return False
    below, same = left < right, left == right
    return bool({"<": below, "<=": below or same, ">": not below and not same, ">=": not below}[operator])
