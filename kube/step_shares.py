"""Shares of the event loop's time that the owners of limited work have (kube/step_limit.py)."""

from __future__ import annotations

import time

from kube.counters import Counter
from kube.fair_steps import FairSteps
from kube.rate import Rate

LONG = Counter("wherry_long_steps_seconds", "CPU time for which long steps of tasks held the event loop", "work")
STOPPED = Counter(
    "wherry_stopped_steps", "Number of steps that were stopped for holding the event loop too long", "work"
)
EVERY = Counter("wherry_steps_seconds", "CPU time of all steps of tasks whose time is charged to an owner", "work")


class Shares:
    """Limit of each step of one kind of work, and of the total time of long steps of each owner, or of all its steps.

    `work` names the kind in metrics; a step has `seconds` of CPU time. Charged steps of an owner may take that much at
    once, and then `share` of all time. Whose step was stopped waits for `pause` seconds. With `fair` all steps are counted,
    and wait for each other; they are charged if `every_step` is true, too.
    """

    def __init__(
        self,
        work: str,
        seconds: float,
        share: float,
        pause: float,
        fair: FairSteps | None = None,
        *,
        every_step: bool = False,
        shared_with: Shares | None = None,
    ) -> None:
        """`shared_with` is other work of the same owners, whose time is counted together with that of this."""
        self.seconds, self.fair, self.every_step, self._work = seconds, fair, every_step, work
        self._rate: Rate = Rate(seconds, share, pause) if shared_with is None else shared_with._rate
        self._whole, self._pause = seconds + share * pause, pause
        self._stopped: dict[str, float] = {}
        """Time of each owner's last step that was stopped, the oldest first; older ones than `pause` are removed."""
        LONG.add(work, amount=0)
        STOPPED.add(work, amount=0)
        if fair is not None:
            EVERY.add(work, amount=0)

    def delay(self, owner: str) -> float:
        """Return the seconds for which an owner's work is to wait before it continues."""
        return self._rate.delay(owner, time.monotonic()) if self._rate else 0.0

    def charge(self, owner: str, seconds: float, *, stopped: bool, every_step: bool = False) -> None:
        """Note what a long step has taken, and whether it was stopped; with `every_step` its end charges its time."""
        LONG.add(self._work, amount=seconds)
        if stopped:
            STOPPED.add(self._work)
            self._note_stop(owner, time.monotonic())
        if stopped or not every_step:
            self._rate.charge(owner, self._whole if stopped else seconds, time.monotonic())

    def _note_stop(self, owner: str, now: float) -> None:
        self._stopped.pop(owner, None)
        self._stopped[owner] = now
        while self._stopped[oldest := next(iter(self._stopped))] < now - self._pause:
            del self._stopped[oldest]

    def has_stopped_since(self, owner: str, began: float) -> bool:
        """Return whether a step of the owner was stopped after a time of the monotonic clock."""
        return bool(self._stopped) and self._stopped.get(owner, began) > began

    def count(self, owner: str, seconds: float, *, every_step: bool) -> None:
        """Count the time of a step that has ended, however short it was; with `every_step` charge it."""
        if self.fair is not None:
            self.fair.count(seconds)
        self.add(owner, seconds, every_step=every_step)

    def add(self, owner: str, seconds: float, *, every_step: bool) -> None:
        """Add the time of steps that `fair` has counted; with `every_step` charge it."""
        EVERY.add(self._work, amount=seconds)
        if every_step and owner:
            self._rate.charge(owner, seconds, time.monotonic())
