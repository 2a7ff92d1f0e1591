"""Controllers that start with the first object that they have work for; their modules are imported then.

In a cluster without such objects they would do nothing, but their modules, informers and workers would take a third of the
memory and of the start-up time of all controllers. Until then only the kinds in `ON_DEMAND` are watched. A controller that has
started keeps running, also after the last object is deleted.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import msgspec

from control.controllers.context import Context
from control.event_loop import imports
from kube.api import (
    apps_v1,
    autoscaling_v2,
    batch_v1,
    certificates_v1,
    core_v1,
    policy_v1,
    resource_v1,
    storage_v1,
)
from kube.informer import Change, Informer
from kube.shared_informers import wait_until_listed

JOB_TRACKING = "batch.kubernetes.io/job-tracking"
"""Finalizer of Jobs' pods (job/tally.py); after the Job's deletion, too, until the controller removes it."""


class First(msgspec.Struct, frozen=True):
    """Objects of a kind that a controller has work for: all, or those that `wanted` returns true for."""

    kind: type[msgspec.Struct]
    wanted: Callable[[Any], bool] = lambda obj: True


class OnDemand(msgspec.Struct, frozen=True):
    """A controller's module and the objects that it starts with."""

    module: str
    objects: tuple[First, ...]


def _tracked(pod: core_v1.Pod) -> bool:
    return JOB_TRACKING in pod.metadata.finalizers


def _has_claims(pod: core_v1.Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _has_ephemeral_volumes(pod: core_v1.Pod) -> bool:
    return any(volume.ephemeral is not None for volume in pod.spec.volumes)


def _has_volumes(node: core_v1.Node) -> bool:
    return bool(node.status.volumes_attached or node.status.volumes_in_use)


CLAIM, VOLUME = First(core_v1.PersistentVolumeClaim), First(core_v1.PersistentVolume)
REQUEST = First(certificates_v1.CertificateSigningRequest)


def _on_demand(module: str, *objects: First) -> OnDemand:
    return OnDemand(f"control.controllers.{module}", objects)


ON_DEMAND: dict[str, OnDemand] = {
    "replicaset": _on_demand("replicaset", First(apps_v1.ReplicaSet)),
    "replicationcontroller": _on_demand("replicaset", First(core_v1.ReplicationController)),
    "deployment": _on_demand("deployment", First(apps_v1.Deployment)),
    "daemonset": _on_demand("daemonset", First(apps_v1.DaemonSet)),
    "statefulset": _on_demand("statefulset", First(apps_v1.StatefulSet)),
    "job": _on_demand("job", First(batch_v1.Job), First(core_v1.Pod, _tracked)),
    "cronjob": _on_demand("cronjob", First(batch_v1.CronJob)),
    "ttl-after-finished": _on_demand("ttl_after_finished", First(batch_v1.Job)),
    "horizontalpodautoscaler": _on_demand("autoscaling.controller", First(autoscaling_v2.HorizontalPodAutoscaler)),
    "disruption": _on_demand("disruption", First(policy_v1.PodDisruptionBudget)),
    "certificatesigningrequest-approving": _on_demand("certificates", REQUEST),
    "certificatesigningrequest-signing": _on_demand("certificates", REQUEST),
    "certificatesigningrequest-cleaner": _on_demand("certificates", REQUEST),
    "persistentvolume-binder": _on_demand("persistent_volumes", CLAIM, VOLUME),
    "persistentvolume-attach-detach": _on_demand(
        "attach_detach",
        VOLUME,
        First(storage_v1.VolumeAttachment),
        First(core_v1.Node, _has_volumes),
    ),
    "persistentvolume-expander": _on_demand("volume_expansion", CLAIM),
    "ephemeral-volume": _on_demand("ephemeral_volumes", First(core_v1.Pod, _has_ephemeral_volumes)),
    "persistentvolumeclaim-protection": _on_demand("storage_protection", CLAIM),
    "persistentvolume-protection": _on_demand("storage_protection", VOLUME),
    "volumeattributesclass-protection": _on_demand("storage_protection", First(storage_v1.VolumeAttributesClass)),
    "resourceclaim": _on_demand("resource_claims", First(resource_v1.ResourceClaim), First(core_v1.Pod, _has_claims)),
    "device-taint-eviction": _on_demand("resource_claims", First(resource_v1.ResourceClaim)),
    "resourcequota": _on_demand("resource_quota", First(core_v1.ResourceQuota)),
}
"""By names of controllers. The others start at once."""


async def wait_for_work(name: str, context: Context) -> None:
    """Wait until an object exists that a controller has work for, and import its module in a thread."""
    wanted = ON_DEMAND.get(name)
    if wanted is None:
        return
    followed: list[tuple[Informer[Any], Callable[[Change[Any]], None]]] = []
    found = asyncio.Event()
    try:
        for first in wanted.objects:
            informer: Informer[Any] = context.informers.of(first.kind)
            followed.append((informer, functools.partial(_seen, first.wanted, found)))
            informer.subscribe(followed[-1][1])
        await wait_until_listed(f"{name} controller", [informer for informer, _ in followed], context.clock)
        await found.wait()
    finally:
        for informer, handler in followed:
            informer.unsubscribe(handler)
    await imports.ensure_now(wanted.module)


def _seen(wanted: Callable[[Any], bool], found: asyncio.Event, change: Change[Any]) -> None:
    if change.type != "DELETED" and wanted(change.new):
        found.set()
