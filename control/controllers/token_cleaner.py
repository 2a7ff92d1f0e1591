"""Bootstrap token cleaner: a bootstrap token is deleted the moment it expires. Upstream: pkg/controller/bootstrap."""

from __future__ import annotations

import base64
import binascii
import logging
from datetime import datetime

from control.controllers.context import Context
from kube.api import core_v1
from kube.clock import parse_time
from kube.controller import Controller
from kube.deletion import delete_if_present
from kube.object_names import name_of, namespace_of

log = logging.getLogger(__name__)
TYPE = "bootstrap.kubernetes.io/token"


def expires_in(secret: core_v1.Secret, now: datetime) -> float | None:
    """Return the seconds until a token expires; None if it never does. One that cannot be read has expired."""
    text = secret.data.get("expiration")
    if not text:
        return None
    try:
        return (parse_time(base64.b64decode(text).decode()) - now).total_seconds()
    except (ValueError, binascii.Error):
        return 0.0


class TokenCleaner:
    """Follows the bootstrap tokens in kube-system."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._secrets = context.informers.filtered(core_v1.Secret, "kube-system", field_selector=f"type={TYPE}")
        self.controller = Controller(
            "token cleaner", self.reconcile, workers=1, queue="token_cleaner", clock=context.clock
        )
        self._secrets.subscribe(lambda change: self.controller.enqueue(change.key))

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    async def reconcile(self, key: str) -> float | None:
        """Delete one token, or come back when it expires."""
        secret = self._secrets.get(key)
        wait = expires_in(secret, self._clock.now()) if secret is not None else None
        if secret is None or wait is None or wait > 0:
            return wait
        await delete_if_present(
            self._client, core_v1.Secret, name_of(secret), namespace_of(secret), uid=secret.metadata.uid or ""
        )
        return None
