"""Lines for `nft -f` that lead from one state of a table to another. No I/O.

Order is the caller's: chains are declared before an element or rule names them, and deleted after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from netproxy.nft.table import Contents, Desired, Element

PROTOCOLS = ("tcp", "udp", "sctp")
CHUNK = 500
"""Elements a command: nft's parser is slow on very long lines."""


def family_keyword(family: int) -> str:
    """Return nft's word for an IP version."""
    return "ip" if family == 4 else "ip6"


def reconcile(desired: Desired, actual: Contents) -> str:
    """Return the text that turns what a table holds into what it should hold. All chains are written again."""
    table, declarations, chains = desired.table, desired.declarations, desired.chains
    # Declaring a map again that is there is an error to nft 1.0.6 where its key comes from several protocols.
    missing = [text for name, text in declarations.items() if name not in actual.sets]
    # Elements of maps go before the chains that they lead to; those of sets go with their set.
    before = {element: data for element, data in actual.elements.items() if data or element[0] in declarations}
    lines = [f"add table {table}", *(declare(table, text) for text in missing)]
    lines += write_chains(table, chains, desired.hooks)
    lines += change_elements(table, before, desired.elements)
    lines += delete_chains(table, [name for name in actual.rules if name not in chains])
    lines += [f"delete set {table} {name}" for name in actual.sets if name not in declarations]
    return "\n".join(lines) + "\n"


def declare(table: str, text: str) -> str:
    """Return the line that adds a set or map, given as "set NAME { ... }"."""
    return f"add {text.replace(' ', f' {table} ', 1)}"


def write_chains(table: str, wanted: Mapping[str, tuple[str, ...]], hooks: Mapping[str, str]) -> list[str]:
    """Declare all first, for they name each other; then empty and fill each. `hooks` are those of base chains."""
    lines = []
    for name in wanted:
        hook = hooks.get(name)
        lines.append(f"add chain {table} {name}" + (f" {{ {hook} }}" if hook else ""))
    for name, rules in wanted.items():
        lines.append(f"flush chain {table} {name}")
        lines += [f"add rule {table} {name} {rule}" for rule in rules]
    return lines


def delete_chains(table: str, names: Iterable[str]) -> list[str]:
    """Empty all first, for they name each other."""
    names = list(names)
    return [f"flush chain {table} {name}" for name in names] + [f"delete chain {table} {name}" for name in names]


def change_elements(table: str, before: Mapping[Element, str], after: Mapping[Element, str]) -> list[str]:
    """Delete what is gone or has other data, then add what is new."""
    gone: defaultdict[str, list[str]] = defaultdict(list)
    come: defaultdict[str, list[str]] = defaultdict(list)
    for (name, key), data in before.items():
        if after.get((name, key)) != data:
            gone[name].append(key)
    for (name, key), data in after.items():
        if before.get((name, key)) != data:
            come[name].append(f"{key} : {data}" if data else key)
    return [*_in_chunks(table, "delete", gone), *_in_chunks(table, "add", come)]


def _in_chunks(table: str, verb: str, elements: Mapping[str, list[str]]) -> list[str]:
    return [
        f"{verb} element {table} {name} {{ {', '.join(keys[start : start + CHUNK])} }}"
        for name, keys in elements.items()
        for start in range(0, len(keys), CHUNK)
    ]
