"""A table of nf_tables as data: its actual and its desired contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Element = tuple[str, str]
"""(map or set, key)."""
Elements = dict[Element, str]
"""Elements with their data; "" in sets."""
Chains = Mapping[str, tuple[str, ...]]
"""Rules by chain, in an order in which each chain names earlier ones."""


@dataclass(slots=True)
class Contents:
    """Actual contents of a table: elements, rules by chain as nft describes them, and the names of its sets and maps."""

    elements: Elements = field(default_factory=dict)
    rules: dict[str, list[Any]] = field(default_factory=dict)
    sets: list[str] = field(default_factory=list)


class Desired(Protocol):
    """Desired contents of a table.

    `table` is its family and name, `hooks` are those of its base chains, `declarations` its sets and maps by name, as
    "set NAME { ... }". `size` is about how many elements it has. A thread reads a copy (`copy.copy`), in which nothing changes.
    """

    @property
    def table(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def hooks(self) -> Mapping[str, str]: ...
    @property
    def declarations(self) -> Mapping[str, str]: ...
    @property
    def chains(self) -> Chains: ...
    @property
    def elements(self) -> Elements: ...
