"""A list's checksum is that of the whole text, whatever was summed before."""

from __future__ import annotations

import pytest

from agent.managers import state_files
from agent.managers.list_checksum import ListChecksum


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"], ["b", "a"], ["a", "c", "b"], ["c"], []])
def test_the_checksum_goes_on_where_the_lists_differ(names: list[str]) -> None:
    items = {name: [name] for name in "abc"}
    kept = ListChecksum[list[str]](b"(", b", ", lambda item: item[0].encode())
    for before in ([], ["a"], ["a", "b", "c"], ["b"]):
        kept.of([items[name] for name in before], b")")
        assert kept.of([items[name] for name in names], b"]") == state_files.checksum(f"({', '.join(names)}]")
