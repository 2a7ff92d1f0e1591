"""Values of YAML nodes of an expected type, as they are written: YAML itself makes truth values of `yes` and `on`."""

from __future__ import annotations

import re

import yaml

KINDS = {str: "a text", int: "a number", bool: "true or false", list: "a list of texts"}


def scalar(node: yaml.Node, kind: type) -> str | int | bool:
    """Return a text, number or truth value; raise ValueError if the node is none."""
    tag = node.tag.rpartition(":")[2]
    if isinstance(node, yaml.ScalarNode):
        if kind is str and tag != "null":
            return str(node.value)
        if kind is int and tag == "int" and re.fullmatch("-?(0|[1-9][0-9]{0,17})", node.value):
            return int(node.value)
        if kind is bool and node.value in ("true", "false"):
            return bool(node.value == "true")
    raise ValueError(f"write {KINDS[kind]}")


def texts(node: yaml.Node, example: str) -> list[str]:
    """Return a list of texts; raise ValueError with an example if the node is none."""
    if not isinstance(node, yaml.SequenceNode):
        raise ValueError(f"write {KINDS[list]}, as in `{example}`")
    return [str(scalar(item, str)) for item in node.value]


def key_text(node: yaml.Node) -> str:
    """Return a key, "" for one that is a list or a mapping."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def line(node: yaml.Node) -> int:
    """Return the number of a node's first line."""
    return int(node.start_mark.line) + 1
