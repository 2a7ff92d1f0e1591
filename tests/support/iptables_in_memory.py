"""iptables' tables in memory, behind the interface of the real writer."""

from __future__ import annotations

from netproxy.errors import WriteError
from netproxy.xtables.restore_text import Tables


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
        self.fingerprint_is_exact, self.copies_whole_table = True, False

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
