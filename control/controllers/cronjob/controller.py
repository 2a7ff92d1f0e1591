"""CronJobs: start a Job at each moment of a schedule. Each key sleeps until its next moment, or for five minutes.

Upstream: pkg/controller/cronjob.
"""

from __future__ import annotations

import msgspec

from control.controllers import metrics
from control.controllers.context import Context
from control.controllers.cronjob.plan import CronPlan, job_of, plan
from control.controllers.overlay import Overlay
from control.controllers.ownership import by_controller_or_orphan, children_of, controller_of
from control.controllers.pod_control import namespace_terminating
from kube.api import batch_v1, core_v1
from kube.clock import format_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import name_of, namespace_of

LONGEST_WAIT = 300.0
"""Seconds after which a clock that may be set, or stand while the machine is suspended, is checked again."""


class CronJobController:
    """Follows CronJobs and Jobs."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("cronjob-controller")
        self._crons = context.informers.of(batch_v1.CronJob)
        self._jobs = context.informers.of(batch_v1.Job)
        self._jobs.add_index("claim", by_controller_or_orphan)
        self._latest = Overlay(self._crons, context.clock)
        self._latest_jobs = Overlay(self._jobs, context.clock)
        self.controller = Controller("cronjob", self.reconcile, workers=15, each=5, clock=self._clock)
        self._crons.subscribe(lambda change: self.controller.enqueue(change.key))
        self._jobs.subscribe(self._job_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _job_changed(self, change: Change[batch_v1.Job]) -> None:
        reference = controller_of(change.new)
        if reference is not None and reference.kind == "CronJob":
            self.controller.enqueue(f"{change.new.metadata.namespace}/{reference.name}")

    async def reconcile(self, key: str) -> float | None:
        """Do what one CronJob has to do now; return the seconds until it is to be checked again."""
        cron = self._latest.get(key)
        if cron is None:
            return None
        mine = children_of(self._jobs, cron)
        jobs = [j for j in self._latest_jobs.current(mine, f"{key}-") if _owner(j) == cron.metadata.uid]
        todo = plan(cron, jobs, self._clock.now())
        for type_, reason, message in todo.events:
            self._recorder.event(cron, type_, reason, message)
        for job in [*todo.old, *todo.replace]:
            await self._delete(cron, job)
        replaced = {job.metadata.uid for job in todo.replace}
        todo.status.active = [reference for reference in todo.status.active if reference.uid not in replaced]
        await self._start(cron, todo)
        if todo.status != cron.status:
            self._latest.wrote(await self._client.update_status(msgspec.structs.replace(cron, status=todo.status)))
        return min(todo.again, LONGEST_WAIT) if todo.again is not None and not self._clock.steady else todo.again

    async def _start(self, cron: batch_v1.CronJob, todo: CronPlan) -> None:
        if todo.start is None:
            return
        desired = job_of(cron, todo.start)
        try:
            job = await self._client.create(desired)
        except StatusError as error:
            if namespace_terminating(error):
                return
            if not error.already_exists:
                self._recorder.event(cron, "Warning", "FailedCreate", f"Error creating job: {error}")
                raise
            job = await self._client.get(batch_v1.Job, name_of(desired), namespace_of(desired))
            if _owner(job) != cron.metadata.uid:
                return  # somebody else's job has the name of this run
        else:
            metrics.CRON_SKEW.observe((self._clock.now() - todo.start).total_seconds())
            self._recorder.event(cron, "Normal", "SuccessfulCreate", f"Created job {name_of(job)}")
        self._latest_jobs.wrote(job)
        todo.status.last_schedule_time = format_time(todo.start)
        todo.status.active.append(
            core_v1.ObjectReference(
                api_version="batch/v1",
                kind="Job",
                namespace=job.metadata.namespace,
                name=job.metadata.name,
                uid=job.metadata.uid,
                resource_version=job.metadata.resource_version,
            )
        )

    async def _delete(self, cron: batch_v1.CronJob, job: batch_v1.Job) -> None:
        try:
            await self._client.delete(batch_v1.Job, name_of(job), namespace_of(job), propagation="Background")
        except StatusError as error:
            if error.not_found:
                return
            self._recorder.event(cron, "Warning", "FailedDelete", f"Deleted job: {error}")
            raise
        self._latest_jobs.deleted(job)
        self._recorder.event(cron, "Normal", "SuccessfulDelete", f"Deleted job {name_of(job)}")


def _owner(job: batch_v1.Job) -> str:
    reference = controller_of(job)
    return reference.uid if reference is not None and reference.kind == "CronJob" else ""
