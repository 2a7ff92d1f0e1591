"""Stories of `wherry why` as JSON."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse

from kube.client import Client
from kube.clock import SYSTEM
from kube.errors import StatusError
from wherry.ui.computing import Computing, names
from wherry.why import report, story

MOST_MOMENTS = 500
"""Moments of a story on the page, the newest ones."""
_KIND = re.compile(r"[a-zA-Z][a-zA-Z0-9.-]{0,252}")


class Stories:
    """Stories of objects that one client may read."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._computing = Computing("stories")

    async def answer(self, request: Request) -> JSONResponse:
        """Answer `kind`, `namespace` and `name`. Raise StatusError."""
        kind = request.query_params.get("kind", "")
        namespace, name = names(request, "namespace", "name", optional="namespace", colons=True)
        if not _KIND.fullmatch(kind):
            raise StatusError(400, "BadRequest", "name the kind of an object")
        return await self._computing.answer(partial(self._story, kind, namespace or self._namespace, name))

    async def _story(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        found = await story.compose(self._client, kind, name, namespace, SYSTEM.now())
        if len(found.moments) > MOST_MOMENTS:
            left_out = f"{len(found.moments) - MOST_MOMENTS} older moments, which `wherry why` shows"
            newest, unknown = found.moments[-MOST_MOMENTS:], [*found.unknown, left_out]
            found = msgspec.structs.replace(found, moments=newest, unknown=unknown)
        return report.data(found) | {"nothing": report.NOTHING_WRONG}
