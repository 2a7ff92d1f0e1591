"""Clients for controllers in a process of their own, each with the token of its service account (TokenRequest).

They share one transport without a credential. An account is made where it is missing, and its token requested as the manager,
when a controller first needs it; it is requested again when a fifth of its hour is left, or when the server refuses it
(client-go's and controller-manager's clientbuilder).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from control.controllers import controller_accounts
from control.controllers.identities import NAMESPACE, account_user
from kube.api import authentication_v1, core_v1
from kube.build import user_agent
from kube.client import Client, Response
from kube.clock import SYSTEM, Clock, parse_time
from kube.errors import StatusError
from kube.kubeconfig import Access
from kube.transport import HttpsTransport

TOKEN_SECONDS, LEEWAY = 3600, 0.2
SHORTEST_LIFE = 600.0
"""Seconds that a token is taken to live at least, whatever our clock makes of its end."""


class AccountClients:
    """Shared state of controllers' clients. Create and close it inside a running loop."""

    def __init__(self, access: Access, manager: Client, command: str, clock: Clock = SYSTEM) -> None:
        nobody = dataclasses.replace(
            access, certificate=None, key=None, certificate_file="", key_file="", token="", token_file=""
        )
        self.transport = HttpsTransport(nobody, command)
        self._manager, self._command, self._clock = manager, command, clock

    def acting_as(self, account: str) -> AccountTransport:
        """Return the transport that sends as an account of kube-system."""
        return AccountTransport(self.transport, self._manager, account, self._command, self._clock)

    async def aclose(self) -> None:
        await self.transport.close()


class AccountTransport:
    """A `Transport` that sends as one service account of kube-system."""

    def __init__(
        self, transport: HttpsTransport, manager: Client, account: str, command: str, clock: Clock = SYSTEM
    ) -> None:
        self._transport, self._manager, self._account, self._clock = transport, manager, account, clock
        self._agent = user_agent(command, account_user(account).name)
        self._token, self._renew_at = "", float("-inf")
        self._request_lock = asyncio.Lock()

    async def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Response:
        """Send a request and return the whole answer. Raises StatusError if there is no token available."""
        for last in (False, True):
            ours = await self._headers()
            sent = {**(headers or {}), **ours}
            answer = await self._transport.request(method, path, headers=sent, **options)
            if answer.status != 401 or last:
                break
            self._forget(ours)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """GET a long answer in chunks; an answer other than 200 raises StatusError on entry."""
        ours = await self._headers()
        try:
            async with self._transport.stream(path, query=query, headers=ours) as chunks:
                yield chunks
        except StatusError as error:
            if error.code == 401:
                self._forget(ours)  # whoever watches tries again
            raise

    async def close(self) -> None:
        """Nothing of its own is held."""

    # -- the token --------------------------------------------------------------------------------------------------
    async def _headers(self) -> dict[str, str]:
        async with self._request_lock:
            if self._clock.monotonic() >= self._renew_at:
                await self._renew()
            return {"Authorization": f"Bearer {self._token}", "User-Agent": self._agent}

    def _forget(self, refused: Mapping[str, str]) -> None:
        """Request another token, unless that was done since this one was sent."""
        if refused["Authorization"] == f"Bearer {self._token}":
            self._renew_at = float("-inf")

    async def _renew(self) -> None:
        await controller_accounts.ensure(self._manager, self._account)
        request = authentication_v1.TokenRequest(
            spec=authentication_v1.TokenRequestSpec(expiration_seconds=TOKEN_SECONDS)
        )
        now = self._clock.monotonic()
        made = await self._manager.post(core_v1.ServiceAccount, self._account, NAMESPACE, "token", request)
        status = msgspec.json.decode(made, type=authentication_v1.TokenRequest).status
        life = (parse_time(status.expiration_timestamp or "") - self._clock.now()).total_seconds()
        self._token, self._renew_at = status.token or "", now + max(life, SHORTEST_LIFE) * (1 - LEEWAY)
