"""Stories of `wherry why` as JSON."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import Request
from starlette.responses import JSONResponse

from kube.client import Client
from kube.clock import SYSTEM
from kube.errors import StatusError
from wherry.errors import WherryError
from wherry.ui.places import Places
from wherry.why import report, story

AT_A_TIME = 4
SECONDS = 30.0
_KIND = re.compile(r"[a-zA-Z][a-zA-Z0-9.-]{0,252}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.:-]{0,251}[a-z0-9])?")


class Stories:
    """Stories of objects that one client may read."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._places = Places(AT_A_TIME, "stories")

    async def answer(self, request: Request) -> JSONResponse:
        """Answer `kind`, `namespace` and `name`. Raise StatusError."""
        kind, namespace, name = (request.query_params.get(each, "") for each in ("kind", "namespace", "name"))
        if not _KIND.fullmatch(kind) or not _NAME.fullmatch(name) or (namespace and not _NAME.fullmatch(namespace)):
            raise StatusError(400, "BadRequest", "name one object with kind, namespace and name")
        try:
            with self._places.one():
                async with asyncio.timeout(SECONDS):
                    found = await story.compose(self._client, kind, name, namespace or self._namespace, SYSTEM.now())
        except WherryError as error:
            raise StatusError(404, "NotFound", str(error)) from error
        except TimeoutError as error:
            raise StatusError(504, "Timeout", f"the story is not complete after {SECONDS:g} s") from error
        return JSONResponse(report.data(found) | {"nothing": report.NOTHING_WRONG})
