"""The index of definitions: names that others have accepted, and each definition is decoded once for each change of it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from control.custom.definitions import DEFINITIONS
from control.registry.apiextensions import stored
from control.registry.apiextensions.definition_index import DefinitionIndex
from control.storage.entry import Entry


class Cache:
    """The definitions of a watch cache."""

    def __init__(self) -> None:
        self.changed = 0
        self.entries: dict[str, Entry] = {}

    def put(self, kind: str, group: str = "example.com", accepted: Any = None, **more: Any) -> None:
        self.changed += 1
        plural = f"{kind.lower()}s"
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        obj = {
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": names,
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {}}}],
            },
            "status": {
                "acceptedNames": names if accepted is None else accepted,
                "conditions": [{"type": "Established", "status": "True"}],
            },
            **more,
        }
        key = DEFINITIONS.key("", f"{plural}.{group}")
        self.entries[key] = Entry(key, self.changed, json.dumps(obj).encode(), lambda obj: {})

    def remove(self, name: str) -> None:
        self.changed += 1
        del self.entries[DEFINITIONS.key("", name)]

    def get(self, key: str) -> Entry | None:
        return self.entries.get(key)

    def list(self) -> Any:
        return SimpleNamespace(entries=[*self.entries.values()])


async def test_names_are_taken_that_other_definitions_of_the_group_have_accepted() -> None:
    cache = Cache()
    index = DefinitionIndex(cast(Any, cache))
    cache.put("Foo")
    cache.put("Bar", accepted={"plural": "bars", "shortNames": ["b"]})
    cache.put("Foo", "example.org")
    await index.refresh()
    resources, kinds = index.taken("example.com", "foos.example.com")
    assert [name for name in ("foos", "foo", "bars", "bar", "b", "") if name in resources] == ["bars", "b"]
    assert "Foo" not in kinds and "Bar" not in kinds
    resources, kinds = index.taken("example.com", "bars.example.com")
    assert "foos" in resources and "FooList" in kinds and "bars" not in resources
    assert {each.name for each in index.of_group("example.com")} == {"foos.example.com", "bars.example.com"}
    cache.put("Bar", accepted={"plural": "bars", "shortNames": ["foo"]})  # both have it now
    await index.refresh()
    assert "foo" in index.taken("example.com", "foos.example.com")[0]
    cache.remove("foos.example.com")
    await index.refresh()
    resources, kinds = index.taken("example.com", "bars.example.com")
    assert not [name for name in ("foos", "foo", "bars") if name in resources] and "Foo" not in kinds
    cache.remove("foos.example.org")
    await index.refresh()
    assert [each.name for each in index.every()] == ["bars.example.com"] and not index.of_group("example.org")


async def test_what_is_no_definition_is_left_out() -> None:
    cache = Cache()
    index = DefinitionIndex(cast(Any, cache))
    for number, spec in enumerate([{}, {"group": 5}, None]):
        cache.put(f"Foo{number}", spec=spec)
    cache.put("Other", metadata={"name": "another"})
    await index.refresh()
    assert list(index.every()) == []


async def test_a_definition_is_decoded_once_for_each_change_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0
    read = stored.read

    def counted(data: bytes) -> Any:
        nonlocal decoded
        decoded += 1
        return read(data)

    monkeypatch.setattr(stored, "read", counted)
    cache = Cache()
    index = DefinitionIndex(cast(Any, cache))
    for number in range(50):
        cache.put(f"Foo{number}")
        for _ in range(3):
            await index.refresh()
            index.taken("example.com", f"foo{number}s.example.com")
    assert decoded == 50
    cache.put("Foo7")
    await index.refresh()
    assert decoded == 51
