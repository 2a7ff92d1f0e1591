"""Finds why a HorizontalPodAutoscaler does not scale."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kube.api import apps_v1, autoscaling_v2
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.causes.deletion import finalizers
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference

_NO_REQUEST = re.compile(r"missing request for (\S+) in container (\S+)")


async def causes(diagnosis: Diagnosis, obj: autoscaling_v2.HorizontalPodAutoscaler) -> Sequence[Cause]:
    """Return why an autoscaler does not scale its target, or does not scale it further."""
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, diagnosis.reader.now)
    about, conditions = reference(obj), {each.type: each for each in (obj.status.conditions if obj.status else ())}
    target = obj.spec.scale_target_ref if obj.spec is not None else None
    for type_ in ("AbleToScale", "ScalingActive"):
        found = conditions.get(type_)
        if found is not None and found.status == "False":
            return [await _inactive(diagnosis, obj, target, found.reason or "", found.message or "")]
    limited = conditions.get("ScalingLimited")
    if (
        limited is not None
        and limited.status == "True"
        and limited.reason == "TooManyReplicas"
        and obj.spec is not None
    ):
        text = f"it wants more than its maxReplicas ({obj.spec.max_replicas})"
        fix = commands.patch(about, {"spec": {"maxReplicas": 2 * (obj.spec.max_replicas or 1)}})
        return [Cause(text, fix, about)]
    if not conditions:
        return [Cause("no controller has looked at it yet", about=about, waits=True)]
    return ()


async def _inactive(
    diagnosis: Diagnosis,
    obj: autoscaling_v2.HorizontalPodAutoscaler,
    target: autoscaling_v2.CrossVersionObjectReference | None,
    reason: str,
    message: str,
) -> Cause:
    about = reference(obj)
    if reason == "FailedGetScale" and target is not None:
        text = f"its target {target.kind.lower()}/{target.name} cannot be scaled: {message}"
        return Cause(text, commands.edit(about), about)
    if reason == "ScalingDisabled" and target is not None:
        change = Reference(target.kind, target.name, namespace_of(obj))
        return Cause(
            "its target has 0 replicas, which switches it off", commands.kubectl("scale", change, "--replicas=1"), about
        )
    if (found := _NO_REQUEST.search(message)) and target is not None:
        resource, container = found[1], found[2]
        change = Reference(target.kind, target.name, namespace_of(obj))
        amount = "100m" if resource == "cpu" else "128Mi"
        text = f"container {container} of its target has no request for {resource}, of which the use is a percentage"
        return Cause(text, commands.set_resources(change, container, requests=f"{resource}={amount}"), about)
    if "metrics.k8s.io" in message or "unable to fetch metrics" in message or "no metrics returned" in message:
        if target is not None and target.kind == "Deployment":
            deployment = await diagnosis.reader.get(apps_v1.Deployment, target.name, namespace_of(obj))
            if deployment is not None and (others := await diagnosis.causes(deployment)):
                first = others[0]
                return Cause(f"its target {name_of(deployment)} has no metrics: {first.text}", first.fix, first.about)
        text = f"there are no metrics of its pods: {message}"
        return Cause(text, "kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods", about)
    return Cause(f"{reason}: {message}", commands.kubectl("describe", about), about)
