"""Interface of conversion to the webhook client."""

from __future__ import annotations

from typing import Any, Protocol

Object = dict[str, Any]


class Webhooks(Protocol):
    """Client of webhooks (control.admission.webhooks.caller)."""

    async def call(self, client: Object, body: Object, timeout: float) -> bytes:
        """Post to what a clientConfig names and return the answer; raises CallFailed."""
