"""Contents of one family's policy table, and the names of its sets and chains. No I/O.

It is made of parts; a part is the same object as long as nothing in it changes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netproxy.policy.member_elements import ADDRESSES, ElementKind
from netproxy.policy.model import Policy, Port
from netproxy.policy.selector import Selector

TABLE = "wherry-policy"


@dataclass(slots=True, eq=False)
class Part:
    """A part of a ruleset. A set whose elements did not change since the last ruleset is the same object.

    Elements never change in place: others may hold them.
    """

    declarations: dict[str, str] = field(default_factory=dict)
    """Sets and maps by name, as "set NAME { ... }"."""
    elements: dict[str, Mapping[str, str]] = field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class PolicyPart(Part):
    """The part of one policy in one direction; it is the same object as long as none of it changed."""

    policy: Policy | None = None
    selections: dict[Selector, list[str]] = field(default_factory=dict)
    """Each selection whose members are written, and the sets that they are in."""
    named: dict[Selector, dict[str, Port]] = field(default_factory=dict)
    """The sets of named ports, by whose."""

    def kinds_of(self, selector: Selector) -> list[ElementKind]:
        """Return the kinds of elements of a selection's members that are written."""
        named = [(port.name, port.protocol) for port in self.named.get(selector, {}).values()]
        return [ADDRESSES, *named] if self.selections[selector] else named

    def fill(self, selector: Selector, elements: Mapping[ElementKind, Mapping[str, str]]) -> None:
        """Write the elements of a selection's members into the sets for them."""
        for name in self.selections[selector]:
            self.elements[name] = elements[ADDRESSES]
        for name, port in self.named.get(selector, {}).items():
            self.elements[name] = elements[port.name, port.protocol]


@dataclass(slots=True, eq=False)
class Ruleset(Part):
    """The desired contents of the table, together and in parts."""

    parts: dict[object, Part] = field(default_factory=dict)

    def add(self, key: object, part: Part) -> None:
        self.parts[key] = part
        self.declarations |= part.declarations
        self.elements |= part.elements
        self.chains |= part.chains


def flatten(ruleset: Part) -> Mapping[tuple[str, str], str]:
    """Return all elements by set and key."""
    return {(name, key): data for name, elements in ruleset.elements.items() for key, data in elements.items()}


def digest(*parts: object) -> str:
    """Name what is determined by these values: 16 characters that are the same in every process."""
    text = repr(tuple(map(_stable, parts)))
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode()[:16].lower()


def _stable(part: object) -> str:
    """Return a text that is the same in every process: a set's order is not."""
    if isinstance(part, Selector):
        namespaces = None if part.namespaces is None else _labels(part.namespaces)
        return repr((_labels(part.pods), part.namespace, namespaces))
    return repr(part)


def _labels(selector: Any) -> str:
    return repr((selector.nothing, sorted((r.key, r.operator, sorted(r.values)) for r in selector.requirements)))
