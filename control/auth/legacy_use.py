"""Records the use of tokens in Secrets: the day in a label of the Secret, and the start of the recording in a ConfigMap.

The legacy token cleaner relies on both. A day is written once for each Secret; the request does not wait for it.
Upstream: pkg/serviceaccount/legacy.go, pkg/controlplane/controller/legacytokentracking.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, timedelta
from typing import Any

from control.auth.secret_tokens import LAST_USED, TRACKING
from kube import cancellation
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError

log = logging.getLogger(__name__)
NAMESPACE = "kube-system"
KEPT_SECONDS = 1800.0
"""Seconds between checks whether the ConfigMap exists."""

MOST_NOTED = 10_000
"""Secrets of a day that are known to be written, and uses that wait for that. Others are written at a later use."""


class LegacyTokenUse:
    """Notes uses as the authenticator reports them, and writes them with a client of this server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: set[tuple[str, str]] = set()
        """Secrets whose use today is recorded or about to be."""
        self._today = ""
        self._waiting: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()

    def used(self, secret: dict[str, Any]) -> None:
        """Record that a Secret's token was used now."""
        metadata, now = secret["metadata"], self._clock.now().astimezone(UTC)
        today, tomorrow = f"{now:%Y-%m-%d}", f"{now + timedelta(days=1):%Y-%m-%d}"
        key = metadata["namespace"], metadata["name"]
        # Another server's clock may be a little ahead: its day is not taken back.
        if metadata.get("labels", {}).get(LAST_USED) in (today, tomorrow):
            return
        if self._today != today or len(self._noted) >= MOST_NOTED:
            self._today, self._noted = today, set()
        if key in self._noted or self._waiting.qsize() >= MOST_NOTED:
            return
        self._noted.add(key)
        self._waiting.put_nowait((*key, today))

    async def run(self, client: Client) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, lambda: self._keep_since(client), "start of tracking of token use")
            cancellation.start(group, lambda: self._write(client), "uses of tokens")

    async def _write(self, client: Client) -> None:
        while True:
            namespace, name, day = await self._waiting.get()
            patch = {"metadata": {"labels": {LAST_USED: day}}}
            try:
                await client.patch(core_v1.Secret, name, namespace, patch)
            except StatusError as error:
                self._noted.discard((namespace, name))  # the next use tries again
                if not error.not_found:
                    log.warning("the last use of the token %s/%s could not be recorded: %s", namespace, name, error)

    async def _keep_since(self, client: Client) -> None:
        while True:
            try:
                await self._since(client)
            except StatusError as error:
                log.warning("the start of tracking of token use could not be written: %s", error)
            await self._clock.sleep_deferrable(KEPT_SECONDS)

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
