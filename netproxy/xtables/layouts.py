"""Layouts of all modes: tables, chains and sets that a switch of modes and a clean-up remove."""

from __future__ import annotations

from netproxy.settings import FixedChainSettings
from netproxy.xtables.iptables_chains import IPTABLES
from netproxy.xtables.ipvs_chains import IPVS
from netproxy.xtables.matches import Chain

LAYOUTS = (IPTABLES, IPVS)


def known_chains() -> set[Chain]:
    """Return the fixed and shared chains of every mode."""
    return {
        chain
        for layout in LAYOUTS
        for family in (4, 6)
        for chain in (*layout.fixed(FixedChainSettings(family=family)), *layout.shared)
    }
