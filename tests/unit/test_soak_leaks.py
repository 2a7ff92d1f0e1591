"""The nftables rules and elements that the soak compares."""

from __future__ import annotations

import json
from typing import Any

from bench.soak_leaks import nftables

RULE: dict[str, Any] = {"family": "inet", "table": "t", "chain": "c"}


def ruleset(*, elements: list[Any], rules: int = 1, packets: int = 0, table: str = "t") -> str:
    entries: list[dict[str, Any]] = [
        {"metainfo": {"version": "1.0.6"}},
        {"table": {"family": "inet", "name": table, "handle": packets}},
        {"set": {"family": "inet", "table": table, "name": "s", "type": "ipv4_addr", "handle": 3, "elem": elements}},
    ]
    counter = {"counter": {"packets": packets, "bytes": 0}}
    for handle in range(rules):
        entries.append(
            {"rule": {**RULE, "table": table, "handle": handle + packets, "expr": [counter, {"drop": None}]}}
        )
    return json.dumps({"nftables": entries})


def test_a_rule_or_an_element_more_is_found_and_counters_and_handles_are_none() -> None:
    before = nftables(ruleset(elements=["10.0.0.1"]))
    assert nftables(ruleset(elements=["10.0.0.1"], packets=7)) == before
    assert len(nftables(ruleset(elements=["10.0.0.1"], rules=2)) - before) == 1
    assert len(nftables(ruleset(elements=["10.0.0.1", {"concat": ["10.0.0.2", 80]}])) - before) == 1
    timed = {"elem": {"val": "10.0.0.3", "timeout": 60, "expires": 5}}
    assert nftables(ruleset(elements=["10.0.0.1", timed])) == before
    assert nftables(ruleset(elements=[], table="filter")) == set()
