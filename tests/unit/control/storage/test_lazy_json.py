"""Selectors compare the same values whether an object is decoded as a whole or in part, and cost less in part."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.registry.strategies import strategy_for
from control.storage import codec, lazy_json
from control.storage.entry import Entry
from kube.resources import RESOURCES, Resource

KINDS = [resource for resource in RESOURCES if resource.type is not None]
SELECTABLE = [resource for resource in KINDS if strategy_for(resource).fields({})]
PADDING = {f"k{number:05}": "" for number in range(4000)}
OTHER_FIELDS = ("involvedObject.kind", "regarding.name", "source.component", "status.succeeded", "metadata.name")


def large(resource: Resource, pad: str) -> dict[str, Any]:
    """Return an object whose selectable fields have values, and of which the part `pad` is large."""
    obj: dict[str, Any] = {"apiVersion": resource.api_version, "kind": resource.kind}
    for path in (*strategy_for(resource).fields({}), *OTHER_FIELDS):
        at = obj
        *above, last = path.split(".")
        for name in above:
            if not isinstance(at.setdefault(name, {}), dict):
                at[name] = {}  # the source of an event is a text and an object
            at = at[name]
        at.setdefault(last, f"value of {path}")
    obj["metadata"] |= {"namespace": "n", "labels": {"app": "web"}}
    if "podIP" in (obj.get("status") or {}):
        obj["status"]["podIPs"] = [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]
    obj.setdefault(pad, {})["padding"] = PADDING
    return obj


@pytest.mark.parametrize("pad", ["metadata", "spec", "status", "data"])
@pytest.mark.parametrize("resource", SELECTABLE, ids=lambda resource: resource.target)
def test_labels_and_fields_are_those_of_the_whole_object(
    resource: Resource, pad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    obj, strategy = large(resource, pad), strategy_for(resource)
    entry = Entry("/k", 1, msgspec.json.encode(obj), strategy.fields)
    monkeypatch.setattr(codec, "decode", None)
    names = {"metadata.name": "value of metadata.name", "metadata.namespace": "n"}
    assert entry.fields == names | strategy.fields(obj)
    assert entry.labels == {"app": "web"}


def test_parts_are_decoded_at_their_first_use() -> None:
    obj = {"spec": {"a": [1, {"b": None}], "padding": PADDING}, "padding": PADDING, "n": 1}
    data = msgspec.json.encode(obj)
    parts = lazy_json.lazy_dict(data)
    assert parts["n"] == 1 and parts["spec"]["padding"]["k00001"] == ""
    assert lazy_json.lazy_dict(data)["spec"]["a"] == [1, {"b": None}]
    assert lazy_json.lazy_dict(data).get("missing", 7) == 7 and "spec" in lazy_json.lazy_dict(data)


@pytest.mark.parametrize(
    "metadata", [{}, None, {"labels": None}, {"name": "a", "labels": {"number": 1}}, {"labels": {"a": "b"}}]
)
def test_heads_are_read_as_they_are_stored(metadata: Any) -> None:
    obj = {"metadata": metadata}
    found = metadata or {}
    head = lazy_json.partial_metadata(msgspec.json.encode(obj))
    assert (head.name, head.namespace, head.labels) == (found.get("name", ""), "", found.get("labels"))
    assert head == lazy_json.metadata_of(obj)
    assert lazy_json.partial_metadata(b"{}") == lazy_json.PartialMetadata()
