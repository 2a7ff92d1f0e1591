"""Jobs whose writes fail and whose pods are deleted: the real controller on an API in memory, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from control.controllers.job import JobController
from control.controllers.job import controller as job_controller
from control.controllers.job.tally import FINALIZER
from kube import serialize
from kube.api import batch_v1, core_v1, meta_v1
from kube.client import Response
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.memory_api import MemoryAPI
from tests.support.working import working

from .makers import template

JOBS, PODS = "/apis/batch/v1/jobs", "/api/v1/pods"


class World(MemoryAPI):
    """One Job and its pods; a pod with a finalizer stays while it is deleted."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.made = 0
        self.refused = 0
        """So many writes of the Job's status are still to be refused."""
        self.answering = asyncio.Event()
        """Cleared: patches of pods wait for their answer."""
        self.answering.set()

    def place(self, uid: str = "uid-j", **spec: Any) -> None:
        """Make the Job, or give it another spec."""
        self.put(
            batch_v1.Job(
                metadata=meta_v1.ObjectMeta(name="j", namespace="default", uid=uid),
                spec=batch_v1.JobSpec(
                    template=template(),
                    selector=meta_v1.LabelSelector(match_labels={"app": "web"}),
                    **{"parallelism": 1, "completions": 1, "backoff_limit": 6, **spec},
                ),
                status=self.job.status if self.objects.get(JOBS) else batch_v1.JobStatus(),
            )
        )

    @property
    def job(self) -> batch_v1.Job:
        return serialize.decode(self.objects[JOBS]["default/j"], batch_v1.Job)

    @property
    def pods(self) -> list[core_v1.Pod]:
        return [serialize.decode(body, core_v1.Pod) for body in self.objects.get(PODS, {}).values()]

    def move(self, pod: core_v1.Pod, phase: str) -> None:
        pod.status.phase = phase
        self.put(pod)

    def _delete(self, pod: core_v1.Pod) -> None:
        if pod.metadata.finalizers:
            pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
            self.put(pod)
        else:
            self.remove(pod)

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        if path.endswith("/jobs/j/status"):
            if self.refused:
                self.refused -= 1
                raise StatusError(503, "ServiceUnavailable", "etcd is slow")
            self.put(serialize.convert(json.loads(body), batch_v1.Job))
            return Response(200, {}, self.objects[JOBS]["default/j"])
        if "/pods" not in path or method == "GET":
            return await super().request(method, path, body=body, **options)
        if method == "POST":
            pod = serialize.convert(json.loads(body), core_v1.Pod)
            self.made += 1
            pod.metadata.name, pod.metadata.uid = f"j-{self.made}", f"uid-{self.made}"
            self.put(pod)
            return Response(201, {}, serialize.encode(pod))
        pod = next(found for found in self.pods if path.endswith(f"/{found.metadata.name}"))
        if method == "PATCH":
            await self.answering.wait()
            gone = json.loads(body)["metadata"]["$deleteFromPrimitiveList/finalizers"]
            pod.metadata.finalizers = [kept for kept in pod.metadata.finalizers if kept not in gone]
            if pod.metadata.deletion_timestamp and not pod.metadata.finalizers:
                self.remove(pod)
            else:
                self.put(pod)
        else:
            self._delete(pod)
        return Response(200, {}, serialize.encode(pod))


@contextlib.asynccontextmanager
async def world(**spec: Any) -> AsyncIterator[World]:
    made = World(FakeClock())
    made.place(**spec)
    async with working(made, made.clock, JobController):
        await made.clock.advance(1)
        assert [pod.metadata.finalizers for pod in made.pods] == [[FINALIZER]] * (spec.get("parallelism") or 1)
        yield made


async def test_a_failure_counts_once_for_the_back_off_however_often_the_status_cannot_be_written() -> None:
    async with world() as made:
        made.refused = 8
        made.move(made.pods[0], "Failed")
        while made.refused:
            await made.clock.advance(1)
        await made.clock.advance(30)
        assert made.made == 2, "one failure is waited for 10 seconds, nine are for 10 minutes"
        assert made.job.status.failed == 1


async def test_pods_that_a_job_deletes_are_no_failures() -> None:
    async with world(parallelism=3, completions=9, backoff_limit=0) as made:
        made.place(parallelism=1, completions=9, backoff_limit=0)
        await made.clock.advance(1)
        assert len(made.pods) == 1 and made.job.status.failed is None
        made.place(parallelism=1, completions=9, backoff_limit=0, suspend=True)
        await made.clock.advance(1)
        assert made.pods == [] and made.job.status.failed is None
        made.place(parallelism=1, completions=9, backoff_limit=0, suspend=False)
        await made.clock.advance(1)
        assert len(made.pods) == 1
        assert [c.type for c in made.job.status.conditions if c.status == "True"] == []


async def test_a_pod_that_somebody_else_deletes_is_a_failure() -> None:
    async with world(backoff_limit=0) as made:
        made._delete(made.pods[0])
        await made.clock.advance(1)
        assert made.job.status.failed == 1 and "Failed" in [c.type for c in made.job.status.conditions]


async def test_a_job_made_anew_while_the_old_one_is_reconciled_gets_its_pods_at_once() -> None:
    async with world(parallelism=2, completions=4) as made:
        made.answering.clear()
        made.move(made.pods[0], "Succeeded")
        await made.clock.advance(1)
        made.remove(made.job)
        await made.clock.advance(1)
        made.answering.set()  # the reconcile of the old Job goes on, and makes a pod
        await made.clock.advance(1)
        made.place(uid="uid-of-the-new", parallelism=2, completions=4)
        await made.clock.advance(10)
        owners = [reference.uid for pod in made.pods for reference in pod.metadata.owner_references]
        assert owners.count("uid-of-the-new") == 2


async def test_a_job_of_many_pods_is_planned_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_controller, "PLANNED_AT_ONCE", 2)
    threads, plan, here = set[bool](), job_controller.plan, threading.get_ident()

    def planned(*args: Any, **named: Any) -> Any:
        threads.add(threading.get_ident() == here)
        return plan(*args, **named)

    monkeypatch.setattr(job_controller, "plan", planned)
    async with world(parallelism=3, completions=9) as made:
        threads.clear()
        made.move(made.pods[0], "Succeeded")
        async with asyncio.timeout(30):
            while made.job.status.succeeded != 1 or len(made.pods) < 3:
                await made.clock.advance(1)
                await asyncio.sleep(0.01)
    assert threads == {False}
