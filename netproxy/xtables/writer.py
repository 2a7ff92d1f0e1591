"""Changes and reads iptables' tables.

`RestoreWriter` pipes a delta into one `iptables-restore --noflush -w` (the -nft or -legacy flavour): one exec, one
transaction a table. A change costs nf_tables the kernel's check of the jump graph; it costs legacy tables two copies of
the whole table, out and in, whatever library requests it (of 15 MB with 5 000 Services: 125 ms of 150), so there the
rules of many endpoints are kept lean (balancing.py).

`fingerprint` shows cheaply, without listing a rule, whether anybody has changed anything since: nf_tables counts its
generations, legacy tables have a number of entries and bytes.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
from typing import Protocol

from kube.process import CommandError, run
from netproxy.errors import WriteError, WriteTimeout
from netproxy.netlink import nf_tables_generation
from netproxy.xtables.restore_text import Tables, parse_save


class Writer(Protocol):
    """Changes and reads one IP family's tables."""

    async def apply(self, text: str) -> None:
        """Apply a delta in iptables-restore's form; WriteError where the kernel refuses it, WriteTimeout after a minute."""
        ...

    async def read(self) -> Tables:
        """List all tables."""
        ...

    async def packets(self, table: str, chain: str) -> list[int]:
        """Return how many packets each rule of a chain has seen; WriteError where there is no such chain."""
        ...

    def fingerprint(self) -> bytes:
        """Return a value that changes when the tables do; b"" if none is available."""
        ...

    @property
    def fingerprint_is_exact(self) -> bool:
        """True if the fingerprint changes with every change, not only with most."""
        ...

    @property
    def copies_whole_table(self) -> bool:
        """True if every change copies the whole table, so that it costs what the table's size is."""
        ...


class RestoreWriter:
    """The real one; `flavour` is "nft" or "legacy"."""

    def __init__(self, flavour: str, family: int = 4) -> None:
        self.flavour, self.family = flavour, family
        program = "iptables" if family == 4 else "ip6tables"
        self._list = f"{program}-{flavour}"
        self._restore = f"{program}-{flavour}-restore"
        self._save = f"{program}-{flavour}-save"

    @property
    def fingerprint_is_exact(self) -> bool:
        return self.flavour == "nft"

    @property
    def copies_whole_table(self) -> bool:
        return self.flavour == "legacy"

    async def apply(self, text: str) -> None:
        try:
            await run([self._restore, "--noflush", "-w", "5"], input=text, timeout=60)
        except CommandError as error:
            raise (WriteTimeout if isinstance(error.__cause__, TimeoutError) else WriteError)(str(error)) from error

    async def read(self) -> Tables:
        try:
            saved = (await run([self._save], timeout=60)).stdout
        except CommandError as error:
            raise WriteError(str(error)) from error
        return await asyncio.to_thread(parse_save, saved)

    async def packets(self, table: str, chain: str) -> list[int]:
        try:
            found = await run([self._list, "-w", "5", "-t", table, "-n", "-v", "-x", "-L", chain], timeout=60)
        except CommandError as error:
            raise WriteError(str(error)) from error
        # Two lines of headings; then a line a rule, which begins with its packets and bytes.
        return [int(line.split(None, 1)[0]) for line in found.stdout.splitlines()[2:] if line.strip()]

    def fingerprint(self) -> bytes:
        try:
            return nf_tables_generation() if self.flavour == "nft" else _legacy_sizes(self.family)
        except OSError:
            return b""


_IPT_SO_GET_INFO = 64
_GETINFO_SIZE = 84
"""struct ipt_getinfo: name[32], valid hooks, 5 hook entries, 5 underflows, number of entries, size in bytes."""


def _legacy_sizes(family: int) -> bytes:
    """Read number of entries, size and hook offsets of each legacy table that is in use."""
    names_file = "/proc/thread-self/net/ip_tables_names" if family == 4 else "/proc/thread-self/net/ip6_tables_names"
    try:
        with open(names_file) as file:
            in_use = sorted(file.read().split())
    except OSError:
        return b""
    domain, level = (socket.AF_INET, socket.SOL_IP) if family == 4 else (socket.AF_INET6, 41)
    libc = ctypes.CDLL(None, use_errno=True)
    infos = []
    with socket.socket(domain, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for table in in_use:
            # The option takes the table's name in its buffer, which Python's getsockopt cannot pass.
            buffer = ctypes.create_string_buffer(table.encode(), _GETINFO_SIZE)
            size = ctypes.c_uint32(_GETINFO_SIZE)
            if libc.getsockopt(raw.fileno(), level, _IPT_SO_GET_INFO, buffer, ctypes.byref(size)) == 0:
                infos.append(buffer.raw)
    return b"".join(infos)


async def choose_flavour(wanted: str = "auto", family: int = 4) -> str:
    """Return "nft" or "legacy": what is wanted, else whichever the host's rules are in, else what `iptables` is.

    Rules in both flavours are both in force, so ours go where others' already are: most rules win, as in upstream's
    iptables-wrappers.
    """
    if wanted != "auto":
        return wanted
    program = "iptables" if family == 4 else "ip6tables"
    flavours = ("nft", "legacy")
    saved = await asyncio.gather(*(_saved(f"{program}-{flavour}-save") for flavour in flavours))
    counts = {
        flavour: -1 if text is None else text.count("\n-A ") for flavour, text in zip(flavours, saved, strict=True)
    }
    if max(counts.values()) < 0:
        raise WriteError(f"{program} is not installed: neither {program}-nft-save nor {program}-legacy-save can be run")
    if counts["nft"] != counts["legacy"]:
        return max(counts, key=lambda flavour: counts[flavour])
    return await installed_flavour(family)


async def installed_flavour(family: int) -> str:
    """Return which of the two the program `iptables` is; CommandError if there is none."""
    version = await run(["iptables" if family == 4 else "ip6tables", "-V"], timeout=10)
    return "legacy" if "legacy" in version.stdout else "nft"


async def _saved(program: str) -> str | None:
    try:
        return (await run([program], timeout=30)).stdout
    except CommandError:
        return None
