"""The journal of decisions: entries of an object in order, within the limit."""

from __future__ import annotations

import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.journal import (
    DENIED,
    DENIED_PART,
    ENTRY_BYTES,
    LONGEST_NAME,
    LONGEST_TEXT,
    Entry,
    Journal,
    of_present,
)
from tests.support.clock import FakeClock


def texts(journal: Journal, namespace: str, name: str, key: str = "Pod") -> list[str]:
    """Return the texts of an object's entries, the oldest first."""
    return [entry.text for _, entry in journal.about(key, namespace, name)][::-1]


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
    assert (entry.actor, entry.text, entry.uid, entry.revision, entry.details) == ("jane?", "text?", "1", 3, None)


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
