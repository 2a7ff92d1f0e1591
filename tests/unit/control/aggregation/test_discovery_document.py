from __future__ import annotations

import msgspec
import pytest

from control.aggregation import discovery_document


def document(entries: list[object]) -> bytes:
    return msgspec.json.encode({"kind": "APIResourceList", "resources": entries})


def test_entries_without_a_name_are_left_out() -> None:
    found, _ = discovery_document.read(document([{"name": "a", "verbs": ["get"]}, {"kind": "B"}]))
    assert [(entry.name, entry.verbs) for entry in found] == [("a", ["get"])]


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (
            [{"name": f"r{number}"} for number in range(discovery_document.MOST_RESOURCES + 1)],
            "more than 2000 resources",
        ),
        ([{}] * (discovery_document.MOST_RESOURCES + 1), "more than 2000 resources"),
        ([{"name": "a", "verbs": ["get"] * 200_000}], "more than 200000 values"),
        ([5], "Expected `object`"),
    ],
    ids=["resources", "entries without a name", "verbs", "no resource"],
)
def test_a_document_beyond_the_limits_is_refused(entries: list[object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        discovery_document.read(document(entries))


def test_a_document_of_as_many_resources_as_are_allowed_is_read() -> None:
    entries: list[object] = [{"name": f"r{number}"} for number in range(discovery_document.MOST_RESOURCES)]
    assert len(discovery_document.read(document(entries))[0]) == discovery_document.MOST_RESOURCES
