from __future__ import annotations

import asyncio
import threading
import weakref
from datetime import datetime
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.event_loop import offload
from control.http.negotiate import MediaTypeOptions
from control.http.yaml_answer import dump_yaml
from control.registry.strategies import strategy_for
from control.server.forms import Form
from control.server.shared_events import MOST_BYTES, MOST_EVENTS, SECONDS, SharedEvents
from control.storage.entry import Entry
from control.storage.watcher import WatchEvent
from kube import bounded_cache, resources
from kube.schema import wire
from tests.support.clock import FakeClock


async def test_ages_in_a_watched_table_count_to_when_the_row_is_made() -> None:
    clock, configmaps = FakeClock(), resources.by_path("", "v1", "configmaps")
    assert configmaps is not None
    form = Form(MediaTypeOptions(form="table"), strategy_for(configmaps), "None", clock)
    data = b'{"kind":"ConfigMap","metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:10Z"}}'
    watch_event = WatchEvent("ADDED", Entry("/registry/configmaps/default/a", 2, data, lambda obj: {}))
    await clock.advance(15)
    first = msgspec.json.decode(form.event(watch_event))
    await clock.advance(60)
    second = msgspec.json.decode(form.event(watch_event))
    assert [event["object"]["rows"][0]["cells"] for event in (first, second)] == [["a", 0, "5s"], ["a", 0, "65s"]]


ODD_JOB = {
    "kind": "Job",
    "apiVersion": "batch/v1",
    "metadata": {
        "name": "odd",
        "creationTimestamp": "2020-02-31T00:00:00Z",
        "managedFields": [{"time": "0000-01-01T00:00:00Z"}],
    },
    "spec": {
        "activeDeadlineSeconds": 2**70,
        "template": {"spec": {"containers": [{"name": "c", "args": ["a", 1, "b"]}]}},
    },
    "status": {"startTime": "２０２０-01-01T00:00:00Z", "succeeded": 1, "conditions": [{"type": 1, "status": "True"}]},
}
"""Stored by an older version, which accepted such times and numbers, or changed by hand in etcd."""


def form_of(wanted: MediaTypeOptions) -> tuple[Form, list[Entry]]:
    jobs = resources.by_path("batch", "v1", "jobs")
    assert jobs is not None
    plain = ODD_JOB | {"metadata": {"name": "plain"}, "status": {"startTime": "2026-01-01T00:00:00Z"}, "spec": {}}
    entries = [Entry("", n, msgspec.json.encode(obj), lambda obj: {}) for n, obj in enumerate((ODD_JOB, plain))]
    return Form(wanted, strategy_for(jobs), "None", FakeClock()), entries


def test_an_object_with_values_that_protobuf_cannot_carry_does_not_fail_a_list_or_watch() -> None:
    form, entries = form_of(MediaTypeOptions(protobuf=True))
    _, kind, message = wire.open_envelope(form.list(entries, {"resourceVersion": "7"}))
    odd, plain = wire.decode_list(message, "batch_v1", "Job")["items"]
    assert kind == "JobList" and plain["metadata"] == {"name": "plain"}
    assert odd["metadata"] == {"name": "odd", "managedFields": [{}]}
    assert odd["spec"]["template"]["spec"]["containers"] == [{"name": "c", "args": ["a", "b"]}]
    assert odd["status"] == {"succeeded": 1, "conditions": [{"status": "True"}]}
    assert odd["spec"]["activeDeadlineSeconds"] == 2**63 - 1
    assert b"odd" in form.event(WatchEvent("ADDED", entries[0])) and b"odd" in form.entry(entries[0])
    partial, _ = form_of(MediaTypeOptions(form="metadata", protobuf=True))
    assert b"odd" in partial.list(entries, {}) and b"odd" in partial.event(WatchEvent("ADDED", entries[0]))


def test_an_object_with_values_that_no_column_can_show_does_not_fail_a_table() -> None:
    form, entries = form_of(MediaTypeOptions(form="table"))
    rows = msgspec.json.decode(form.list(entries, {}))["rows"]
    assert [row["cells"][:5] for row in rows] == [
        ["odd", "Running", "1/1", "<unknown>", "<unknown>"],
        ["plain", "Running", "0/1", "0s", "<unknown>"],
    ]
    damaged = ODD_JOB | {"status": {"startTime": 5}}
    entry = Entry("", 3, msgspec.json.encode(damaged), lambda obj: {})
    rows = msgspec.json.decode(form.list([entry, entries[1]], {}))["rows"]
    assert rows[0]["cells"] == ["odd", *["<unknown>"] * 7] and rows[1]["cells"][0] == "plain"


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
def test_a_collection_written_in_pieces_equals_the_one_written_as_a_whole(
    kind: Literal["object", "table", "metadata"], yaml: bool, pretty: bool, contents: list[dict[str, Any]], cut: int
) -> None:
    form = Form(MediaTypeOptions(form=kind, yaml=yaml), STRATEGY, "Object", CLOCK, pretty=pretty)
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
    Form(MediaTypeOptions(form="table"), STRATEGY, "Object", CLOCK).list(entries, SELECTED)
    assert len(most) == 50 and max(most) <= 2


def watched(form: str, include: str = "Object", protobuf: bool = False) -> Form:
    return Form(MediaTypeOptions(form=form, protobuf=protobuf), STRATEGY, include, CLOCK)  # type: ignore[arg-type]


CONFIGMAPS = resources.by_path("", "v1", "configmaps")
assert CONFIGMAPS is not None
STRATEGY, CLOCK = strategy_for(CONFIGMAPS), FakeClock()


def change(name: str = "a") -> WatchEvent:
    data = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%b","resourceVersion":"2"}}' % name.encode()
    return WatchEvent("MODIFIED", Entry(f"/registry/configmaps/default/{name}", 2, data, lambda obj: {}))


@pytest.mark.parametrize(("form", "protobuf"), [("table", False), ("metadata", False), ("metadata", True)])
def test_an_event_is_written_once_for_all_watchers_that_want_the_same_form(
    form: str, protobuf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, original = list[WatchEvent](), Form._event

    def write(self: Form, watch_event: WatchEvent, *, columns: bool) -> bytes:
        written.append(watch_event)
        return original(self, watch_event, columns=columns)

    monkeypatch.setattr(Form, "_event", write)
    watch_event = change()
    watchers = [watched(form, protobuf=protobuf) for _ in range(1000)]
    assert len({watcher.event(watch_event) for watcher in watchers}) == 1 and len(written) == 1
    for watcher in watchers:
        watcher.event(change("b"))
    again = change()
    assert len({watcher.event(again) for watcher in watchers}) == 1


def test_watchers_of_different_forms_get_different_events() -> None:
    watch_event = change()
    reported = [
        msgspec.json.decode(watched("table", include).event(watch_event))["object"] for include in ("Object", "None")
    ]
    assert reported[0]["rows"][0]["object"]["kind"] == "ConfigMap" and reported[1]["rows"][0]["object"] is None
    late = watched("table")
    first, second = (msgspec.json.decode(late.event(watch_event))["object"] for _ in range(2))
    assert first["columnDefinitions"] and not second["columnDefinitions"]
    deleted = WatchEvent("DELETED", watch_event.entry)
    assert msgspec.json.decode(watched("table").event(deleted))["type"] == "DELETED"
    other = WatchEvent(
        "MODIFIED", Entry(watch_event.entry.key, 3, watch_event.entry.data.replace(b'"2"', b'"3"'), lambda obj: {})
    )
    assert msgspec.json.decode(watched("table").event(other))["object"]["metadata"]["resourceVersion"] == "3"


def test_include_object_is_not_part_of_the_cached_rows() -> None:
    watch_event = change()
    shown = {watched("table", word).event(watch_event) for word in ("None", "x" * 60_000, "y" * 60_000)}
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
    bounded_cache.forget_all()
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
    bounded_cache.forget_all()
    assert Large.held == 0 and not events._kept and events._size == 0


def test_events_of_equal_objects_and_revisions_are_not_taken_for_each_other() -> None:
    """The form of one state depends on its version too."""
    events, first = SharedEvents(), change().entry
    assert events.get(first, "table", 1.0, lambda: b"v1") == b"v1"
    other = first.in_version(first.data.replace(b'"v1"', b'"v2"'))
    assert events.get(other, "table", 1.0, lambda: b"v2") == b"v2"


@pytest.mark.parametrize("protobuf", [False, True])
async def test_an_event_of_a_large_object_is_written_beside_the_loop_once_for_all_watchers(
    monkeypatch: pytest.MonkeyPatch, protobuf: bool
) -> None:
    threads: list[bool] = []
    write = Form._event

    def noted(self: Form, watch_event: WatchEvent, *, columns: bool) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        return write(self, watch_event, columns=columns)

    monkeypatch.setattr(Form, "_event", noted)
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"a": "x" * offload.LARGE}}
    entry = Entry("/registry/configmaps/default/a", 2, msgspec.json.encode(obj), lambda obj: {})
    wanted = MediaTypeOptions(form="object", protobuf=True) if protobuf else MediaTypeOptions(form="table")
    forms = [Form(wanted, STRATEGY, "None", CLOCK) for _ in range(20)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(form.written_event("jane", WatchEvent("ADDED", entry))) for form in forms]
    assert len({task.result() for task in tasks}) == 1
    assert threads == [False]
    small = Entry("", 2, msgspec.json.encode(obj | {"data": {}}), lambda obj: {})
    await forms[0].written_event("jane", WatchEvent("ADDED", small))
    assert False not in threads[1:]
