"""The journal of decisions: entries of an object in order, within the limit."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube import journal as module
from kube.journal import (
    DENIED,
    DENIED_PART,
    ENTRY_BYTES,
    LONGEST_NAME,
    LONGEST_TEXT,
    MIRROR_OF,
    PAGE_BYTES,
    Entry,
    Journal,
    kind_key,
    of_present,
    resource_key,
)
from kube.uid import new_uid
from tests.support.clock import FakeClock


def texts(journal: Journal, namespace: str, name: str, key: str = "Pod") -> list[str]:
    """Return the texts of an object's entries, the oldest first."""
    return [entry.text for _, entry in journal.about(key, namespace, name)][::-1]


def test_equal_keys_of_kinds_are_one_text() -> None:
    """Each object with entries has one; clients write the names of unknown resources, so those not used lately are not kept."""
    for made in (kind_key, resource_key):
        first = made("example.com", "things")
        assert made("example.com", "things") is first
        assert made("x" * 100_000, "things") == made("x" * 100_000, "things")
    assert resource_key("x" * 100_000, "a") is not resource_key("x" * 100_000, "a")


def test_the_entries_of_an_object_come_in_order_and_without_those_of_others() -> None:
    journal = Journal(FakeClock())
    journal.record("Pod", "a", "web", "scheduler", "first", uid="1", revision=3, details={"node": "n"})
    journal.record("Pod", "a", "other", "scheduler", "not this one")
    journal.record("Service", "a", "web", "controller", "not this kind")
    journal.record("Pod", "b", "web", "scheduler", "not this namespace")
    journal.record("Pod", "a", "web", "jane", "second")
    (_, second), (_, first) = journal.about("Pod", "a", "web")
    assert (first.actor, first.text, first.uid, first.revision, first.details) == (
        *("scheduler", "first", "1", 3),
        {"node": "n"},
    )
    assert (second.actor, second.text) == ("jane", "second")


async def test_a_namespace_with_many_entries_loses_its_own_oldest_ones_only() -> None:
    clock = FakeClock()
    journal = Journal(clock, limit=50 * ENTRY_BYTES + 4_000)
    began = journal.complete_since("quiet")
    journal.record("Pod", "quiet", "web", "jane", "kept")
    for number in range(1000):
        await clock.advance(1)
        journal.record("Pod", "loud", "web", "controller", str(number))
    assert texts(journal, "quiet", "web") == ["kept"]
    kept = texts(journal, "loud", "web")
    assert kept[-1] == "999" and 0 < len(kept) < 50
    assert kept == [str(number) for number in range(1000 - len(kept), 1000)]
    assert journal.complete_since("quiet") == began
    assert journal.complete_since("loud") > began


def test_long_texts_and_names_are_cut() -> None:
    journal = Journal(FakeClock())
    journal.record("Pod", "n" * 1000, "web", "j" * 1000, "\N{PILE OF POO}" * 100_000, uid="u" * 1000)
    ((_, entry),) = journal.about("Pod", "n" * LONGEST_NAME + "...", "web")
    assert len(entry.text) < LONGEST_TEXT + 10 and len(entry.actor) == len(entry.uid) < LONGEST_NAME + 10


def test_an_entry_with_characters_that_utf_8_does_not_have_is_kept_without_them() -> None:
    journal = Journal(FakeClock())
    journal.record("Pod", "a", "web", "jane\udcff", "text\ud800", uid="1", revision=3, details={"node": "\ud800"})
    ((_, entry),) = journal.about("Pod", "a", "web")
    assert (entry.actor, entry.text, entry.uid, entry.revision, entry.details) == (
        "jane\ufffd",
        "text\ufffd",
        "1",
        3,
        None,
    )


def memory(journal: Journal) -> int:
    """Return the memory of what a journal holds, without that of dictionaries and of the namespaces' queues."""
    total = 0
    for namespace, ring in journal._rings.items():
        total += sys.getsizeof(namespace)
        for about, known in ring.objects.items():
            total += sum(map(sys.getsizeof, (*about, about, known, known.entries, *known.entries)))
    return total


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdefgh"),
            st.sampled_from(["web", "x" * 300, "\N{PILE OF POO}" * 200]),
            st.integers(0, 3000),
            st.booleans(),
        ),
        max_size=200,
    ),
    st.integers(1, 60),
)
def test_all_entries_together_stay_within_the_limit(entries: list[tuple[str, str, int, bool]], places: int) -> None:
    limit = 10_000 + places * 2000
    journal = Journal(FakeClock(), limit=limit)
    for namespace, name, size, detailed in entries:
        details = {"nodes": {"reason": ["node"] * (size // 100)}} if detailed else None
        journal.record("Pod", namespace, name, name, "\N{PILE OF POO}" * size, details=details)
        assert memory(journal) < journal.bytes <= limit
    for ring in journal._rings.values():
        assert len(ring.order) == sum(len(each.entries) for each in ring.objects.values())
        assert all(each.entries for each in ring.objects.values())
    assert journal.bytes == sum(ring.bytes for ring in journal._rings.values())


def test_a_journal_is_empty_again_when_all_its_entries_are_dropped() -> None:
    journal = Journal(FakeClock(), limit=100_000)
    for number in range(5000):
        journal.record("Pod", f"namespace-{number}", "web", "jane", "x")
    assert len(journal._rings) < 100 and journal.bytes <= 100_000
    assert journal.complete_since("namespace-0") >= journal.began


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ([("old", 90.5), ("", 90.6), ("new", 101.0), ("", 101.1)], [101.0, 101.1]),
        ([("old", 100.1), ("", 100.2), ("new", 100.3), ("", 100.4)], [100.3, 100.4]),
        ([("", 100.2), ("", 101.0)], [101.0]),
        ([("", 99.9), ("new", 99.95)], [99.95]),
        ([("web", 99.0), ("web", 102.0)], [102.0]),
        ([("old", 102.0), ("other", 103.0)], []),
    ],
)
def test_entries_of_former_objects_of_a_name_are_not_those_of_the_present_one(
    entries: list[tuple[str, float]], kept: list[float]
) -> None:
    metadata = {"uid": "new", "name": "web", "creationTimestamp": "1970-01-01T00:01:40Z"}
    found = of_present([Entry(time, "jane", "x", uid) for uid, time in entries], metadata)
    assert [each.time for each in found] == kept


def test_an_agents_entries_about_a_static_pod_are_those_of_its_object() -> None:
    metadata = {
        "uid": "a",
        "name": "web",
        "creationTimestamp": "1970-01-01T00:01:40Z",
        "annotations": {MIRROR_OF: "own"},
    }
    found = of_present([Entry(99.0, "kubelet", "x", "own"), Entry(99.5, "kubelet", "x", "former")], metadata)
    assert [each.uid for each in found] == ["own"]


def test_the_annotation_of_static_pods_does_not_make_a_former_pods_entries_those_of_the_present_one() -> None:
    former, present = new_uid(), new_uid()
    metadata = {
        "uid": present,
        "name": "web",
        "creationTimestamp": "1970-01-01T00:01:40Z",
        "annotations": {MIRROR_OF: former},
    }
    assert of_present([Entry(99.0, "jane", "x", former)], metadata) == []


def many_names(journal: Journal, number: int) -> None:
    journal.record("Pod", "default", f"name-{number}", f"user-{number}", f"created with {number}", uid=str(number))


def many_namespaces(journal: Journal, number: int) -> None:
    journal.record("Pod", f"namespace-{number}", "web", f"user-{number}", "created")


def one_object(journal: Journal, number: int) -> None:
    journal.record("Pod", "default", "web", "jane", f"updated {number}", revision=1 << 40 | number)


def many_details(journal: Journal, number: int) -> None:
    nodes = {f"reason {number} {each}": [f"node-{number}-{each}"] * 3 for each in range(number % 20)}
    journal.record("Pod", "default", f"name-{number % 50}", "scheduler", f"no node {number}", details={"nodes": nodes})


def texts_that_are_read(journal: Journal, number: int) -> None:
    name = f"name-{number % 100}"
    journal.record("Pod", "default", name, "jane", f"{number} " + "\N{PILE OF POO}é" * 400)
    msgspec.json.encode(journal.page(["Pod"], "default", name))


@pytest.mark.parametrize("record", [many_names, many_namespaces, one_object, many_details, texts_that_are_read])
def test_the_memory_that_is_counted_is_what_the_process_has_for_it(record: Callable[[Journal, int], None]) -> None:
    limit = 1 << 20
    tracemalloc.start()
    try:
        journal = Journal(FakeClock(), limit=limit)
        for number in range(12_000):
            record(journal, number)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert limit * 0.9 < journal.bytes <= limit
    assert used < limit * 1.15


def test_details_of_any_size_take_a_limited_place() -> None:
    journal = Journal(FakeClock())
    journal.record("Pod", "a", "web", "scheduler", "x", details={"nodes": {"reason": ["n" * 100] * 100_000}})
    ((_, entry),) = journal.about("Pod", "a", "web")
    assert entry.text == "x" and entry.details is None and journal.bytes < 10_000


async def test_a_page_goes_through_no_more_entries_than_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    journal = Journal(clock)
    for number in range(30_000):
        if number % 2 == 0:
            await clock.advance(1)
        journal.record("Pod" if number % 2 else "/pods", "a", "web", "jane", str(number))
    shown, counted = module._shown, list[int]()
    monkeypatch.setattr(module, "_shown", lambda *args: counted.append(1) or shown(*args))
    page = journal.page(["Pod", "/pods"], "a", "web")
    assert [int(entry.text) for entry in page.entries] == list(range(30_000 - len(page.entries), 30_000))
    assert len(counted) == len(page.entries) + 1 < 5000


@pytest.mark.parametrize("character", ["x", "\x01", "\x9b", "\ud800", '"', "\N{PILE OF POO}"])
def test_a_page_can_be_encoded_and_is_limited_whatever_its_texts_contain(character: str) -> None:
    journal = Journal(FakeClock())
    for _ in range(3000):
        journal.record("Pod", "a", "web", "jane", character * 3000, details={character: character})
    data = msgspec.json.encode(journal.page(["Pod"], "a", "web"))
    assert PAGE_BYTES // 10 < len(data) < 2 * PAGE_BYTES
    assert msgspec.json.decode(data)["completeSince"] >= journal.began


def test_an_objects_name_is_kept_once_however_many_entries_it_has() -> None:
    journal = Journal(FakeClock())
    for _ in range(100):
        journal.record("Pod", "a", "".join(["w"] * LONGEST_NAME), "jane", "x")
    (ring,) = journal._rings.values()
    ((key, name),) = ring.objects
    assert len(ring.order) == 100 and all(each.about[0] is key and each.about[1] is name for each in ring.order)


@pytest.mark.parametrize("name", ["\N{PILE OF POO}" * LONGEST_NAME, "x" * LONGEST_NAME, "web"])
def test_entries_of_one_object_take_no_more_memory_than_is_counted(name: str) -> None:
    tracemalloc.start()
    try:
        journal, before = Journal(FakeClock(), limit=3_000_000), tracemalloc.get_traced_memory()[0]
        for number in range(20_000):
            journal.record(
                f"Pod{number % 7}", DENIED if number % 2 else "a", "".join([*name]), "eve", f"{number} {name}"
            )
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < 1.05 * journal.bytes, taken / journal.bytes


def test_denied_requests_have_a_small_part_of_the_memory_and_displace_nobody() -> None:
    journal = Journal(FakeClock(), limit=1_000_000)
    for number in range(20):
        journal.record("Pod", f"namespace-{number}", "web", "jane", "x")
    for number in range(5000):
        journal.record("Pod", DENIED, f"web-{number}", "eve", "x" * 100)
    assert journal._rings[DENIED].bytes <= 1_000_000 / DENIED_PART
    assert all(texts(journal, f"namespace-{number}", "web") == ["x"] for number in range(20))
    assert texts(journal, DENIED, "web-4999") and journal.bytes == sum(ring.bytes for ring in journal._rings.values())
