"""What volumes are made of that lives behind the API: claims with their PersistentVolumes, and trust bundles."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent.volumes.local_path import LocalPathVolumes
from agent.volumes.payload import VolumeError
from kube.api import core_v1
from kube.api.certificates_v1beta1 import ClusterTrustBundle
from kube.client import Client
from kube.errors import StatusError
from kube.selectors import from_label_selector


class ClaimReader:
    """Finds the host's path behind a persistentVolumeClaim (hostPath and local PersistentVolumes)."""

    def __init__(self, client: Client, local_path: LocalPathVolumes) -> None:
        self._client, self._local_path = client, local_path

    async def resolve(self, pod: core_v1.Pod, volume: core_v1.Volume) -> tuple[Path, bool]:
        """Return the path and whether it is read-only. Raise VolumeError."""
        namespace = pod.metadata.namespace or ""
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        else:
            name = f"{pod.metadata.name}-{volume.name}"
        try:
            claim = await self._client.get(core_v1.PersistentVolumeClaim, name, namespace)
            if claim.status.phase != "Bound" or not claim.spec.volume_name:
                raise VolumeError(f'PVC "{namespace}/{name}" is not bound')
            persistent = await self._client.get(core_v1.PersistentVolume, claim.spec.volume_name)
        except StatusError as error:
            raise VolumeError(f"error processing PVC {namespace}/{name}: {error}") from error
        owner = persistent.spec.claim_ref
        if owner is None or owner.uid != claim.metadata.uid:
            raise VolumeError(f'PV "{claim.spec.volume_name}" is bound to another claim')
        read_only = bool(volume.persistent_volume_claim and volume.persistent_volume_claim.read_only)
        if persistent.spec.host_path is not None:
            path = Path(persistent.spec.host_path.path)
            if (persistent.spec.host_path.type or "") == "DirectoryOrCreate":
                await asyncio.to_thread(path.mkdir, parents=True, exist_ok=True)
            return path, read_only
        if persistent.spec.local is not None:
            path = Path(persistent.spec.local.path)
            await asyncio.to_thread(self._local_path.prepare, path)
            if not await asyncio.to_thread(path.exists):
                raise VolumeError(f'path "{path}" does not exist')
            return path, read_only
        raise VolumeError(f'PV "{claim.spec.volume_name}": no volume plugin matched')


class TrustBundles:
    """Reads ClusterTrustBundles by name, or by signer and labels."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, source: core_v1.ClusterTrustBundleProjection) -> str | None:
        """Return the bundle's PEM text, None for a missing optional one. Raise VolumeError."""
        try:
            if source.name:
                bundle = await self._client.get(ClusterTrustBundle, source.name)
                return bundle.spec.trust_bundle
            field = f"spec.signerName={source.signer_name}"
            found = (await self._client.list(ClusterTrustBundle, field_selector=field)).items
        except StatusError as error:
            if error.not_found and source.optional:
                return None
            raise VolumeError(f"unable to read ClusterTrustBundle: {error}") from error
        # Without a selector nothing is chosen; an empty one chooses all of the signer's.
        selector = from_label_selector(source.label_selector) if source.label_selector is not None else None
        chosen = [b for b in found if selector is not None and selector.matches(b.metadata.labels)]
        if not chosen:
            if source.optional:
                return None
            raise VolumeError(f"combination of signerName {source.signer_name!r} and labelSelector matched nothing")
        blocks = dict.fromkeys(block for b in chosen for block in _blocks(b.spec.trust_bundle))
        return "".join(blocks)


def _blocks(pem: str) -> list[str]:
    end = "-----END CERTIFICATE-----"
    return [part.strip() + f"\n{end}\n" for part in pem.split(end) if part.strip()]
