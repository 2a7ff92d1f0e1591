"""Image pulls of a simulated pod: slow ones, failed ones with their back-off, and what the status shows of them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agent.backoff import BackOff
from agent.status.container import Waiting
from wherry.testing.nodes.container import AnyContainer
from wherry.testing.nodes.scripts import PullError
from wherry.testing.nodes.stepped import Happened

BACK_OFF = (10.0, 300.0)
SHOWN_SECONDS = 1.0
"""Time for which a failed pull shows its own reason, before ImagePullBackOff."""


class PullFailure(msgspec.Struct, frozen=True):
    """A pull that has failed at a time."""

    at: float
    image: str
    error: PullError

    def waiting(self, now: float) -> Waiting:
        """Return the reason for which the container waits."""
        error = self.error
        if now < self.at + SHOWN_SECONDS:
            return Waiting(error.reason, error.message)
        text = f'Back-off pulling image "{self.image}": {error.reason}: {error.message}'
        return Waiting("ImagePullBackOff", text)


class Pulls:
    """The pulls of one pod's containers, by the names of these. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self.back_off = BackOff(*BACK_OFF)
        self.failed: dict[str, PullFailure] = {}
        self.retry_at: dict[str, float] = {}
        """Times at which containers are started next."""

    def begin(self, name: str, seconds: float, now: float) -> None:
        """Pull an image for so many seconds."""
        self.retry_at[name] = now + seconds

    def fail(self, container: AnyContainer, error: PullError, now: float) -> Happened:
        """Let a pull fail; return its event. The container is started again after the back-off."""
        name, image = container.name, container.image or ""
        self.retry_at[name] = now + self.back_off.next(image, now)
        self.failed[name] = PullFailure(now, image, error)
        return Happened("Warning", "Failed", f'Failed to pull image "{image}": {error.message}', name)

    def succeeded(self, name: str) -> None:
        """Forget the pulls of a container that has started."""
        self.retry_at.pop(name, None)
        self.failed.pop(name, None)

    def waiting(self, now: float) -> dict[str, Waiting]:
        """Return the reasons of the containers whose pull has failed."""
        return {name: failure.waiting(now) for name, failure in self.failed.items()}

    def changes(self) -> Iterator[float]:
        """Yield the times at which these reasons change by themselves."""
        for failure in self.failed.values():
            yield failure.at + SHOWN_SECONDS
