"""The journal of decisions: entries of an object in order, within the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube.journal import ENTRY_BYTES, MOST_TEXT, Journal
from tests.support.clock import FakeClock


def texts(journal: Journal, namespace: str, name: str, kind: str = "Pod") -> list[str]:
    return [entry.text for entry in journal.about(kind, namespace, name)]


def test_the_entries_of_an_object_come_in_order_and_without_those_of_others() -> None:
    journal = Journal(FakeClock())
    journal.record("Pod", "a", "web", "scheduler", "first", uid="1", revision=3, details={"node": "n"})
    journal.record("Pod", "a", "other", "scheduler", "not this one")
    journal.record("Service", "a", "web", "controller", "not this kind")
    journal.record("Pod", "b", "web", "scheduler", "not this namespace")
    journal.record("Pod", "a", "web", "jane", "second")
    first, second = journal.about("Pod", "a", "web")
    assert (first.actor, first.text, first.uid, first.revision, first.details) == (
        *("scheduler", "first", "1", 3),
        {"node": "n"},
    )
    assert (second.actor, second.text) == ("jane", "second")


async def test_a_namespace_with_many_entries_loses_its_own_oldest_ones_only() -> None:
    clock = FakeClock()
    journal = Journal(clock, limit=50 * ENTRY_BYTES)
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


def test_a_long_text_is_cut() -> None:
    journal = Journal(FakeClock())
    journal.record("Pod", "a", "web", "jane", "x" * 100_000)
    assert len(texts(journal, "a", "web")[0]) < MOST_TEXT + 10


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3000)), max_size=300), st.integers(1, 60))
def test_all_entries_together_stay_within_the_limit(entries: list[tuple[str, int]], places: int) -> None:
    limit = 10_000 + places * ENTRY_BYTES
    journal = Journal(FakeClock(), limit=limit)
    for namespace, size in entries:
        journal.record("Pod", namespace, "web", "jane", "x", size=size)
        assert journal.bytes <= limit
    kept = sum(len(texts(journal, namespace, "web")) for namespace in "abcdefgh")
    assert kept <= len(entries) and (kept > 0 or not entries)
