"""Decisions in the journal: events with their grounds, events that are left out, and topics that change."""

from __future__ import annotations

from typing import cast

from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.decisions import MOST_TOPICS, Decisions
from kube.events import EventRecorder
from kube.journal import Journal, kind_key
from tests.support.clock import FakeClock

POD = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="web", namespace="default", uid="1"))


def texts(journal: Journal, name: str = "web") -> list[str]:
    return [entry.text for entry in journal.page([kind_key("", "Pod")], "default", name).entries]


def test_an_event_has_its_grounds_in_the_journal_alone() -> None:
    clock = FakeClock()
    journal = Journal(clock)
    recorder = EventRecorder(cast(Client, None), "kubelet", clock=clock, journal=journal, left_out=("Unhealthy",))
    recorder.event(POD, "Normal", "Killing", "Stopping container app", grounds="grace period of 30 s")
    recorder.event(POD, "Warning", "Unhealthy", "probe failed")
    assert texts(journal) == ["Killing: Stopping container app (grace period of 30 s)"]
    queued = [each for queue in recorder._queues for each in iter(queue.take, None)]
    assert [each.event.message for each in queued] == ["Stopping container app", "probe failed"]


def test_a_decision_on_a_topic_is_recorded_when_it_changes() -> None:
    journal = Journal(FakeClock())
    decisions = Decisions(journal, "controller")
    for text in ("waits for a", "waits for a", "waits for b", "", "waits for b"):
        decisions.changed(POD, "rollout", text)
    decisions.changed(POD, "size", "waits for b")
    assert texts(journal) == ["waits for a", "waits for b", "waits for b", "waits for b"]


def test_the_last_decisions_of_a_limited_number_of_objects_are_kept() -> None:
    journal = Journal(FakeClock())
    decisions = Decisions(journal, "controller")
    for number in range(MOST_TOPICS + 10):
        about = core_v1.ObjectReference(kind="Pod", namespace="default", name=f"p{number}")
        decisions.changed(about, "rollout", "waits")
    assert len(decisions._last) == MOST_TOPICS


def test_nothing_is_kept_without_a_journal() -> None:
    decisions = Decisions(None, "controller")
    decisions.changed(POD, "rollout", "waits")
    decisions.record(POD, "text")
    assert not decisions._last
