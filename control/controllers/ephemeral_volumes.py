"""Generic ephemeral volumes: a claim for each, made from the pod's own template and owned by the pod.

The claim is named after pod and volume and goes with the pod by garbage collection. One of that name that belongs to somebody
else is left alone and said so: the pod then waits. Upstream: pkg/controller/volume/ephemeral.
"""

from __future__ import annotations

from control.controllers import metrics
from control.controllers.context import Context
from control.controllers.ownership import controller_uid
from control.controllers.pods import is_terminal
from kube.api import core_v1, meta_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of, namespace_of

_MADE = "claims made for pods"
"""Name of the index of pods by the claims of their ephemeral volumes."""


def _made(pod: core_v1.Pod) -> list[str]:
    """Index function: the keys of the claims of a pod's ephemeral volumes."""
    meta = pod.metadata
    return [
        f"{meta.namespace}/{meta.name}-{volume.name}" for volume in pod.spec.volumes if volume.ephemeral is not None
    ]


class EphemeralVolumeController:
    """Follows pods and claims."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder("ephemeral_volume")
        self._pods = context.informers.of(core_v1.Pod)
        self._claims = context.informers.of(core_v1.PersistentVolumeClaim)
        self._pods.add_index(_MADE, _made)
        self.controller = Controller(
            "ephemeral volumes", self.reconcile, workers=6, each=2, queue="ephemeral_volume", clock=context.clock
        )
        self._pods.subscribe(self._pod_changed)
        self._claims.subscribe(self._claim_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        # A pod's volumes do not change, so once is enough.
        if change.type == "ADDED" and any(volume.ephemeral is not None for volume in change.new.spec.volumes):
            self.controller.enqueue(change.key)

    def _claim_changed(self, change: Change[core_v1.PersistentVolumeClaim]) -> None:
        """A claim that went, or that stood in the way: its pod may want another."""
        if change.type != "DELETED":
            return
        for pod in self._pods.by_index(_MADE, change.key):
            self.controller.enqueue(key_of(pod))

    async def reconcile(self, key: str) -> None:
        """Make the claims that one pod lacks."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None or is_terminal(pod):
            return
        for volume in pod.spec.volumes:
            if volume.ephemeral is None:
                continue
            try:
                await self._make(pod, volume)
            except StatusError as error:
                self._recorder.event(pod, "Warning", "FailedBinding", f"ephemeral volume {volume.name}: {error}")
                raise

    async def _make(self, pod: core_v1.Pod, volume: core_v1.Volume) -> None:
        desired = claim_of(pod, volume)
        found = self._claims.get(f"{namespace_of(desired)}/{name_of(desired)}")
        if found is None:
            metrics.CLAIMS_CREATED.add()
            try:
                await self._client.create(desired)
                return
            except StatusError as error:
                metrics.CLAIMS_FAILED.add()
                if not error.already_exists:
                    raise
            found = await self._client.get(core_v1.PersistentVolumeClaim, name_of(desired), namespace_of(desired))
        if controller_uid(found) != pod.metadata.uid:
            why = (
                f'PVC "{namespace_of(desired)}/{name_of(desired)}" was not created for pod '
                f'"{namespace_of(pod)}/{name_of(pod)}" (pod is not owner)'
            )
            self._recorder.event(pod, "Warning", "FailedBinding", f"ephemeral volume {volume.name}: {why}")


def claim_of(pod: core_v1.Pod, volume: core_v1.Volume) -> core_v1.PersistentVolumeClaim:
    """Return the claim of an ephemeral volume, owned by its pod."""
    ephemeral = volume.ephemeral or core_v1.EphemeralVolumeSource()
    template = ephemeral.volume_claim_template or core_v1.PersistentVolumeClaimTemplate()
    owner = meta_v1.OwnerReference(
        api_version="v1",
        kind="Pod",
        name=name_of(pod),
        uid=pod.metadata.uid or "",
        controller=True,
        block_owner_deletion=True,
    )
    metadata = meta_v1.ObjectMeta(
        name=f"{name_of(pod)}-{volume.name}",
        namespace=namespace_of(pod),
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=[owner],
    )
    return core_v1.PersistentVolumeClaim(metadata=metadata, spec=template.spec)
