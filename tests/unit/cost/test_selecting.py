"""Lists, watches and deletions of many large objects: decoding for a selector, and the amount decoded in one step."""

from __future__ import annotations

from typing import Any

import pytest

from control.registry.strategies import strategy_for
from control.storage import codec
from control.storage.entry import Entry
from kube.resources import by_path

DATA = {f"k{number:05}": "" for number in range(4000)}


def stored(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"app": "db"}}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": DATA}


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of each object that is decoded as a whole."""
    found, original = list[int](), codec.decode

    def decode(value: bytes) -> dict[str, Any]:
        found.append(len(value))
        return original(value)

    monkeypatch.setattr(codec, "decode", decode)
    return found


def test_no_large_object_is_decoded_as_a_whole_for_a_selector(decoded: list[int]) -> None:
    resource = by_path("", "v1", "configmaps")
    assert resource is not None
    entry = Entry("/k", 1, codec.encode(stored("a")), strategy_for(resource).fields)
    assert entry.unread == len(entry.data)
    assert (entry.labels, entry.fields["metadata.name"]) == ({"app": "db"}, "a")
    assert (decoded, entry.unread) == ([], 0)
