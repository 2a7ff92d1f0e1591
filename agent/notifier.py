"""Observer list: passes changes to the subscribed functions, so that the source does not depend on them."""

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
