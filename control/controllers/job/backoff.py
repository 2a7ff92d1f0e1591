"""Back-off before a Job's failed pod is replaced: for all pods together, or for each index. Pure.

Upstream: pkg/controller/job/backoff_utils.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from control.controllers.job.tally import Tally, ended_at, failures_after, finished_at, latest_failures
from kube.api import batch_v1, core_v1

FIRST_BACKOFF, LAST_BACKOFF = 10.0, 600.0
"""Seconds before a failed pod is replaced, doubling with each failure since the last success."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Number of failures since the last success, and the time of the latest one."""

    failures: int = 0
    last: datetime | None = None

    def wait(self, now: datetime) -> float:
        """Return the seconds until pods may be created again."""
        if not self.failures or self.last is None:
            return 0.0
        return max(0.0, self.delay - (now - self.last).total_seconds())

    @property
    def delay(self) -> float:
        """Seconds between the latest failure and the next pods."""
        return min(FIRST_BACKOFF * 2.0 ** (min(self.failures, 20) - 1), LAST_BACKOFF) if self.failures else 0.0


def backoff_after(backoff: Backoff, job: batch_v1.Job, counted: Tally, now: datetime) -> Backoff:
    """Return the back-off with the failures and successes that are seen for the first time."""
    noted = len(job.status.uncounted_terminated_pods.succeeded) if job.status.uncounted_terminated_pods else 0
    failures, last = backoff.failures, backoff.last
    if counted.all_succeeded > (job.status.succeeded or 0) + noted:
        failures, last = 0, None
    for pod in counted.fresh_failures:
        ended = finished_at(pod) or now
        failures, last = failures + 1, max(last or ended, ended)
    return Backoff(failures, last)


def index_waits(job: batch_v1.Job, pods: Sequence[core_v1.Pod], now: datetime) -> dict[int, float]:
    """Return the remaining back-off of each index in seconds, for Jobs with a limit for each index."""
    waits = {}
    for index, pod in latest_failures(job, pods).items():
        failures, _ = failures_after(job, pod)
        waits[index] = Backoff(failures, ended_at(pod) or now).wait(now) if failures else 0.0
    return waits
