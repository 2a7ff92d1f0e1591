"""Reads trust bundles from the API, by name or by signer and labels.

ClusterTrustBundles are a beta kind that servers do not serve by default, so they are read by their path rather than by the
resource table; where they are not served, the answer is that the bundle does not exist. All pods share what was read.
"""

from __future__ import annotations

import msgspec

from agent.volumes.payload import VolumeError
from kube import serialize
from kube.api import core_v1
from kube.api.certificates_v1beta1 import ClusterTrustBundle
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.expiring_cache import ExpiringCache
from kube.json_object import UNREADABLE
from kube.resources import segment
from kube.selectors import from_label_selector

CACHE_SECONDS, MISSING_SECONDS = 30.0, 5.0
"""Seconds for which a bundle is cached, and for which an optional one is that does not exist."""
ENTRIES, LONGEST = 256, 256 << 10
"""Bundles that are cached; characters of one with what selects it."""
_PATH = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"


class _Bundles(msgspec.Struct):
    items: list[ClusterTrustBundle] = msgspec.field(default_factory=list)


class TrustBundles:
    """Reads ClusterTrustBundles by name, or by signer and labels."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self._client = client
        self._known: ExpiringCache[bytes, str | None] = ExpiringCache(clock, ENTRIES)

    async def read(self, source: core_v1.ClusterTrustBundleProjection) -> str | None:
        """Return the bundle's PEM text, None for a missing optional one. Raise VolumeError."""
        key = msgspec.json.encode((source.name, source.signer_name, source.label_selector, source.optional))
        text, known = self._known.get(key)
        if known:
            return text
        text = await self._read(source)
        if len(key) + len(text or "") <= LONGEST:
            self._known.put(key, text, CACHE_SECONDS if text is not None else MISSING_SECONDS)
        return text

    async def _read(self, source: core_v1.ClusterTrustBundleProjection) -> str | None:
        try:
            if source.name:
                body = await self._client.call("GET", f"{_PATH}/{segment(source.name)}")
                return serialize.decode(body, ClusterTrustBundle).spec.trust_bundle
            query = {"fieldSelector": f"spec.signerName={source.signer_name}"}
            listed = serialize.decode(await self._client.call("GET", _PATH, query=query), _Bundles).items
            found = [bundle for bundle in listed if bundle.spec.signer_name == source.signer_name]
        except StatusError as error:
            if error.not_found and source.optional:
                return None
            raise VolumeError(f"unable to read ClusterTrustBundle: {error}") from error
        except UNREADABLE as error:
            raise VolumeError(f"unable to read ClusterTrustBundle: the server's answer: {error}") from error
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
