"""Events of a watch that its reader has not received."""

from __future__ import annotations

from dataclasses import dataclass, field

from control.storage.store import Event

BACKLOG, BACKLOG_BYTES = 10_000, 8 << 20
"""Queued events, or bytes of their values, from which the stream is no longer read; etcd then queues them."""


@dataclass(slots=True)
class EventQueue:
    """Events, and the bytes of their values."""

    events: list[Event] = field(default_factory=list)
    size: int = 0

    @property
    def full(self) -> bool:
        """Return whether it has to be read before more is queued."""
        return len(self.events) > BACKLOG or self.size > BACKLOG_BYTES

    def append(self, event: Event) -> int:
        """Append an event; return the bytes of its values."""
        size = len(event.value) + (len(event.previous.value) if event.previous else 0)
        self.events.append(event)
        self.size += size
        return size

    def take(self) -> list[Event]:
        """Remove and return the events."""
        taken, self.events, self.size = self.events, [], 0
        return taken

    def move_from(self, other: EventQueue) -> None:
        """Append all events of another queue, which is empty then."""
        self.size += other.size
        self.events += other.take()
