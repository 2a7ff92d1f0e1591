"""Finds why a Job does not complete, or a CronJob does not run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kube.api import batch_v1, core_v1
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.causes.deletion import finalizers
from wherry.why.causes.workloads import of_pods, refusal
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.owners import controller_of
from wherry.why.times import ago, parsed


async def job(diagnosis: Diagnosis, obj: batch_v1.Job) -> Sequence[Cause]:
    """Return why a Job has failed, or is not complete."""
    about, spec, status = reference(obj), obj.spec or batch_v1.JobSpec(), obj.status or batch_v1.JobStatus()
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, diagnosis.reader.now)
    true = {each.type: each for each in status.conditions if each.status == "True"}
    if "Complete" in true:
        return ()
    if spec.suspend:
        return [Cause("it is suspended (spec.suspend)", commands.patch(about, {"spec": {"suspend": False}}), about)]
    pods = await _pods(diagnosis, obj)
    failed = true.get("Failed") or true.get("FailureTarget")
    if failed is not None:
        why = f"it has failed: {failed.message or failed.reason or ''}"
        if failed.reason != "DeadlineExceeded" and (
            found := await of_pods(diagnosis, [p for p in pods if p.status.phase == "Failed"])
        ):
            return [msgspec.structs.replace(found[0], text=f"{why}; {found[0].text}")]
        return [Cause(why, commands.kubectl("delete", about), about)]
    if found := await of_pods(diagnosis, pods):
        return found
    for event in reversed(await diagnosis.reader.events(obj)):
        if event.reason == "FailedCreate" and not status.active:
            return [await refusal(diagnosis, obj, event.message or "")]
    return [
        Cause(
            f"it runs: {status.succeeded or 0} of {spec.completions or 1} completions so far", about=about, waits=True
        )
    ]


async def _pods(diagnosis: Diagnosis, obj: batch_v1.Job) -> list[core_v1.Pod]:
    selector = f"batch.kubernetes.io/controller-uid={obj.metadata.uid}"
    found = await diagnosis.reader.all(core_v1.Pod, namespace_of(obj), label_selector=selector)
    return sorted(found, key=lambda pod: pod.metadata.creation_timestamp or "", reverse=True)


async def cron_job(diagnosis: Diagnosis, obj: batch_v1.CronJob) -> Sequence[Cause]:
    """Return why a CronJob starts no Jobs, or why its last one has not completed."""
    about, spec, now = reference(obj), obj.spec or batch_v1.CronJobSpec(), diagnosis.reader.now
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, now)
    if spec.suspend:
        return [Cause("it is suspended (spec.suspend)", commands.patch(about, {"spec": {"suspend": False}}), about)]
    for event in reversed(await diagnosis.reader.events(obj)):
        if event.reason in ("UnknownTimeZone", "UnparseableSchedule", "InvalidSchedule", "FailedCreate"):
            return [Cause(f"it cannot start Jobs: {event.message or event.reason}", commands.edit(about), about)]
        if event.reason == "SuccessfulCreate":
            break
    jobs = [each for each in await diagnosis.reader.all(batch_v1.Job, namespace_of(obj)) if _is_of(each, obj)]
    last = max(jobs, key=lambda each: each.metadata.creation_timestamp or "", default=None)
    if last is not None and (found := await diagnosis.causes(last)):
        forbids = spec.concurrency_policy == "Forbid" and found[0].waits
        text = (
            f"its last Job {name_of(last)} {'still runs, and no other may start meanwhile' if forbids else ''}".rstrip()
        )
        return [msgspec.structs.replace(found[0], text=f"{text}: {found[0].text}")]
    if last is None:
        created = ago(parsed(obj.metadata.creation_timestamp), now)
        text = f"no time of its schedule ({spec.schedule}) has come since it was created {created}"
        return [Cause(text, about=about, waits=True)]
    return ()


def _is_of(each: batch_v1.Job, owner: batch_v1.CronJob) -> bool:
    found = controller_of(each)
    return found is not None and found.uid == owner.metadata.uid
