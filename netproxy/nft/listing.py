"""Reads what a table holds from `nft -j list table`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from netproxy.nft.table import Contents, Elements


class _Set(msgspec.Struct, gc=False):
    """A set or map."""

    name: str
    map: Any = None
    flags: Any = ()
    elem: list[msgspec.Raw] = []


class _Rule(msgspec.Struct, gc=False):
    chain: str
    expr: msgspec.Raw


class _Item(msgspec.Struct, gc=False):
    rule: _Rule | None = None
    chain: dict[str, Any] | None = None
    map: _Set | None = None
    set: _Set | None = None


class _Listing(msgspec.Struct):
    nftables: list[_Item]


def decode(text: str) -> dict[str, Any]:
    """Return the JSON of `nft -j list table`, but expressions of rules undecoded, for they are only compared, and elements."""
    found: list[dict[str, Any]] = []
    for item in msgspec.json.decode(text, type=_Listing).nftables:
        if item.rule is not None:
            found.append({"rule": {"chain": item.rule.chain, "expr": bytes(item.rule.expr)}})
        if item.chain is not None:
            found.append({"chain": item.chain})
        for kind, each in (("map", item.map), ("set", item.set)):
            if each is not None:
                found.append({kind: {"name": each.name, "map": each.map, "flags": each.flags, "elem": each.elem}})
    return {"nftables": found}


def parse(document: dict[str, Any]) -> Contents:
    """Parse the output of `nft -j list table`."""
    contents = Contents()
    for item in document["nftables"]:
        for kind, value in item.items():
            match kind:
                case "chain":
                    contents.rules.setdefault(value["name"], [])
                case "rule":
                    contents.rules.setdefault(value["chain"], []).append(value["expr"])
                case "map" | "set":
                    contents.sets.append(value["name"])
                    if "timeout" not in value.get("flags", ()):
                        contents.elements.update(_elements(value))
    return contents


def _elements(value: dict[str, Any]) -> Elements:
    name = value["name"]
    # One by one, none kept: other threads wait while JSON is decoded or garbage collected, and a map may have a million.
    found = (msgspec.json.decode(each) if isinstance(each, msgspec.Raw) else each for each in value.get("elem") or ())
    if value.get("map"):
        return {(name, _text(key)): _text(data) for key, data in found}
    return {(name, _text(key)): "" for key in found}


def _text(value: Any) -> str:
    """Write a value as our own elements are written."""
    if not isinstance(value, dict):
        return str(value)
    match value:
        case {"concat": parts}:
            return " . ".join(_text(part) for part in parts)
        case {"prefix": {"addr": address, "len": length}}:
            return f"{address}/{length}"
        case {"range": [first, last]}:
            return f"{_text(first)}-{_text(last)}"
        case {"goto": {"target": target}}:
            return f"goto {target}"
        case {"drop": _}:
            return "drop"
        case {"elem": {"val": inner}}:
            return _text(inner)
    return json.dumps(value, sort_keys=True)
