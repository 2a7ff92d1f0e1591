"""Events on pods about attachment: it succeeded, it failed, or another node has the volume."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from control.controllers.attach_detach import plan
from kube.api import core_v1, storage_v1
from kube.events import NORMAL, WARNING, EventRecorder
from kube.object_names import name_of

Pods = Mapping[str, Sequence[core_v1.Pod]]
"""The pods of a volume by node."""


class AttachmentEvents:
    """Records the events; `pods_of` finds a volume's pods."""

    def __init__(self, recorder: EventRecorder, pods_of: Callable[[core_v1.PersistentVolume], Pods]) -> None:
        self._recorder, self._pods_of = recorder, pods_of
        self._reported: dict[str, set[str]] = {}
        """Volume to the UIDs of pods with an event that another node has it."""

    def report_result(
        self,
        old: storage_v1.VolumeAttachment,
        new: storage_v1.VolumeAttachment,
        volume: core_v1.PersistentVolume | None,
    ) -> None:
        """Report the result of an attachment on the pods that wait for it, if it is new."""
        if volume is None or new.metadata.deletion_timestamp is not None:
            return
        problem = new.status.attach_error.message if new.status.attach_error else None
        before = old.status.attach_error.message if old.status.attach_error else None
        for pod in self._pods_of(volume).get(new.spec.node_name, ()):
            if new.status.attached and not old.status.attached:
                text = f'AttachVolume.Attach succeeded for volume "{name_of(volume)}" '
                self._recorder.event(pod, NORMAL, "SuccessfulAttachVolume", text)
            elif problem and problem != before:
                self._report_failure(pod, volume, problem)

    def report_timeout(self, volume: core_v1.PersistentVolume, attachment: storage_v1.VolumeAttachment) -> None:
        """Report a timeout (csi_attacher.go), or the driver's last error, on the pods that wait for an attachment."""
        assert volume.spec.csi is not None, volume.metadata.name
        driver, handle = volume.spec.csi.driver, volume.spec.csi.volume_handle
        problem = attachment.status.attach_error.message if attachment.status.attach_error else None
        text = f"timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}"
        for pod in self._pods_of(volume).get(attachment.spec.node_name, ()):
            self._report_failure(pod, volume, problem or text)

    def _report_failure(self, pod: core_v1.Pod, volume: core_v1.PersistentVolume, problem: str) -> None:
        text = f'AttachVolume.Attach failed for volume "{name_of(volume)}" : {problem}'
        self._recorder.event(pod, WARNING, "FailedAttachVolume", text)

    def report_multi_attach(self, volume: core_v1.PersistentVolume, nodes: Sequence[str], pods: Pods) -> None:
        """Report on the pods of some nodes that another node has their volume, once on each."""
        name = name_of(volume)
        if not nodes:
            self.forget(name)
            return
        reported = self._reported.setdefault(name, set())
        for node in nodes:
            others = [pod for where, found in pods.items() if where != node for pod in found]
            for pod in pods[node]:
                if pod.metadata.uid not in reported:
                    reported.add(pod.metadata.uid or "")
                    text = plan.multi_attach_message(name, pod, others)
                    self._recorder.event(pod, WARNING, "FailedAttachVolume", text)

    def forget(self, volume: str) -> None:
        """Forget the reports about a volume for which nothing waits."""
        self._reported.pop(volume, None)
