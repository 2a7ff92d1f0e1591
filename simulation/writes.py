"""Writes of the users of a simulated cluster, recorded with their outcomes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kube.client import MERGE, STRATEGIC, Client
from kube.errors import StatusError
from simulation.history import History


class Writes:
    """Sends requests that write; none is repeated, as by kubectl."""

    def __init__(self, client: Client, history: History) -> None:
        self._client, self._history = client, history

    async def send(self, method: str, path: str, body: dict[str, Any] | None, *, strategic: bool = False) -> Any:
        """Send a write, record whether it was acknowledged, and return the answer. Raise StatusError."""
        content = (STRATEGIC if strategic else MERGE) if method == "PATCH" else "application/json"
        policy = (body or {}).get("propagationPolicy", "") if method == "DELETE" else ""
        sent = self._history.sent(method, path, asyncio.get_running_loop().time(), policy)
        data = json.dumps(body).encode() if body is not None else b""
        try:
            answer = json.loads(await self._client.call(method, path, body=data, content_type=content))
        except StatusError as error:
            self._history.refused(method, path, error)
            raise
        self._history.acknowledged(method, path, answer, sent)
        return answer
