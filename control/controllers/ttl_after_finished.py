"""TTL after finished: a Job with ttlSecondsAfterFinished is deleted that long after its end, with its pods.

Upstream: pkg/controller/ttlafterfinished.
"""

from __future__ import annotations

from datetime import datetime

from control.controllers import metrics
from control.controllers.context import Context
from kube.api import batch_v1
from kube.clock import after, parse_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.object_names import name_of, namespace_of


def expires_in(job: batch_v1.Job, now: datetime) -> float | None:
    """Return the seconds until a finished Job is to go; None for one that runs or stays."""
    ttl = job.spec.ttl_seconds_after_finished
    if ttl is None or job.metadata.deletion_timestamp is not None:
        return None
    for condition in job.status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True" and condition.last_transition_time:
            return (after(parse_time(condition.last_transition_time), ttl) - now).total_seconds()
    return None


class TTLAfterFinishedController:
    """Follows Jobs."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._jobs = context.informers.of(batch_v1.Job)
        self.controller = Controller(
            "TTL after finished", self.reconcile, workers=2, queue="ttl_jobs_to_delete", clock=context.clock
        )
        self._jobs.subscribe(lambda change: self.controller.enqueue(change.key))

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    async def reconcile(self, key: str) -> float | None:
        """Delete one Job, or come back when it is time."""
        job = self._jobs.get(key)
        wait = expires_in(job, self._clock.now()) if job is not None else None
        if job is None or wait is None or wait > 0:
            return wait
        # A look at the Job as it is now: its TTL may have been raised in the meantime.
        try:
            live = await self._client.get(batch_v1.Job, name_of(job), namespace_of(job))
            wait = expires_in(live, self._clock.now())
            if live.metadata.uid != job.metadata.uid or wait is None or wait > 0:
                return wait
            await self._client.delete(
                batch_v1.Job,
                name_of(job),
                namespace_of(job),
                uid=live.metadata.uid or "",
                resource_version=live.metadata.resource_version or "",
                propagation="Foreground",
            )
            metrics.JOB_DELETION.observe(max(0.0, -wait))
        except StatusError as error:
            if not error.not_found:
                raise
        return None
