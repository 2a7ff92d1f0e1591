"""Controllers that start with the first object of their kind."""

from __future__ import annotations

import asyncio
from typing import Any

from control.controllers import manager
from control.controllers.context import Context
from control.controllers.on_demand import ON_DEMAND, wait_for_work
from kube.api import batch_v1, core_v1, meta_v1
from kube.informer import Informer
from tests.support.clock import FakeClock


def context_with(*objects: Any) -> Context:
    """Return a context whose informers have their first list, with these objects."""
    context = Context(None, FakeClock())  # type: ignore[arg-type]
    for kind in {first.kind for each in ON_DEMAND.values() for first in each.objects}:
        context.informers.of(kind)._synced.set()
    for obj in objects:
        add(context, obj)
    return context


def add(context: Context, obj: Any) -> None:
    informer: Informer[Any] = context.informers.of(type(obj))
    informer._set(f"{obj.metadata.namespace}/{obj.metadata.name}", obj)


def pod(name: str, *finalizers: str) -> core_v1.Pod:
    spec = core_v1.PodSpec(containers=[core_v1.Container(name="c", image="i")])
    metadata = meta_v1.ObjectMeta(name=name, namespace="default", uid=name, finalizers=list(finalizers))
    return core_v1.Pod(metadata=metadata, spec=spec)


def job() -> batch_v1.Job:
    metadata = meta_v1.ObjectMeta(name="job", namespace="default", uid="job")
    spec = batch_v1.JobSpec(template=core_v1.PodTemplateSpec(spec=pod("p").spec))
    return batch_v1.Job(metadata=metadata, spec=spec)


async def waits(context: Context, name: str) -> bool:
    """Return whether a controller still waits for work after a moment."""
    try:
        async with asyncio.timeout(0.1):
            await wait_for_work(name, context)
    except TimeoutError:
        return True
    return False


async def test_a_controller_waits_for_the_first_object_of_its_kind_and_starts_with_it() -> None:
    context = context_with()
    waiting = asyncio.create_task(wait_for_work("job", context))
    await asyncio.sleep(0)
    assert not waiting.done()
    add(context, job())
    async with asyncio.timeout(10):
        await waiting


async def test_objects_that_exist_already_start_their_controllers() -> None:
    context = context_with(job())
    assert [name for name in ("job", "ttl-after-finished", "cronjob") if not await waits(context, name)] == [
        "job",
        "ttl-after-finished",
    ]


async def test_the_job_controller_starts_with_a_pod_that_has_its_finalizer_and_no_job() -> None:
    assert await waits(context_with(pod("other", "example.org/keep")), "job")
    assert not await waits(context_with(pod("left", "batch.kubernetes.io/job-tracking")), "job")


async def test_a_wait_leaves_no_handler_behind() -> None:
    context = context_with()
    assert await waits(context, "persistentvolume-binder")
    assert not await waits(context_with(job()), "job")
    assert all(not context.informers.of(first.kind)._handlers for first in ON_DEMAND["job"].objects)
    assert all(not context.informers.of(first.kind)._handlers for first in ON_DEMAND["persistentvolume-binder"].objects)


async def test_a_controller_that_is_not_on_demand_starts_at_once() -> None:
    assert not await waits(context_with(), "namespace")


def test_every_controller_on_demand_is_one_of_the_managers() -> None:
    assert ON_DEMAND.keys() <= manager.CONTROLLERS.keys()
