"""YAML bodies as JSON values: one document, no aliases (a few lines of them expand to gigabytes), bounded depth, no dates."""

from __future__ import annotations

import math
from typing import Any

import yaml

DEEPEST = 100


class _Loader(yaml.CSafeLoader):
    """YAML without aliases (a few lines of them expand to gigabytes) and without surprises in depth or types."""


def _no_times(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _no_times)


def load_yaml(body: bytes) -> Any:
    """Read one YAML document as JSON values; raises ValueError."""
    depth = 0
    try:
        for event in yaml.parse(body, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark is not None else 1
                raise ValueError(f"yaml: line {line}: aliases (*{event.anchor}) are not accepted: write the value out")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > DEEPEST:
                    raise ValueError("yaml: exceeded max depth")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        return _string_keys(yaml.load(body, Loader=_Loader))  # noqa: S506 -- a subclass of CSafeLoader
    except yaml.YAMLError as error:
        raise ValueError(f"error converting YAML to JSON: yaml: {_first_line(error)}") from error


def duplicate_keys(body: bytes) -> list[str]:
    """Return a line for every key that stands in a mapping before, in the words of Go's parser; body is valid YAML."""
    found: list[tuple[int, str]] = []

    def walk(node: yaml.Node | None) -> None:
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        line = key.start_mark.line + 1
                        found.append((line, f'line {line}: key "{key.value}" already set in map'))
                    seen.add(key.value)
                walk(value)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                walk(item)

    walk(yaml.compose(body, Loader=yaml.CSafeLoader))
    return [text for _, text in sorted(found)]


def strict_error(lines: list[str]) -> str:
    """Return repeated keys as one error of Go's parser."""
    return "\n  ".join(["yaml: unmarshal errors:", *lines])


def _first_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


def _string_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(k): _string_keys(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_string_keys(v) for v in value]
    if isinstance(value, set):
        return {_key(k): None for k in value}
    if isinstance(value, bytes):
        return value.decode()  # !!binary; what is no text raises a ValueError too
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"error converting YAML to JSON: json: unsupported value: {value}")
    return value


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)
