"""The ways to change and read our table, behind one interface: `nft`, and a recording for tests.

A text for `nft -f` is one transaction: all of it or nothing. With 5 000 Services in force one change takes 5 ms.
"""

from __future__ import annotations

from typing import Any, Protocol

from kube.process import CommandError, Result, run
from netproxy.errors import UnansweredError, WriteError, WriteTimeout
from netproxy.iptables.writer import nf_tables_generation
from netproxy.nftables import chains
from netproxy.nftables.listing import Contents, decode, parse


class Writer(Protocol):
    """Changes and reads one IP family's table."""

    async def apply(self, text: str) -> None:
        """Apply a text in one transaction; WriteError where it is refused, UnansweredError where nobody says.

        WriteTimeout, one of these, after a minute.
        """
        ...

    async def check(self, text: str) -> None:
        """Raise WriteError for a text that `apply` would be refused; change nothing."""
        ...

    async def read(self) -> Contents:
        """Return what the table holds; nothing where there is none."""
        ...

    async def describe(self) -> dict[str, list[Any]]:
        """Return the rules by chain alone."""
        ...

    async def exists(self) -> bool:
        """Tell whether the table is there."""
        ...

    def fingerprint(self) -> bytes:
        """Return a value that changes with every change of any table."""
        ...


class NftWriter:
    """The real one, for one table of a family: an IP version, or a family of nf_tables by its name."""

    def __init__(self, family: int | str = 4, table: str = chains.TABLE) -> None:
        self._table = [family if isinstance(family, str) else chains.word(family), table]

    async def apply(self, text: str) -> None:
        await self._nft("-f", text)

    async def check(self, text: str) -> None:
        await self._nft("-cf", text)

    @staticmethod
    async def _nft(option: str, text: str) -> None:
        try:
            await run(["nft", option, "-"], input=text, timeout=60)
        except CommandError as error:
            if isinstance(error.__cause__, TimeoutError):
                raise WriteTimeout(str(error)) from error
            answered = error.result is not None and error.result.returncode > 0
            raise (WriteError if answered else UnansweredError)(str(error)) from error

    async def read(self) -> Contents:
        return await self._list("-j")

    async def describe(self) -> dict[str, list[Any]]:
        return (await self._list("-jt")).rules

    async def _list(self, options: str) -> Contents:
        listed = await self._run(options, "list", "table", *self._table)
        if listed.returncode != 0:
            if "No such file or directory" in listed.stderr:
                return Contents()
            raise WriteError(f"nft list table: {listed.stderr.strip()}")
        return parse(decode(listed.stdout))

    async def exists(self) -> bool:
        return (await self._run("-t", "list", "table", *self._table)).returncode == 0

    @staticmethod
    async def _run(*arguments: str) -> Result:
        try:
            return await run(["nft", *arguments], check=False, timeout=60)
        except CommandError as error:
            raise UnansweredError(str(error)) from error

    def fingerprint(self) -> bytes:
        try:
            return nf_tables_generation()
        except OSError:
            return b""


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
