"""Bindings of claims that were written for a pod, and their outcome: bound, not yet, or failed.

A provisioner that cannot make a volume for the chosen node removes the annotation selected-node from the claim: the pod has to
go elsewhere. Upstream: volumebinding/binder.go, checkBindings.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from control.scheduler.framework import BindingFailed
from kube.api import core_v1
from kube.object_names import name_of
from kube.volume_binding import SELECTED_NODE, is_bound

Claim = core_v1.PersistentVolumeClaim
Volume = core_v1.PersistentVolume


class PendingBinding(msgspec.Struct, frozen=True):
    """A claim, and the volume chosen for it (None: a provisioner makes one), both as the server returned them."""

    claim: Claim
    volume: Volume | None

    def is_bound(self, claim: Claim | None, volume: Volume | None, node: str) -> bool:
        """Return whether the claim is bound in its present state.

        Raises BindingFailed if it never will be: a provisioner, for example, removed the annotation selected-node. States older
        than those written are ignored.
        """
        name = name_of(self.claim)
        if claim is None or claim.metadata.uid != self.claim.metadata.uid:
            raise BindingFailed(f'persistentvolumeclaim "{name}" was deleted in the meantime')
        if self.volume is not None:
            if volume is None or volume.metadata.uid != self.volume.metadata.uid:
                raise BindingFailed(f'persistentvolume "{name_of(self.volume)}" was deleted in the meantime')
            if _version(volume) < _version(self.volume):
                return False
            if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
                raise BindingFailed(f'ClaimRef got reset for pv "{name_of(self.volume)}"')
        elif _version(claim) < _version(self.claim):
            return False
        elif not is_bound(claim) and claim.metadata.annotations.get(SELECTED_NODE) != node:
            if not claim.metadata.annotations:
                raise BindingFailed(f'selectedNode annotation reset for PVC "{name}"')
            raise BindingFailed(f'provisioning failed for PVC "{name}"')
        return is_bound(claim)


def check_reachable(
    volume: Volume | None, node: core_v1.Node, includes: Callable[[Volume, core_v1.Node], bool]
) -> None:
    """Raise BindingFailed if a bound volume cannot be used from a node."""
    if volume is not None and not includes(volume, node):
        raise BindingFailed(f'pv "{name_of(volume)}" node affinity doesn\'t match node "{name_of(node)}"')


def _version(obj: Claim | Volume) -> int:
    return int(obj.metadata.resource_version or 0)
