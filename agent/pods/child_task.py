"""Child task of a pod's worker: one sync or termination, which the worker can cancel.

Each step of the work is limited (kube/step_limit.py), and the steps of a namespace's pods delay their next sync. The end of the
task wakes the worker; an error is logged and requests another sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from agent import step_shares
from agent.pods.state import PodState
from agent.pods.wakeup import WakeUp
from cri.errors import CRIError
from kube.cancellation import AwaitedCancelled
from kube.clock import Clock
from kube.step_limit import Limit, StepTooLong, limited

log = logging.getLogger(__name__)

RUNTIME_SECONDS = 0.5
"""Delay of the next try after a failed call to the runtime."""
UNEXPECTED_SECONDS = 5.0
"""Delay of the next try after an unexpected error."""


class ChildTask:
    """The task that works on one pod, if there is one: `running` until the worker has handled its result."""

    def __init__(self, state: PodState, wakeup: WakeUp, clock: Clock) -> None:
        self._state, self._wakeup, self._clock = state, wakeup, clock
        self._task: asyncio.Task[None] | None = None
        self.grace: int | None = None
        """The grace period in seconds of the termination that is under way; None for a sync."""

    @property
    def running(self) -> bool:
        return self._task is not None

    def delay(self) -> float:
        """Return the seconds for which earlier steps of the namespace's pods delay a sync."""
        return step_shares.shares.delay(self._state.pod.metadata.namespace or "")

    def start(self, work: Coroutine[None, None, None], what: str, grace: int | None = None) -> None:
        """Run work whose steps are limited; it answers all earlier requests of a sync."""
        self._wakeup.sync_requested = False
        self._wakeup.cancel_timer()
        self.grace = grace
        metadata = self._state.pod.metadata
        self._task = asyncio.create_task(self._limited(work), name=f"{what} pod {metadata.namespace}/{metadata.name}")
        self._task.add_done_callback(lambda _: self._wakeup.wake())

    async def _limited(self, work: Coroutine[None, None, None]) -> None:
        await limited(work, Limit(step_shares.shares, self._state.pod.metadata.namespace or ""))

    async def cancel(self) -> None:
        """Cancel the task, if there is one, and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def handle_result(self) -> None:
        """Release a task that has ended; log its error, and request a sync for later."""
        if self._task is None or not self._task.done():
            return
        child, self._task = self._task, None
        # `cancel` releases the task itself: this one ended with the cancellation of something that it awaited.
        error = AwaitedCancelled() if child.cancelled() else child.exception()
        if error is None:
            return
        if isinstance(error, CRIError):
            # The call may have done something all the same: the runtime's records of the pod are read again.
            log.warning("%s: %s", child.get_name(), error)
            self._state.runtime_uncertain = True
        else:
            log.error("%s failed", child.get_name(), exc_info=error)
            self._state.runtime_uncertain |= child.cancelled()
        delay = RUNTIME_SECONDS if isinstance(error, CRIError) else UNEXPECTED_SECONDS
        if isinstance(error, StepTooLong):
            delay = step_shares.PAUSE
        self._wakeup.request_sync_at(self._clock.monotonic() + delay)
