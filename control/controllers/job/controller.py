"""Jobs: run pods until enough have succeeded.

`plan` decides; this module applies the plan in the order that correct counting requires: status first, then finalizers, then
pods.
Upstream: pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from datetime import datetime

import msgspec

from control.controllers.concurrent_requests import for_each
from control.controllers.context import Context
from control.controllers.expectations import Expectations
from control.controllers.job import metrics, tally
from control.controllers.job.backoff import Backoff, backoff_after
from control.controllers.job.plan import JobPlan, SucceededEarly, plan, same_status
from control.controllers.job.policies import EarlySuccess
from control.controllers.overlay import Overlay
from control.controllers.ownership import by_controller_or_orphan, children_of, claim, claimable, controller_of, lost_by
from control.controllers.pod_control import PodControl, namespace_terminating, pod_from_template, slow_start
from control.controllers.selector_index import CompiledSelectorIndex
from control.event_loop import offload
from kube import cancellation, duration
from kube.api import batch_v1, core_v1
from kube.client import STRATEGIC
from kube.clock import format_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of, namespace_of

MANAGER = "kubernetes.io/job-controller"


PLANNED_AT_ONCE = 200
"""Pods of a Job up to which it is planned on the event loop: a few milliseconds. A thread plans one of more."""
TEXT_AT_ONCE = 4096
"""Characters of sets of indexes up to which a Job is planned on the event loop: 1000 indexes, a millisecond."""


class JobController:
    """Watches Jobs and pods."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("job-controller")
        self._jobs = context.informers.of(batch_v1.Job)
        self._pods = context.informers.of(core_v1.Pod)
        self._selectors = CompiledSelectorIndex(self._jobs)
        self._pods.add_index("claim", by_controller_or_orphan)
        self._latest = Overlay(self._jobs, context.clock)
        self._expectations = Expectations(self._clock)
        self._control = PodControl(self._client, self._recorder)
        self._backoffs: dict[str, Backoff] = {}
        self._early = EarlySuccess()
        self.controller = Controller("job", self.reconcile, workers=15, each=5, clock=self._clock)
        self.orphans = Controller(
            "job orphans", self.release_orphan, workers=2, queue="job_orphan_pod", clock=self._clock
        )
        self._jobs.subscribe(self._job_changed)
        self._pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, self.controller.run, "job controller")
            cancellation.start(group, self.orphans.run, "job orphans")

    # -- events -----------------------------------------------------------------------------------------------------
    def _job_changed(self, change: Change[batch_v1.Job]) -> None:
        if change.type == "DELETED":
            self._expectations.forget(change.new.metadata.uid or "")
            self._backoffs.pop(change.new.metadata.uid or "", None)
            self._early.forget(change.new.metadata.uid or "")
            for pod in children_of(self._pods, change.new):
                self.orphans.enqueue(key_of(pod))
        self.controller.enqueue(change.key)

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        pod = change.new
        metrics.pod_changed(change)
        if lost := lost_by(change, "Job"):
            self.controller.enqueue(lost)
        reference = controller_of(pod)
        if reference is None and change.type != "DELETED":
            self._selectors.each(pod.metadata.namespace or "", pod.metadata.labels, self.controller.enqueue)
        if reference is None or reference.kind != "Job":
            if tally.FINALIZER in pod.metadata.finalizers and change.type != "DELETED":
                self.orphans.enqueue(change.key)
            return
        key = f"{pod.metadata.namespace}/{reference.name}"
        job = self._jobs.get(key)
        if job is None or job.metadata.uid != reference.uid:  # it may be of another namespace
            if change.type != "DELETED":
                self.orphans.enqueue(change.key)
            return
        if change.type == "ADDED":
            self._expectations.creation_observed(reference.uid)
        if change.type == "DELETED" or pod.metadata.deletion_timestamp is not None:
            self._expectations.deletion_observed(reference.uid, pod.metadata.uid or "")
        self.controller.enqueue(key)

    async def _takers(self, pod: core_v1.Pod) -> list[batch_v1.Job]:
        """Return the Jobs that may adopt a pod without a controller."""
        keys = await self._selectors.matching(pod.metadata.namespace or "", pod.metadata.labels)
        found = [job for key in keys if (job := self._jobs.get(key)) is not None]
        return [
            job
            for job in found
            if job.metadata.deletion_timestamp is None and (job.spec.managed_by or MANAGER) == MANAGER
        ]

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Reconcile one Job."""
        job = self._latest.get(key)
        if job is None or (job.spec.managed_by or MANAGER) != MANAGER:
            return None
        uid = job.metadata.uid or ""
        try:
            with metrics.job_sync(job, self._clock) as sync:
                return await self._reconcile(job, uid, sync)
        finally:
            if (latest := self._jobs.get(key)) is None or latest.metadata.uid != uid:
                self._expectations.forget(uid)  # the Job was deleted meanwhile
                self._early.forget(uid)
                self._backoffs.pop(uid, None)

    async def _reconcile(self, job: batch_v1.Job, uid: str, sync: metrics.JobSync) -> float | None:
        selector = await self._selectors.of(job)
        # Before the pods are read: those created meanwhile are not among them.
        settled = self._expectations.satisfied(uid)
        pods = await claim(self._client, job, claimable(self._pods, job), selector, (tally.FINALIZER,))
        early = functools.partial(self._early.message, uid, job.metadata.generation or 0)
        known = self._backoffs.get(uid, Backoff())
        work = functools.partial(
            _decided, job, pods, settled=settled, backoff=known, now=self._clock.now(), early=early
        )
        large = len(pods) > PLANNED_AT_ONCE or tally.text_length(job) > TEXT_AT_ONCE
        backoff, todo = await offload.complete(namespace_of(job), work) if large else work()
        if settled:
            sync.action = "pods_created" if todo.create else "pods_deleted" if todo.delete else "tracking"
        if not same_status(job.status, todo.status):
            before = job
            job = await self._client.update_status(msgspec.structs.replace(job, status=todo.status))
            self._latest.wrote(job)
            metrics.job_written(before, todo.status)
        metrics.policy_applied(todo.tally.actions)
        self._backoffs[uid] = backoff  # not before: what is not recorded is seen, and would be counted, again
        self._recorder.decisions.changed(job, "back-off", _waits(backoff, todo))
        for type_, reason, message in todo.events:
            self._recorder.event(job, type_, reason, message)
        failure = await for_each(todo.untrack, self._untrack) or await self._apply(job, todo, pods)
        if failure is not None:
            raise failure
        return todo.again

    async def _apply(self, job: batch_v1.Job, todo: JobPlan, pods: Sequence[core_v1.Pod]) -> StatusError | None:
        uid = job.metadata.uid or ""
        if todo.delete:
            free = {pod.metadata.uid for pod in todo.untrack}
            with self._expectations.requesting(uid, deletions=[pod.metadata.uid or "" for pod in todo.delete]):
                failure = await for_each(
                    todo.delete, lambda pod: self._delete(job, pod, tracked=pod.metadata.uid not in free)
                )
            if failure is not None:
                return failure
        if todo.create:
            return await self._create(job, todo.create, pods)
        return None

    async def _create(self, job: batch_v1.Job, wanted: list[int], pods: Sequence[core_v1.Pod]) -> StatusError | None:
        uid = job.metadata.uid or ""
        failed = tally.latest_failures(job, pods)

        async def one(number: int) -> None:
            index = wanted[number]
            try:
                await self._control.create(pod_of(job, index, failed.get(index)), job)
            except StatusError as error:
                self._expectations.creation_observed(uid)
                if not namespace_terminating(error):
                    raise

        with self._expectations.requesting(uid, len(wanted)):
            tried, failure = await slow_start(len(wanted), one)
        self._expectations.creation_observed(uid, len(wanted) - tried)
        return failure

    async def _delete(self, job: batch_v1.Job, pod: core_v1.Pod, *, tracked: bool) -> None:
        """Remove the finalizer of a pod and delete it; a deleted pod does not count as failed (upstream: deleteJobPods)."""
        try:
            if tracked and tally.FINALIZER in pod.metadata.finalizers:
                await self._untrack(pod)
            await self._control.delete(pod, job)
        except StatusError as error:
            self._expectations.deletion_observed(job.metadata.uid or "", pod.metadata.uid or "")
            if not error.not_found:
                raise

    async def _untrack(self, pod: core_v1.Pod) -> None:
        """Remove the tracking finalizer from a pod."""
        patch = {"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [tally.FINALIZER]}}
        try:
            await self._client.patch(core_v1.Pod, name_of(pod), namespace_of(pod), patch, type=STRATEGIC)
        except StatusError as error:
            if not error.not_found and error.reason != "Invalid":
                raise

    async def release_orphan(self, key: str) -> None:
        """Remove the finalizer of a pod whose Job was deleted."""
        pod = self._pods.get(key)
        if pod is None or tally.FINALIZER not in pod.metadata.finalizers:
            return
        reference = controller_of(pod)
        if reference is None and pod.metadata.deletion_timestamp is None and await self._takers(pod):
            return
        if reference is not None and reference.kind == "Job":
            job = self._jobs.get(f"{pod.metadata.namespace}/{reference.name}")
            if job is not None and job.metadata.uid == reference.uid:
                return
            try:  # our copy of the Jobs may be behind that of the pods
                live = await self._client.get(batch_v1.Job, reference.name, namespace_of(pod))
                if live.metadata.uid == reference.uid:
                    return
            except StatusError as error:
                if not error.not_found:
                    raise
        await self._untrack(pod)


def pod_of(job: batch_v1.Job, index: int, last: core_v1.Pod | None = None) -> core_v1.Pod:
    """Create one of a Job's pods; `index` is -1 if the Job has no indexes, `last` the index's failed pod, if any."""
    if index < 0:
        pod = pod_from_template(job.spec.template, job)
        pod.metadata.finalizers = [*pod.metadata.finalizers, tally.FINALIZER]
        return pod
    name = f"{name_of(job)}-{index}"
    pod = pod_from_template(job.spec.template, job, generate_name=f"{name}-")
    pod.metadata.finalizers = [*pod.metadata.finalizers, tally.FINALIZER]
    pod.metadata.annotations[tally.INDEX] = pod.metadata.labels[tally.INDEX] = str(index)
    if job.spec.backoff_limit_per_index is not None:
        failures, ignored = tally.failures_after(job, last) if last is not None else (0, 0)
        pod.metadata.annotations[tally.FAILURES] = str(failures)
        if ignored:
            pod.metadata.annotations[tally.IGNORED] = str(ignored)
    pod.spec = msgspec.structs.replace(
        pod.spec,
        hostname=name if pod.spec.hostname is None else pod.spec.hostname,
        containers=[_with_index(container) for container in pod.spec.containers],
        init_containers=[_with_index(container) for container in pod.spec.init_containers],
    )
    return pod


def _with_index(container: core_v1.Container) -> core_v1.Container:
    """Add JOB_COMPLETION_INDEX to a container's environment, unless it sets that itself."""
    if any(variable.name == "JOB_COMPLETION_INDEX" for variable in container.env):
        return container
    field = core_v1.ObjectFieldSelector(field_path=f"metadata.labels['{tally.INDEX}']")
    variable = core_v1.EnvVar(name="JOB_COMPLETION_INDEX", value_from=core_v1.EnvVarSource(field_ref=field))
    return msgspec.structs.replace(container, env=[*container.env, variable])


def _waits(backoff: Backoff, todo: JobPlan) -> str:
    """Return for the journal how long a Job does not replace failed pods."""
    if not todo.again or not backoff.failures or todo.create or backoff.last is None:
        return ""
    last = format_time(backoff.last)
    delay = duration.render(backoff.delay)
    return f"back-off of {delay} before failed pods are replaced: {backoff.failures} failures, the last at {last}"


def _decided(
    job: batch_v1.Job,
    pods: Sequence[core_v1.Pod],
    *,
    settled: bool,
    backoff: Backoff,
    now: datetime,
    early: SucceededEarly,
) -> tuple[Backoff, JobPlan]:
    """Return a Job's back-off after its failures, and what to do."""
    backoff = backoff_after(backoff, job, tally.tally(job, pods), now)
    return backoff, plan(job, pods, settled=settled, backoff=backoff, now=now, succeeded_early=early)
