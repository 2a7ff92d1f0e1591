"""The value of a YAML document, built from the parser's events with a stack of its own: one pass, and no recursion.

Mappings follow Go's yaml.v2: of a key that is repeated the last value counts, and the keys of a mapping below
`<<` are put into the one that holds it. Tags of mappings and lists are of no account. Aliases are refused: a few lines of
them expand to gigabytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from control.decoding import yaml_scalars
from kube import value_count
from kube.nesting import DEEPEST

MOST_VALUES = value_count.MOST_VALUES
"""Scalars, lists and mappings of a document, keys too: each costs about 3 µs."""
MOST_REPEATED = 100
"""Repeated keys that are reported: as many problems as upstream's strict decoder saves."""
_MERGE = "tag:yaml.org,2002:merge"


class Document(msgspec.Struct):
    """A document's value, and a line for each key that was in its mapping before, in the words of Go's parser."""

    value: Any = None
    repeated: list[str] = msgspec.field(default_factory=list)


class _Open:
    """A mapping or list that has not ended. `key`: that of the value to come; None: the next scalar is a key."""

    __slots__ = ("items", "key", "line", "mapping", "merge")

    def __init__(self, mapping: dict[str, Any] | None, line: int) -> None:
        self.mapping = mapping
        self.items: list[Any] = []
        self.key: str | None = None
        self.merge = False
        self.line = line


def build(events: Iterator[Any]) -> tuple[Document, int]:
    """Return the first document of a stream of PyYAML's events, and at which character it ends; raises ValueError.

    Their class is compared, not tested with isinstance, which takes twice as long.
    """
    document = Document()
    stack: list[_Open] = []
    values = 0
    for event in events:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            top = stack[-1] if stack else None
            if top is not None and top.mapping is not None and top.key is None and not top.merge:
                top.merge = event.value == "<<" and (event.implicit[0] or event.tag == _MERGE)
                if not top.merge:
                    top.key = yaml_scalars.key(_scalar(event))
            else:
                value = _scalar(event)
                if type(value) is float:
                    value = yaml_scalars.number(value)
                _place(document, top, value, event.start_mark.line)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            if len(stack) >= DEEPEST:
                raise ValueError(f"yaml: exceeded max depth of {DEEPEST}")
            stack.append(
                _opened(
                    stack[-1] if stack else None, mapping=kind is yaml.MappingStartEvent, line=event.start_mark.line
                )
            )
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            ended = stack.pop()
            value = ended.items if ended.mapping is None else ended.mapping
            _place(document, stack[-1] if stack else None, value, ended.line)
            continue
        elif kind is yaml.AliasEvent:
            line = event.start_mark.line + 1
            raise ValueError(
                f"yaml: line {line}: aliases (*{event.anchor[:100]}) are not accepted: write the value out"
            )
        elif kind is yaml.DocumentEndEvent:
            return document, event.end_mark.index
        else:
            continue
        values += 1
        if values > MOST_VALUES:
            raise ValueError(f"yaml: more than {MOST_VALUES} values: send it as JSON")
    return document, 0


def _opened(top: _Open | None, *, mapping: bool, line: int) -> _Open:
    if top is not None and top.merge:
        if not mapping:
            raise ValueError("yaml: map merge requires a map as the value")
        return _Open(top.mapping, line)
    if top is not None and top.mapping is not None and top.key is None:
        raise ValueError("yaml: invalid map key: a mapping or a list")
    return _Open({} if mapping else None, line)


def _scalar(event: yaml.ScalarEvent) -> Any:
    try:
        return yaml_scalars.scalar(event.value, event.tag, plain=event.implicit[0])
    except ValueError as error:
        raise ValueError(f"yaml: {error}") from error


def _place(document: Document, into: _Open | None, value: Any, line: int) -> None:
    if into is None:
        document.value = value
    elif into.mapping is None:
        into.items.append(value)
    elif into.merge:
        if value is not into.mapping:
            raise ValueError("yaml: map merge requires a map as the value")
        into.merge = False
    else:
        key, into.key = into.key, None
        assert key is not None
        if key in into.mapping and len(document.repeated) < MOST_REPEATED:
            shown = json.dumps(key, ensure_ascii=False)
            document.repeated.append(f"line {line + 1}: key {shown} already set in map")
        into.mapping[key] = value
