"""Passes a change on to whoever subscribed, so that its source need not know them."""

from __future__ import annotations

from collections.abc import Callable


class Notifier:
    """Calls every subscriber on each `notify`."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        self._subscribers.append(subscriber)

    def notify(self) -> None:
        for subscriber in self._subscribers:
            subscriber()
