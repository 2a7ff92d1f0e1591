"""Layout of a mode: its fixed chains, shared chains, and the jumps into them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from netproxy.settings import FixedChainSettings
from netproxy.xtables.matches import Chain


@dataclass(frozen=True, slots=True)
class Jump:
    """A rule of ours in one of the kernel's chains, kept at its head."""

    table: str
    chain: str
    target: str
    rule: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The chains of a proxy mode that do not belong to one port."""

    jumps: Callable[[int], list[Jump]]
    """By family."""
    fixed: Callable[[FixedChainSettings], dict[Chain, tuple[str, ...]]]
    shared: Sequence[Chain] = ()
    tail: Callable[[FixedChainSettings], dict[Chain, tuple[str, ...]]] = lambda settings: {}
