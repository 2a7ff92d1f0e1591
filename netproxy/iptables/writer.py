"""The ways to change and read the kernel's tables, behind one interface.

`RestoreWriter` pipes a delta into one `iptables-restore --noflush -w` (the -nft or -legacy flavour): one exec, one
transaction a table. A change costs nf_tables the kernel's check of the jump graph; it costs legacy tables two copies of
the whole table, out and in, whatever library asks for it (of 15 MB with 5 000 Services: 125 ms of 150), so there the
rules of many endpoints are kept lean (balancing.py). `RecordingWriter` keeps the tables in memory and raises the same
errors, for tests.

`fingerprint` tells cheaply, without listing a rule, whether anybody has changed anything since: nf_tables
counts its generations, legacy tables tell their number of entries and bytes.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from typing import Protocol

from kube.process import CommandError, run
from netproxy.errors import WriteError, WriteTimeout
from netproxy.iptables.restore_text import Tables, parse_save


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
        """Return a value that changes when the tables do; b"" where none is to be had."""
        ...

    @property
    def tells_all(self) -> bool:
        """Whether the fingerprint changes with every change, not only with most."""
        ...

    @property
    def copies_whole(self) -> bool:
        """Whether every change copies the whole table, so that it costs what the table's size is."""
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
    def tells_all(self) -> bool:
        return self.flavour == "nft"

    @property
    def copies_whole(self) -> bool:
        return self.flavour == "legacy"

    async def apply(self, text: str) -> None:
        try:
            await run([self._restore, "--noflush", "-w", "5"], input=text, timeout=60)
        except CommandError as error:
            raise (WriteTimeout if isinstance(error.__cause__, TimeoutError) else WriteError)(str(error)) from error

    async def read(self) -> Tables:
        try:
            return parse_save((await run([self._save], timeout=60)).stdout)
        except CommandError as error:
            raise WriteError(str(error)) from error

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


_NETLINK_NETFILTER = 12
_NFT_MSG_GETGEN = (10 << 8) | 16
_NLM_F_REQUEST = 1


def nf_tables_generation() -> bytes:
    """Ask nf_tables for its generation ID, which every transaction in this network namespace raises."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
        netlink.settimeout(1)
        # struct nlmsghdr, struct nfgenmsg (family AF_UNSPEC, version 0, resource 0).
        netlink.send(struct.pack("=IHHII", 20, _NFT_MSG_GETGEN, _NLM_F_REQUEST, 1, 0) + struct.pack("=BBH", 0, 0, 0))
        answer = netlink.recv(4096)
    # Past the two headers: attribute NFTA_GEN_ID (1), a big-endian 32-bit number, comes first.
    return answer[24:28]


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
    version = await run([program, "-V"], timeout=10)
    return "legacy" if "legacy" in version.stdout else "nft"


async def _saved(program: str) -> str | None:
    try:
        return (await run([program], timeout=30)).stdout
    except CommandError:
        return None


class RecordingWriter:
    """Tables in memory: applies what the real one applies, refuses what the kernel refuses, and keeps each text."""

    def __init__(self) -> None:
        self.tables: Tables = {
            "nat": {name: [] for name in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")},
            "filter": {name: [] for name in ("INPUT", "FORWARD", "OUTPUT")},
            "mangle": {name: [] for name in ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")},
        }
        self.applied: list[str] = []
        self.counted: dict[tuple[str, str], list[int]] = {}
        self.generation = 0
        self.tells_all, self.copies_whole = True, False

    async def apply(self, text: str) -> None:
        self.applied.append(text)
        batch: list[str] = []
        for line in text.splitlines():
            batch.append(line)
            if line == "COMMIT":
                self._commit(batch)
                batch = []
        if batch:
            raise WriteError("iptables-restore: COMMIT expected")

    async def read(self) -> Tables:
        return {table: {name: list(rules) for name, rules in chains.items()} for table, chains in self.tables.items()}

    async def packets(self, table: str, chain: str) -> list[int]:
        if chain not in self.tables[table]:
            raise WriteError(f"iptables: no chain {chain}")
        return self.counted.get((table, chain)) or [0] * len(self.tables[table][chain])

    def fingerprint(self) -> bytes:
        return self.generation.to_bytes(4, "big")

    def _commit(self, lines: list[str]) -> None:
        table = lines[0].removeprefix("*")
        chains = {name: list(rules) for name, rules in self.tables.setdefault(table, {}).items()}
        for number, line in enumerate(lines[1:-1], 2):
            try:
                _apply_line(chains, line)
            except (KeyError, ValueError) as error:
                raise WriteError(f"iptables-restore: line {number} failed: {line}") from error
        for rules in chains.values():
            for rule in rules:
                target = rule.rpartition("-j ")[2].split(" ")[0]
                if target.startswith(("KUBE-", "WHERRY-")) and target not in chains:
                    raise WriteError(f"iptables-restore: COMMIT failed: no chain {target}")
        self.tables[table] = chains
        self.generation += 1


def _apply_line(chains: dict[str, list[str]], line: str) -> None:
    if line.startswith(":"):
        chains[line[1:].split(" ")[0]] = []
        return
    command, chain, *rest = line.split(" ", 2)
    if command == "-A":
        chains[chain].append(rest[0])
    elif command == "-I":
        position, rule = rest[0].split(" ", 1)
        chains[chain].insert(int(position) - 1, rule)
    elif command == "-D":
        chains[chain].remove(rest[0])
    elif command == "-X":
        if any(f"-j {chain}" in rule for rules in chains.values() for rule in rules):
            raise ValueError("chain in use")
        del chains[chain]
    else:
        raise ValueError(command)
