"""Finds why a workload (Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController) has too few Ready pods."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from kube import selectors
from kube.api import apps_v1, core_v1
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.causes.deletion import finalizers
from wherry.why.causes.scheduling import condition
from wherry.why.causes.webhook_failures import webhook_failure
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.owners import controller_of, template_owner

LONGEST_NUMBER = 19
"""Digits of a revision in an annotation, which anybody may write who may change a ReplicaSet: those of 64 bits."""
RESERVED = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")
"""Labels that the cluster sets, or that isolate nodes (`node-restriction.kubernetes.io/`, `node-role.kubernetes.io/`)."""


async def deployment(diagnosis: Diagnosis, obj: apps_v1.Deployment) -> Sequence[Cause]:
    """Return why a Deployment is not complete."""
    if found := _not_acting(diagnosis, obj):
        return found
    if found := _none_wanted(obj):
        return found
    owned = [each for each in await diagnosis.reader.all(apps_v1.ReplicaSet, namespace_of(obj)) if _is_of(each, obj)]
    newest = max(owned, key=_revision, default=None)
    if newest is not None and (found := await diagnosis.causes(newest)):
        return found
    for other in owned:
        if (
            other.spec is not None
            and other.spec.replicas
            and other is not newest
            and (found := await diagnosis.causes(other))
        ):
            return found
    if obj.spec is not None and obj.spec.paused and _unfinished(obj):
        return [
            Cause(
                "its rollout is paused (spec.paused)",
                commands.kubectl("rollout resume", reference(obj)),
                reference(obj),
            )
        ]
    return await _refused(diagnosis, obj)


async def replicas(diagnosis: Diagnosis, obj: Any) -> Sequence[Cause]:
    """Return why a ReplicaSet, ReplicationController, StatefulSet or DaemonSet has too few Ready pods."""
    if found := _not_acting(diagnosis, obj):
        return found
    if found := await _refused(diagnosis, obj):
        return found
    if controller_of(obj) is None and (found := _none_wanted(obj)):
        return found
    pods = [each for each in await _pods(diagnosis, obj) if _is_of(each, obj)]
    if found := await of_pods(diagnosis, pods):
        return _with_deletion(obj, pods, found)
    return await _not_created(diagnosis, obj, pods)


async def of_pods(diagnosis: Diagnosis, pods: Sequence[core_v1.Pod]) -> Sequence[Cause]:
    """Return the causes of the first pod that is not Ready, with the number of those pods."""
    wrong = [each for each in sorted(pods, key=_order) if not _is_ready(each)]
    for pod in wrong:
        if found := await diagnosis.causes(pod):
            count = f"{len(wrong)} of its {len(pods)} pods are not Ready; " if len(pods) > 1 else ""
            first = msgspec.structs.replace(found[0], text=f"{count}{reference(pod)}: {found[0].text}")
            return [first, *found[1:]]
    return ()


def _order(pod: core_v1.Pod) -> tuple[bool, int, str]:
    """Put pods that are not being deleted first, then those of a StatefulSet by their number."""
    number = name_of(pod).rpartition("-")[2]
    ordinal = int(number) if number.isascii() and number.isdigit() else 0
    return pod.metadata.deletion_timestamp is not None, ordinal, name_of(pod)


def _is_ready(pod: core_v1.Pod) -> bool:
    ready = condition(pod, "Ready")
    return pod.status.phase == "Succeeded" or (ready is not None and ready.status == "True")


async def _pods(diagnosis: Diagnosis, obj: Any) -> Sequence[core_v1.Pod]:
    """Return the pods that a workload's selector selects."""
    selector = obj.spec.selector if obj.spec is not None else None
    if isinstance(selector, dict):  # a ReplicationController's
        text = ",".join(f"{key}={value}" for key, value in selector.items())
    else:
        text = str(selectors.from_label_selector(selector)) if selector is not None else ""
    return await diagnosis.reader.all(core_v1.Pod, namespace_of(obj), label_selector=text)


def _is_of(obj: Any, owner: Any) -> bool:
    found = controller_of(obj)
    return found is not None and found.uid == owner.metadata.uid


def _revision(each: apps_v1.ReplicaSet) -> tuple[int, str]:
    text = each.metadata.annotations.get("deployment.kubernetes.io/revision", "0")
    return int(text) if text.isascii() and text.isdigit() and len(
        text
    ) <= LONGEST_NUMBER else 0, each.metadata.creation_timestamp or ""


def _not_acting(diagnosis: Diagnosis, obj: Any) -> Sequence[Cause]:
    """Return why nothing acts on a workload: it is being deleted, or no controller has seen its last change."""
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, diagnosis.reader.now)
    observed = obj.status.observed_generation if obj.status is not None else None
    if (observed or 0) < (obj.metadata.generation or 0):
        seen = f"its controller has not seen its last change (generation {obj.metadata.generation})"
        text = f"{seen}: if that lasts, no controllers are running"
        return [Cause(text, "kubectl get lease kube-controller-manager -n kube-system -o yaml", reference(obj))]
    return ()


def _none_wanted(obj: Any) -> Sequence[Cause]:
    """Return why a workload has no pods on purpose: it is scaled to 0, or no node is one of a DaemonSet's."""
    about = reference(obj)
    if getattr(obj.spec, "replicas", None) == 0:
        return [Cause("it is scaled to 0 (spec.replicas)", commands.kubectl("scale", about, "--replicas=1"), about)]
    if isinstance(obj, apps_v1.DaemonSet) and obj.status is not None and obj.status.desired_number_scheduled == 0:
        selector = obj.spec.template.spec.node_selector if obj.spec is not None and obj.spec.template.spec else {}
        wanted = [f"{key}={value}" for key, value in selector.items()]
        if wanted:
            isolating = any(RESERVED.search(key) for key in selector)
            fix = commands.edit(about) if isolating else shlex.join(["kubectl", "label", "nodes", "NODE", *wanted])
            return [
                Cause(
                    f"no node has the labels of its nodeSelector ({', '.join(wanted)}), and takes its pods", fix, about
                )
            ]
        text = "no node takes its pods: its node affinity or the taints of the nodes leave none"
        return [Cause(text, commands.edit(about), about)]
    return ()


def _with_deletion(obj: Any, pods: Sequence[core_v1.Pod], found: Sequence[Cause]) -> Sequence[Cause]:
    """Return causes whose fix also deletes a StatefulSet's pod that was not Ready: its controller waits for that one first."""
    about, spec = reference(obj), obj.spec
    if not isinstance(obj, apps_v1.StatefulSet) or spec is None or spec.pod_management_policy == "Parallel":
        return found
    first = next((reference(each) for each in sorted(pods, key=_order) if reference(each) == found[0].about), None)
    if first is None or about.target not in found[0].fix:
        return found
    fix = f"{found[0].fix} && {commands.kubectl('delete', first)}"
    return [msgspec.structs.replace(found[0], fix=fix), *found[1:]]


def _unfinished(obj: apps_v1.Deployment) -> bool:
    wanted = obj.spec.replicas if obj.spec is not None and obj.spec.replicas is not None else 1
    return obj.status is None or (obj.status.updated_replicas or 0) < wanted


async def _refused(diagnosis: Diagnosis, obj: Any) -> Sequence[Cause]:
    """Return the error with which the API server refused the workload's pods."""
    for each in obj.status.conditions if obj.status is not None else ():
        if each.type == "ReplicaFailure" and each.status == "True":
            return [await refusal(diagnosis, obj, each.message or "")]
    return ()


async def refusal(diagnosis: Diagnosis, obj: Any, message: str) -> Cause:
    """Return the cause of an error of the API server for a pod of a workload: a quota, a limit, a policy, a webhook."""
    about = reference(obj)
    text = f"the API server refuses its pods: {message}"
    if found := await webhook_failure(diagnosis, message):
        return msgspec.structs.replace(found, text=f"the API server refuses its pods: {found.text}")
    if "exceeded quota" in message:
        name = message.partition("exceeded quota: ")[2].partition(",")[0]
        return Cause(
            text, commands.kubectl("edit", msgspec.structs.replace(about, kind="ResourceQuota", name=name)), about
        )
    if "serviceaccount" in message and "not found" in message:
        account = message.partition('serviceaccount "')[2].partition('"')[0]
        return Cause(
            text,
            shlex.join(
                ["kubectl", "create", "serviceaccount", commands.named(account), *commands.namespaced(about.namespace)]
            ),
            about,
        )
    return Cause(text, commands.edit(await template_owner(diagnosis.reader, obj)), about)


async def _not_created(diagnosis: Diagnosis, obj: Any, pods: Sequence[core_v1.Pod]) -> Sequence[Cause]:
    """Return the last error of creating a pod, if some are missing."""
    replicas: int | None = getattr(obj.spec, "replicas", None)
    wanted: int = getattr(obj.status, "desired_number_scheduled", 1) if replicas is None else replicas
    if len(pods) >= wanted:
        return ()
    for event in reversed(await diagnosis.reader.events(obj)):
        if event.reason == "FailedCreate":
            return [await refusal(diagnosis, obj, event.message or "")]
    return [Cause(f"{len(pods)} of {wanted} pods have been created so far", about=reference(obj), waits=True)]
