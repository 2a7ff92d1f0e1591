"""Parses iptables-save's output, and builds and analyses the input of iptables-restore.

iptables-restore applies each table in one transaction. nat precedes filter: a Service that gets its first endpoint is
translated before its reject rule is removed, and one that loses its last endpoint changes
directly from translation to rejection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from netproxy.xtables.matches import Chain

TABLE_ORDER = ("mangle", "nat", "filter")
Tables = dict[str, dict[str, list[str]]]
"""table -> chain -> rules, as iptables-save prints them without "-A chain "."""


def parse_save(text: str) -> Tables:
    """Read the output of iptables-save."""
    tables: Tables = {}
    chains: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("*"):
            chains = tables.setdefault(line[1:].strip(), {})
        elif line.startswith(":"):
            chains.setdefault(line[1:].split(" ", 1)[0], [])
        elif line.startswith("-A "):
            _, chain, rule = line.split(" ", 2)
            chains.setdefault(chain, []).append(rule.rstrip())
    return tables


@dataclass(slots=True)
class _Batch:
    """The lines of one table, in the order in which they are safe: declare, fill, link, unlink, remove."""

    declare: list[str] = field(default_factory=list)
    fill: list[str] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    insert: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)

    def render(self, table: str) -> str:
        # In order of names: iptables-nft 1.8 looks each new chain up in a list, three times as fast if neighbours in it
        # were made one after the other (10 000 chains).
        lines = [*sorted(self.declare), *self.fill, *self.delete, *self.insert, *self.remove]
        return "\n".join([f"*{table}", *lines, "COMMIT", ""]) if lines else ""


class Batches:
    """The lines of all tables."""

    def __init__(self) -> None:
        self._tables: dict[str, _Batch] = {}

    def __getitem__(self, table: str) -> _Batch:
        return self._tables.setdefault(table, _Batch())

    def rewrite(self, chain: Chain, rules: Iterable[str]) -> None:
        """Make a chain hold exactly these rules, creating it where it is missing."""
        table, name = chain
        batch = self[table]
        batch.declare.append(f":{name} - [0:0]")
        batch.fill += [f"-A {name} {rule}" for rule in rules]

    def drop(self, chain: Chain) -> None:
        table, name = chain
        self[table].declare.append(f":{name} - [0:0]")
        self[table].remove.append(f"-X {name}")

    def render(self) -> str:
        order = [*TABLE_ORDER, *(table for table in self._tables if table not in TABLE_ORDER)]
        return "".join(self._tables[table].render(table) for table in order if table in self._tables)


def chains_named(text: str, limit: int = 8) -> str:
    """Name the chains that a text for iptables-restore touches, with their tables, for the log."""
    found: dict[str, None] = {}
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line != "COMMIT":
            words = line.split(" ", 2)
            found[f"{table} {words[0][1:] if line.startswith(':') else words[1]}"] = None
    shown = list(found)[:limit]
    return ", ".join(shown) + (f" and {len(found) - limit} more" if len(found) > limit else "")


def transactions(text: str) -> int:
    """Return how many transactions a text for iptables-restore is: one a table."""
    return text.count("\nCOMMIT\n")


def lines_by_table(text: str) -> dict[str, int]:
    """Count the rules that a text for iptables-restore writes or deletes, by table."""
    counts: dict[str, int] = {}
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:]
            counts[table] = 0
        elif line.startswith("-"):
            counts[table] += 1
    return counts
