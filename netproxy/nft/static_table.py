"""Table of nf_tables with a fixed text: written in one transaction, and again if others changed it."""

from __future__ import annotations

import logging
import shutil

from kube.process import CommandError, run
from netproxy.netlink import nf_tables_generation
from netproxy.nft.hooks import BEFORE_DNAT, BEFORE_RAW

log = logging.getLogger(__name__)


def replacement(table: str, body: str) -> str:
    """Return nft's text for a table ("inet name"), which replaces whatever is there."""
    return f"table {table} {{}}\ndelete table {table}\ntable {table} {{\n{body}}}\n"


def chain(hook: str, *rules: str, kind: str = "filter", priority: int = -10, name: str = "") -> str:
    """Return nft's text for a chain of a hook's packets; it has the hook's name unless another is given."""
    lines = [f"type {kind} hook {hook} priority {priority}; policy accept;", *rules]
    return f"  chain {name or hook} {{\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


class StaticTable:
    """A table ("inet name") as last written; `failure` is logged once if it cannot be."""

    def __init__(self, table: str, failure: str) -> None:
        self._table, self._failure = table, failure
        self._written: str | None = None
        self._generation = b""
        self._logged_error = ""

    async def write(self, body: str) -> bool:
        """Bring the table to this text; return whether it, or the one before, is in force."""
        text = replacement(self._table, body)
        if text == self._written and (self._generation == nf_tables_generation() or await self._present(text)):
            self._generation = nf_tables_generation()
            return True
        try:
            await run(["nft", "-f", "-"], input=text)
        except CommandError as error:
            if str(error) != self._logged_error:
                self._logged_error = str(error)
                log.error("%s: %s", self._failure, error)
            if self._written and await self._present(self._written):
                return True
            self._written = None
            return False
        self._written, self._generation, self._logged_error = text, nf_tables_generation(), ""
        return True

    async def remove(self) -> None:
        """Remove the table if it may be there."""
        if self._written != "":
            await remove(self._table)
            self._written = ""

    async def _present(self, text: str) -> bool:
        """Return whether the kernel still holds the table with all that is in it."""
        try:
            listed = (await run(["nft", "list", "table", *self._table.split()])).stdout
        except CommandError:
            return False
        return _words(listed) == _words(text[text.rindex(f"table {self._table}") :])


async def remove(table: str) -> None:
    """Remove a table; no error if there is none."""
    if shutil.which("nft") is not None:
        await run(["nft", "delete", "table", *table.split()], check=False)


def _words(text: str) -> list[str]:
    """Reduce to what matters: nft lists with other line ends and blanks than it is given."""
    for mark in ";{},":
        text = text.replace(mark, " ")
    for name, number in (("filter - 10", -10), ("dstnat - 1", BEFORE_DNAT), ("raw - 10", BEFORE_RAW)):
        text = text.replace(f"priority {name} ", f"priority {number} ")
    return sorted(text.split())
