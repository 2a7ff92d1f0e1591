"""Finds why a PersistentVolumeClaim is not Bound, and why a volume or claim is not deleted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kube import quantity
from kube.api import core_v1, storage_v1
from kube.object_names import name_of, namespace_of
from kube.selectors import from_label_selector
from wherry.why import commands
from wherry.why.causes.deletion import finalizers
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PROTECTION = {"kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"}


async def claim(diagnosis: Diagnosis, obj: core_v1.PersistentVolumeClaim) -> Sequence[Cause]:
    """Return why a claim is not Bound, or not deleted."""
    if obj.metadata.deletion_timestamp is not None:
        return await _in_use(diagnosis, obj) or finalizers(obj, diagnosis.reader.now)
    phase, about = obj.status.phase if obj.status is not None else None, reference(obj)
    if phase == "Lost":
        text = f"the volume {_volume(obj)} that claim {name_of(obj)} was bound to does not exist any more"
        return [Cause(text, commands.kubectl("delete", about), about)]
    if phase == "Bound":
        return _resize(obj)
    return await _pending(diagnosis, obj)


async def volume(diagnosis: Diagnosis, obj: core_v1.PersistentVolume) -> Sequence[Cause]:
    """Return why a volume is not deleted, or cannot be bound."""
    about, spec = reference(obj), obj.spec
    if obj.metadata.deletion_timestamp is not None:
        ref = spec.claim_ref if spec is not None else None
        if ref is not None and await diagnosis.reader.get(
            core_v1.PersistentVolumeClaim, ref.name or "", ref.namespace or ""
        ):
            text = f"it is deleted when the claim {ref.name} in {ref.namespace} that uses it is deleted"
            return [
                Cause(
                    text,
                    commands.kubectl("delete", Reference("PersistentVolumeClaim", ref.name or "", ref.namespace or "")),
                    about,
                )
            ]
        return finalizers(obj, diagnosis.reader.now)
    phase = obj.status.phase if obj.status is not None else None
    if phase == "Released":
        return [_released(obj)]
    if phase == "Failed":
        return [
            Cause(
                f"its contents could not be deleted: {obj.status.message if obj.status else ''}",
                commands.kubectl("describe", about),
                about,
            )
        ]
    return ()


def _released(obj: core_v1.PersistentVolume) -> Cause:
    """Return the cause of a volume whose claim is gone: its contents are that claim's, and no other's may get them unasked."""
    about, ref = reference(obj), obj.spec.claim_ref if obj.spec is not None else None
    text = "its claim was deleted, and its reclaim policy Retain keeps it and its contents from other claims"
    if ref is None or not ref.name:
        return Cause(text, commands.kubectl("describe", about), about)
    text += f"; the command gives it to a new claim {ref.name} in {ref.namespace} alone"
    again: commands.Spec = {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
    return Cause(text, commands.patch(about, again, merge=True), about)


def _volume(obj: core_v1.PersistentVolumeClaim) -> str:
    return (obj.spec.volume_name if obj.spec is not None else None) or ""


async def _in_use(diagnosis: Diagnosis, obj: core_v1.PersistentVolumeClaim) -> Sequence[Cause]:
    for pod in await diagnosis.reader.all(core_v1.Pod, namespace_of(obj)):
        names = {
            v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim is not None
        }
        if (
            name_of(obj) in names
            and pod.status.phase not in ("Succeeded", "Failed")
            and PROTECTION & set(obj.metadata.finalizers)
        ):
            text = f"claim {name_of(obj)} is deleted when {reference(pod)}, which uses it, has ended"
            return [Cause(text, commands.kubectl("delete", reference(pod)), reference(pod))]
    return ()


def _resize(obj: core_v1.PersistentVolumeClaim) -> Sequence[Cause]:
    for each in obj.status.conditions if obj.status is not None else ():
        if each.type in ("FileSystemResizePending", "Resizing") and each.status == "True":
            text = f"claim {name_of(obj)} is being enlarged: {each.message or each.type}"
            return [Cause(text, about=reference(obj), waits=True)]
    return ()


async def _pending(diagnosis: Diagnosis, obj: core_v1.PersistentVolumeClaim) -> Sequence[Cause]:
    about, name, spec = reference(obj), name_of(obj), obj.spec or core_v1.PersistentVolumeClaimSpec()
    classes = await diagnosis.reader.all(storage_v1.StorageClass)
    wanted = spec.storage_class_name
    if wanted is None:
        return [_no_default(obj, classes)]
    found = next((each for each in classes if name_of(each) == wanted), None)
    if not wanted or found is None:
        if reason := await _no_volume(diagnosis, obj, wanted):
            return [reason]
        text = f"claim {name} names the StorageClass {wanted}, which does not exist"
        return [Cause(text, commands.listing("storageclasses"), about)]
    for event in reversed(await diagnosis.reader.events(obj)):
        if event.reason == "ProvisioningFailed":
            text = f"the volume of claim {name} cannot be provisioned: {event.message or ''}"
            return [Cause(text, commands.kubectl("describe", about), about)]
    if found.volume_binding_mode == "WaitForFirstConsumer" and not obj.metadata.annotations.get(
        "volume.kubernetes.io/selected-node"
    ):
        if consumers := await _consumers(diagnosis, obj):
            return await _of_consumer(diagnosis, obj, consumers[0])
        text = f"claim {name} gets its volume when the first pod that uses it is scheduled (WaitForFirstConsumer)"
        return [Cause(text, about=about, waits=True)]
    if found.provisioner == "kubernetes.io/no-provisioner":
        return [
            await _no_volume(diagnosis, obj, wanted)
            or Cause(f"claim {name} waits to be bound", about=about, waits=True)
        ]
    text = f"claim {name} waits for the program {found.provisioner} of StorageClass {wanted} to provision its volume"
    return [Cause(text, "kubectl get pods -A", about)]


async def _consumers(diagnosis: Diagnosis, obj: core_v1.PersistentVolumeClaim) -> Sequence[core_v1.Pod]:
    """Return the pods that use a claim and have not ended."""
    return [
        pod
        for pod in await diagnosis.reader.all(core_v1.Pod, namespace_of(obj))
        if pod.status.phase not in ("Succeeded", "Failed")
        and any(
            v.persistent_volume_claim is not None and v.persistent_volume_claim.claim_name == name_of(obj)
            for v in pod.spec.volumes
        )
    ]


async def _of_consumer(diagnosis: Diagnosis, obj: core_v1.PersistentVolumeClaim, pod: core_v1.Pod) -> Sequence[Cause]:
    """Return why a claim's first pod has no node: that is what the claim waits for. Nothing if that pod is asked about."""
    waits = f"claim {name_of(obj)} gets its volume when {reference(pod)}, which uses it, is scheduled"
    if diagnosis.is_asked(pod):
        return ()
    found = await diagnosis.causes(pod)
    if not found:
        return [Cause(waits, about=reference(obj), waits=True)]
    return [msgspec.structs.replace(found[0], text=f"{waits}: {found[0].text}")]


def _no_default(obj: core_v1.PersistentVolumeClaim, classes: Sequence[storage_v1.StorageClass]) -> Cause:
    name, about = name_of(obj), reference(obj)
    if not classes:
        text = f"claim {name} names no StorageClass, and the cluster has none"
        return Cause(text, commands.listing("storageclasses"), about)
    if any(each.metadata.annotations.get(DEFAULT_CLASS) == "true" for each in classes):
        return Cause(f"claim {name} has not got the default StorageClass yet", about=about, waits=True)
    chosen = Reference("StorageClass", min(name_of(each) for each in classes))
    text = f"claim {name} names no StorageClass, and none of the cluster's {len(classes)} is the default"
    return Cause(text, commands.patch(chosen, {"metadata": {"annotations": {DEFAULT_CLASS: "true"}}}), about)


async def _no_volume(diagnosis: Diagnosis, obj: core_v1.PersistentVolumeClaim, wanted: str) -> Cause | None:
    """Return why no existing volume fits a claim; None if there is no volume of its class at all and it names one."""
    volumes = [
        v
        for v in await diagnosis.reader.all(core_v1.PersistentVolume)
        if v.spec and (v.spec.storage_class_name or "") == wanted
    ]
    if not volumes:
        if wanted:
            return None
        text = f"claim {name_of(obj)} asks for a volume without StorageClass, and there is none"
        return Cause(text, commands.listing("persistentvolumes"), reference(obj))
    reasons = {name_of(each): _unfit(each, obj) for each in volumes}
    name, reason = min(reasons.items(), key=lambda pair: (len(pair[1]), pair[0]))
    if not reason:
        return Cause(f"claim {name_of(obj)} waits to be bound to volume {name}", about=reference(obj), waits=True)
    text = f"no volume fits claim {name_of(obj)}: {name} {' and '.join(reason)}"
    return Cause(text, commands.listing("persistentvolumes"), reference(obj))


def _unfit(each: core_v1.PersistentVolume, obj: core_v1.PersistentVolumeClaim) -> list[str]:
    spec, wanted = each.spec or core_v1.PersistentVolumeSpec(), obj.spec or core_v1.PersistentVolumeClaimSpec()
    found = []
    if spec.claim_ref is not None and (spec.claim_ref.namespace, spec.claim_ref.name) != (
        namespace_of(obj),
        name_of(obj),
    ):
        found.append(f"belongs to claim {spec.claim_ref.name} in {spec.claim_ref.namespace}")
    size = wanted.resources.requests.get("storage", 0) if wanted.resources is not None else 0
    if quantity.value(spec.capacity.get("storage", 0)) < quantity.value(size):
        found.append(f"has {spec.capacity.get('storage', 0)}, less than {size}")
    if missing := set(wanted.access_modes) - set(spec.access_modes):
        found.append(f"does not allow {', '.join(sorted(missing))}")
    if (spec.volume_mode or "Filesystem") != (wanted.volume_mode or "Filesystem"):
        found.append(f"has the mode {spec.volume_mode or 'Filesystem'}")
    if wanted.selector is not None and not from_label_selector(wanted.selector).matches(each.metadata.labels):
        found.append("does not have the labels of its selector")
    return found
