"""The lines of an `nft -f` text that lead from one state of a table to another. No I/O.

Order is the caller's: chains are declared before an element or rule names them, and deleted after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

Element = tuple[str, str]
"""(map or set, key)."""
Held = dict[Element, str]
"""Elements with their data; "" in sets."""
CHUNK = 500
"""Elements a command: nft's parser is slow on very long lines."""


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
