"""Interface between conversion and the webhook client."""

from __future__ import annotations

from typing import Protocol

from kube.json_object import Object


class Webhooks(Protocol):
    """Client of webhooks (control.admission.webhooks.caller)."""

    async def call(self, client: Object, body: Object, timeout: float, owner: str = "") -> bytes:
        """Post to the endpoint of a clientConfig and return the response; raises CallFailed."""
