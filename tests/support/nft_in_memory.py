"""A table of nf_tables in memory, behind the interface of the real writer."""

from __future__ import annotations

from typing import Any

from netproxy.errors import WriteError
from netproxy.nft.table import Contents


class RecordingWriter:
    """A table in memory: applies what the real one applies, refuses what the kernel refuses, and keeps each text."""

    def __init__(self) -> None:
        self.contents = Contents()
        self.there = False
        self.applied: list[str] = []
        self.generation = 0

    async def apply(self, text: str) -> None:
        self.applied.append(text)
        self.contents, self.there = self._after(text)
        self.generation += 1

    async def check(self, text: str) -> None:
        self._after(text)

    def _after(self, text: str) -> tuple[Contents, bool]:
        held = self.contents
        copy = Contents(dict(held.elements), {name: list(rules) for name, rules in held.rules.items()}, list(held.sets))
        there = self.there
        for number, line in enumerate(text.splitlines(), 1):
            try:
                copy, there = _apply_line(copy, there, line)
            except (KeyError, ValueError) as error:
                raise WriteError(f"nft: line {number}: {line[:200]}: {error}") from error
        return copy, there

    async def read(self) -> Contents:
        held = self.contents
        return Contents(dict(held.elements), {name: list(rules) for name, rules in held.rules.items()}, list(held.sets))

    async def describe(self) -> dict[str, list[Any]]:
        return (await self.read()).rules

    async def exists(self) -> bool:
        return self.there

    def fingerprint(self) -> bytes:
        return self.generation.to_bytes(4, "big")


def _apply_line(held: Contents, there: bool, line: str) -> tuple[Contents, bool]:
    verb, kind, _family, _table, *rest = line.split(" ", 5)
    name = rest[0] if rest else ""
    body = rest[1] if len(rest) > 1 else ""
    if kind == "table":
        return (held, True) if verb == "add" else (Contents(), False)
    if not there:
        raise KeyError("no such table")
    match verb, kind:
        case "add", "map" | "set":
            if name not in held.sets:
                held.sets.append(name)
        case "add", "chain":
            held.rules.setdefault(name, [])
        case "flush", "chain":
            held.rules[name].clear()
        case "add", "rule":
            held.rules[name].append(body)
        case "delete", "chain":
            if any(target == name for rules in held.rules.values() for rule in rules for target in rule.split()):
                raise ValueError("chain in use by a rule")
            if any(data == f"goto {name}" for data in held.elements.values()):
                raise ValueError("chain in use by an element")
            del held.rules[name]
        case "delete", "set":
            held.sets.remove(name)
            held.elements = {element: data for element, data in held.elements.items() if element[0] != name}
        case "add" | "delete", "element":
            if name not in held.sets:
                raise KeyError(name)
            for item in body.strip("{} ").split(", "):
                key, _, data = item.partition(" : ")
                if verb == "delete":
                    del held.elements[name, key]
                    continue
                if held.elements.get((name, key), data) != data:
                    raise ValueError(f"{key} is there with other data")
                if data.startswith("goto ") and data.removeprefix("goto ") not in held.rules:
                    raise KeyError(data)
                held.elements[name, key] = data
        case _:
            raise ValueError("unknown command")
    return held, there
