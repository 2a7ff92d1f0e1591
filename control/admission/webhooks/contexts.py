"""TLS settings for calls of webhooks, by CA bundle and credential: made in threads and cached.

To make them takes milliseconds, half a second for the largest bundles that are allowed (`kube/ca_bundles.py`), a call not much
more than one. The cache is limited in entries and in the bundles' length, for OpenSSL's form of a certificate has a few times
the size of the text. A bundle that cannot be used is cached with its error.
"""

from __future__ import annotations

import asyncio
import ssl

from control.admission.webhooks.credentials import Credential
from kube import ca_bundles, client_handshakes

ENTRIES = 64
LENGTH = 4 << 20
"""Characters of all bundles together; the latest bundle is cached in any case."""
Key = tuple[str, Credential]


class Contexts:
    """Settings for the calls of one event loop."""

    def __init__(self) -> None:
        self._made: dict[Key, ssl.SSLContext | str] = {}
        """The settings or an error; the one that was used last is the last."""
        self._creations: dict[Key, asyncio.Task[ssl.SSLContext | str]] = {}
        self._length = 0

    async def get(self, bundle: str, credential: Credential, owner: str) -> ssl.SSLContext:
        """Return settings that trust a bundle, or the machine's authorities without one; raises ValueError and OSError.

        Those of one owner are made one after the other.
        """
        key = bundle, credential
        found = self._made.pop(key, None)
        if found is None:
            found = await self._join(key, owner)
        else:
            self._made[key] = found
        if isinstance(found, str):
            raise ValueError(found)
        return found

    async def _join(self, key: Key, owner: str) -> ssl.SSLContext | str:
        """Create settings, or wait for those in progress; they are completed even if no task waits any more."""
        creation = self._creations.get(key)
        if creation is None:
            creation = asyncio.create_task(self._make(key, owner), name="TLS settings of a webhook")
            self._creations[key] = creation
            creation.add_done_callback(lambda task: self._ended(key, task))
        return await asyncio.shield(creation)

    def _ended(self, key: Key, task: asyncio.Task[ssl.SSLContext | str]) -> None:
        del self._creations[key]
        if not task.cancelled():
            task.exception()  # the waiters may have gone

    async def _make(self, key: Key, owner: str) -> ssl.SSLContext | str:
        bundle, credential = key
        made: list[ssl.SSLContext | str] = []

        def make() -> None:
            try:
                context = ca_bundles.verifying(bundle)
                credential.show(context)
                made.append(context)
            except (ssl.SSLError, ValueError) as error:  # other OSErrors may pass
                made.append(str(error))

        await client_handshakes.compute(make, owner)
        self._made[key] = made[0]
        self._length += len(bundle)
        while len(self._made) > ENTRIES or (self._length > LENGTH and len(self._made) > 1):
            oldest = next(iter(self._made))
            del self._made[oldest]
            self._length -= len(oldest[0])
        return made[0]

    def close(self) -> None:
        """Stop making settings."""
        for task in tuple(self._creations.values()):
            task.cancel()
