from __future__ import annotations

import weakref
from datetime import datetime
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.http.negotiate import Wanted
from control.http.yaml_answer import dump_yaml
from control.registry.strategies import strategy_for
from control.server.forms import Form
from control.server.shared_events import MOST_BYTES, MOST_EVENTS, SECONDS, SharedEvents
from control.storage.entry import Entry
from control.storage.watcher import Notice
from kube import remembering, resources
from kube.clock import FakeClock


async def test_ages_in_a_watched_table_count_to_when_the_row_is_made() -> None:
    clock, configmaps = FakeClock(), resources.by_path("", "v1", "configmaps")
    assert configmaps is not None
    form = Form(Wanted(form="table"), strategy_for(configmaps), "None", clock)
    data = b'{"kind":"ConfigMap","metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:10Z"}}'
    notice = Notice("ADDED", Entry("/registry/configmaps/default/a", 2, data, lambda obj: {}))
    await clock.advance(15)
    first = msgspec.json.decode(form.event(notice))
    await clock.advance(60)
    second = msgspec.json.decode(form.event(notice))
    assert [event["object"]["rows"][0]["cells"] for event in (first, second)] == [["a", 0, "5s"], ["a", 0, "65s"]]


SELECTED = {"resourceVersion": "7", "continue": "x"}
TEXTS = st.text(max_size=8)
CONTENTS = st.dictionaries(TEXTS, TEXTS | st.none() | st.lists(TEXTS, max_size=2), max_size=3)


def whole(form: Form, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a collection as a value, all of it at once."""
    meta = f"meta.k8s.io/{form.wanted.version}"
    if form.wanted.form == "table":
        return form._table(objects, SELECTED)
    if form.wanted.form == "metadata":
        items = [{"kind": "PartialObjectMetadata", "apiVersion": meta, "metadata": obj["metadata"]} for obj in objects]
        return {"kind": "PartialObjectMetadataList", "apiVersion": meta, "metadata": SELECTED, "items": items}
    items = [{key: value for key, value in obj.items() if key not in ("kind", "apiVersion")} for obj in objects]
    if form.wanted.yaml:
        return {"apiVersion": "v1", "items": items, "kind": "ConfigMapList", "metadata": SELECTED}
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": SELECTED, "items": items}


@given(contents=st.lists(CONTENTS, max_size=4), cut=st.integers(0, 4))
@pytest.mark.parametrize("kind", ["object", "table", "metadata"])
@pytest.mark.parametrize(("yaml", "pretty"), [(False, False), (False, True), (True, False)])
def test_a_collection_written_in_pieces_says_what_it_says_as_a_whole(
    kind: Literal["object", "table", "metadata"], yaml: bool, pretty: bool, contents: list[dict[str, Any]], cut: int
) -> None:
    form = Form(Wanted(form=kind, yaml=yaml), STRATEGY, "Object", CLOCK, pretty)
    head = {"kind": "ConfigMap", "apiVersion": "v1"}
    objects = [head | {"metadata": {"name": f"a-{n}"}, "data": each} for n, each in enumerate(contents)]
    entries = [Entry("", 1, msgspec.json.encode(obj), lambda obj: {}) for obj in objects]
    value = whole(form, objects)
    written = dump_yaml(value) if yaml else msgspec.json.encode(value)
    if pretty:
        written = msgspec.json.format(written, indent=2)
    assert form.list(entries, SELECTED).removesuffix(b"\n") == written.removesuffix(b"\n")
    pieces = form.joined(form.items(entries[:cut]) + form.items(entries[cut:]), SELECTED)
    assert pieces.whole() == pieces.gathered() == b"".join(pieces.parts(10)) == written and len(pieces) == len(written)


def test_one_object_of_a_table_is_decoded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    alive, most = weakref.WeakSet[Any](), list[int]()

    class Row(dict[str, Any]):
        def __hash__(self) -> int:  # type: ignore[override]
            return id(self)

    def row(self: Form, obj: dict[str, Any], now: datetime) -> dict[str, Any]:
        made = Row(cells=[obj["metadata"]["name"]])
        alive.add(made)
        most.append(len(alive))
        return made

    monkeypatch.setattr(Form, "_row", row)
    entries = [change(f"a-{number}").entry for number in range(50)]
    Form(Wanted(form="table"), STRATEGY, "Object", CLOCK).list(entries, SELECTED)
    assert len(most) == 50 and max(most) <= 2


def watched(form: str, include: str = "Object", protobuf: bool = False) -> Form:
    return Form(Wanted(form=form, protobuf=protobuf), STRATEGY, include, CLOCK)  # type: ignore[arg-type]


CONFIGMAPS = resources.by_path("", "v1", "configmaps")
assert CONFIGMAPS is not None
STRATEGY, CLOCK = strategy_for(CONFIGMAPS), FakeClock()


def change(name: str = "a") -> Notice:
    data = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%b","resourceVersion":"2"}}' % name.encode()
    return Notice("MODIFIED", Entry(f"/registry/configmaps/default/{name}", 2, data, lambda obj: {}))


@pytest.mark.parametrize(("form", "protobuf"), [("table", False), ("metadata", False), ("metadata", True)])
def test_an_event_is_written_once_for_all_watchers_that_want_the_same_form(
    form: str, protobuf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, original = list[Notice](), Form._event

    def write(self: Form, notice: Notice, columns: bool) -> bytes:
        written.append(notice)
        return original(self, notice, columns)

    monkeypatch.setattr(Form, "_event", write)
    notice = change()
    watchers = [watched(form, protobuf=protobuf) for _ in range(1000)]
    assert len({watcher.event(notice) for watcher in watchers}) == 1 and len(written) == 1
    for watcher in watchers:
        watcher.event(change("b"))
    again = change()
    assert len({watcher.event(again) for watcher in watchers}) == 1


def test_watchers_that_want_different_forms_are_not_told_the_same() -> None:
    notice = change()
    told = [msgspec.json.decode(watched("table", include).event(notice))["object"] for include in ("Object", "None")]
    assert told[0]["rows"][0]["object"]["kind"] == "ConfigMap" and told[1]["rows"][0]["object"] is None
    late = watched("table")
    first, second = (msgspec.json.decode(late.event(notice))["object"] for _ in range(2))
    assert first["columnDefinitions"] and not second["columnDefinitions"]
    deleted = Notice("DELETED", notice.entry)
    assert msgspec.json.decode(watched("table").event(deleted))["type"] == "DELETED"
    other = Notice("MODIFIED", Entry(notice.entry.key, 3, notice.entry.data.replace(b'"2"', b'"3"'), lambda obj: {}))
    assert msgspec.json.decode(watched("table").event(other))["object"]["metadata"]["resourceVersion"] == "3"


def test_what_a_client_asks_to_include_is_no_part_of_what_is_kept() -> None:
    notice = change()
    shown = {watched("table", word).event(notice) for word in ("None", "x" * 60_000, "y" * 60_000)}
    assert len(shown) == 1 and msgspec.json.decode(shown.pop())["object"]["rows"][0]["object"] is None
    assert {watched("table", word).include for word in ("x" * 60_000, "None", "Object", "Metadata", "")} == {
        *("None", "Object", "Metadata")
    }


def test_few_events_are_kept_and_only_for_a_moment() -> None:
    events, entry = SharedEvents(), change().entry
    assert events.get(entry, "a", 1.0, lambda: b"1") == b"1"
    assert events.get(entry, "a", 1.5, lambda: b"2") == b"1"
    assert events.get(entry, "a", 2.0, lambda: b"3") == b"3"
    assert events.get(entry, "a", 0.5, lambda: b"4") == b"4"
    for number in range(10 * MOST_EVENTS):
        events.get(entry, number, 1.0, lambda: b"x")
    assert len(events._kept) == MOST_EVENTS and events._size == MOST_EVENTS * (len(entry.data) + 1)
    for number in range(10):
        events.get(entry, f"large {number}", 1.0, lambda: bytes(MOST_BYTES // 3 + 1))
    assert len(events._kept) == 2
    assert events.get(entry, "larger", 1.0, lambda: bytes(MOST_BYTES + 1)) == bytes(MOST_BYTES + 1)
    assert not events._kept and events._size == 0


class Large(bytes):
    """An object's bytes; `held` counts those that somebody holds."""

    held = 0

    def __init__(self, size: int) -> None:
        Large.held += 1

    def __del__(self) -> None:
        Large.held -= 1


def large_changes(events: SharedEvents, count: int, moment: float) -> None:
    """Have small events of large objects written. Nothing else holds such objects then."""
    remembering.forget_all()
    for revision in range(count):
        entry = Entry("/registry/configmaps/default/a", revision, Large(MOST_BYTES // 8), lambda obj: {})
        assert events.get(entry, "table", moment, lambda: b"row") == b"row"


def test_the_objects_of_kept_events_count_among_their_bytes() -> None:
    events = SharedEvents()
    large_changes(events, 100, 1.0)
    assert Large.held == len(events._kept) == 7, "eight of them and their events are larger than MOST_BYTES"


def test_events_are_dropped_by_age_and_with_what_is_forgotten_after_a_load() -> None:
    events = SharedEvents()
    large_changes(events, 5, 1.0)
    assert Large.held == 5
    assert events.get(change().entry, "table", 1.0 + SECONDS, lambda: b"row") == b"row"
    assert Large.held == 0 and len(events._kept) == 1
    large_changes(events, 5, 3.0)
    remembering.forget_all()
    assert Large.held == 0 and not events._kept and events._size == 0


def test_events_of_equal_objects_and_revisions_are_not_taken_for_each_other() -> None:
    """The form of one state depends on its version too."""
    events, first = SharedEvents(), change().entry
    assert events.get(first, "table", 1.0, lambda: b"v1") == b"v1"
    other = first.shown_as(first.data.replace(b'"v1"', b'"v2"'))
    assert events.get(other, "table", 1.0, lambda: b"v2") == b"v2"
