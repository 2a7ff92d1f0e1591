"""Trust bundles: certificates that live behind the API, by name or by signer and labels."""

from __future__ import annotations

from agent.volumes.payload import VolumeError
from kube.api import core_v1
from kube.api.certificates_v1beta1 import ClusterTrustBundle
from kube.client import Client
from kube.errors import StatusError
from kube.selectors import from_label_selector


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
