"""Objects by a value that each holds, and one label read without the others."""

from __future__ import annotations

import pytest

from control.storage import codec, lazy_json
from control.storage.entry import Entry
from control.storage.index import Index

APP = lazy_json.label_reader("example.com/app")


def entry(name: str, app: str, namespace: str = "ns") -> Entry:
    data = codec.encode({"metadata": {"name": name, "labels": {"example.com/app": app, "other": "x"}}})
    return Entry(f"/registry/things/{namespace}/{name}", 1, data, lambda obj: {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"metadata":{"labels":{"a":"b","example.com/app":"web"}},"spec":{}}', "web"),
        (b'{"metadata":{"labels":{"a":"b"}}}', ""),
        (b'{"metadata":{"labels":{}}}', ""),
        (b'{"metadata":{"labels":null}}', ""),
        (b'{"metadata":{}}', ""),
        (b"{}", ""),
        (b'{"metadata":{"labels":{"example.com/app":7}}}', "7"),
        (b'{"metadata":{"labels":{"example.com/app":null}}}', ""),
        (b'{"metadata":{"labels":"web"}}', ""),
        (b'{"metadata":{"labels":["web"]}}', ""),
    ],
)
def test_one_label_is_read(text: bytes, value: str) -> None:
    assert APP(text) == value


def test_an_index_follows_its_objects_and_keeps_nothing_of_those_that_are_gone() -> None:
    index, folder = Index(APP), "/registry/things/ns/"
    for added in (entry("a", "web"), entry("b", "web"), entry("c", "db"), entry("a", "web", "other"), entry("d", "")):
        index.put(added)
    assert sorted(index.keys(folder, "web")) == [folder + "a", folder + "b"]
    assert index.keys(folder, "") == index.keys(folder, "none") == []
    index.put(entry("a", "db"))
    assert index.keys(folder, "web") == [folder + "b"]
    for name in ("a", "b", "c", "d", "never"):
        index.drop(folder + name)
    index.drop("/registry/things/other/a")
    assert not index._keys and not index._values
