"""Changes and reads one table with `nft`, small changes with its library.

A text for `nft -f` is one transaction: all of it or nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from kube.process import CommandError, Result, run
from netproxy.errors import UnansweredError, WriteError, WriteTimeout
from netproxy.netlink import nf_tables_generation
from netproxy.nft import library
from netproxy.nft.commands import family_keyword
from netproxy.nft.listing import decode, parse
from netproxy.nft.table import Contents

log = logging.getLogger(__name__)

SERVICES_TABLE = "kube-proxy"
"""The table of the nftables mode, under upstream's name."""
TIMEOUT = 60.0
"""Seconds that a change or a listing may take."""


class Writer(Protocol):
    """Changes and reads one IP family's table."""

    async def apply(self, text: str) -> None:
        """Apply a text in one transaction; WriteError where it is refused, UnansweredError where the result is unknown.

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
        """Return whether the table is there."""
        ...

    def fingerprint(self) -> bytes:
        """Return a value that changes with every change of any table."""
        ...


class NftWriter:
    """The real one, for one table of a family: an IP version, or a family of nf_tables by its name.

    With `in_process` small changes are made by libnftables in this process.
    """

    def __init__(self, family: int | str = 4, table: str = SERVICES_TABLE, *, in_process: bool = False) -> None:
        self._table = [family if isinstance(family, str) else family_keyword(family), table]
        self._in_process = in_process

    async def apply(self, text: str) -> None:
        refusal = await self._apply_in_process(text) if self._in_process else None
        if refusal != "":
            await self._nft("-f", text)
        if refusal:
            log.warning("libnftables refused a change that nft accepts: %s", refusal[:500])

    @staticmethod
    async def _apply_in_process(text: str) -> str | None:
        try:
            return await library.apply(text, TIMEOUT)
        except TimeoutError as error:
            raise WriteTimeout(f"libnftables: still running after {TIMEOUT:g} s") from error

    async def check(self, text: str) -> None:
        await self._nft("-cf", text)

    @staticmethod
    async def _nft(option: str, text: str) -> None:
        try:
            await run(["nft", option, "-"], input=text, timeout=TIMEOUT)
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
        return await asyncio.to_thread(lambda: parse(decode(listed.stdout)))

    async def exists(self) -> bool:
        return (await self._run("-t", "list", "table", *self._table)).returncode == 0

    @staticmethod
    async def _run(*arguments: str) -> Result:
        try:
            return await run(["nft", *arguments], check=False, timeout=TIMEOUT)
        except CommandError as error:
            raise UnansweredError(str(error)) from error

    def fingerprint(self) -> bytes:
        return nf_tables_generation()
