"""The use of tokens kept in Secrets is recorded: the day in a label of the Secret, and in a ConfigMap since when that is done.

Whoever cleans up unused tokens relies on both. A day is written once a Secret, beside the request, which does not wait for it.
Upstream: pkg/serviceaccount/legacy.go, pkg/controlplane/controller/legacytokentracking.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, timedelta
from typing import Any

from control.auth.secret_tokens import LAST_USED, TRACKING
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError

log = logging.getLogger(__name__)
NAMESPACE = "kube-system"
KEPT_SECONDS = 1800.0
"""How often the ConfigMap is looked for, should somebody delete it."""


class LegacyTokenUse:
    """Notes uses as the authenticator reports them, and writes them with a client of this server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: dict[tuple[str, str], str] = {}
        self._waiting: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()

    def used(self, secret: dict[str, Any]) -> None:
        """Record that a Secret's token was used now."""
        metadata, now = secret["metadata"], self._clock.now().astimezone(UTC)
        today, tomorrow = f"{now:%Y-%m-%d}", f"{now + timedelta(days=1):%Y-%m-%d}"
        key = metadata["namespace"], metadata["name"]
        # Another server's clock may be a little ahead: its day is not taken back.
        if metadata.get("labels", {}).get(LAST_USED) in (today, tomorrow) or self._noted.get(key) == today:
            return
        self._noted[key] = today
        self._waiting.put_nowait((*key, today))

    async def run(self, client: Client) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_since(client), name="since when uses of tokens are noted")
            group.create_task(self._write(client), name="uses of tokens")

    async def _write(self, client: Client) -> None:
        while True:
            namespace, name, day = await self._waiting.get()
            patch = {"metadata": {"labels": {LAST_USED: day}}}
            try:
                await client.patch(core_v1.Secret, name, namespace, patch)
            except StatusError as error:
                self._noted.pop((namespace, name), None)  # the next use tries again
                if not error.not_found:
                    log.warning("the use of the token %s/%s could not be noted: %s", namespace, name, error)

    async def _keep_since(self, client: Client) -> None:
        while True:
            try:
                await self._since(client)
            except StatusError as error:
                log.warning("since when uses of tokens are noted could not be written: %s", error)
            await self._clock.sleep(KEPT_SECONDS)

    async def _since(self, client: Client) -> None:
        try:
            await client.get(core_v1.ConfigMap, TRACKING, NAMESPACE)
        except StatusError as error:
            if not error.not_found:
                raise
            metadata = meta_v1.ObjectMeta(name=TRACKING, namespace=NAMESPACE)
            today = f"{self._clock.now().astimezone(UTC):%Y-%m-%d}"
            try:
                await client.create(core_v1.ConfigMap(metadata=metadata, data={"since": today}))
            except StatusError as refusal:
                if not refusal.already_exists:
                    raise
