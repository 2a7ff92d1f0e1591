"""Answers that are computed from many reads: some at a time, each within a time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse

from kube.errors import StatusError
from wherry.errors import WherryError
from wherry.ui.paths import NAME
from wherry.ui.places import Places

AT_A_TIME = 4
SECONDS = 30.0
_NAME = re.compile(NAME)
_WITH_COLONS = re.compile(r"[a-z0-9](?:[a-z0-9.:-]{0,251}[a-z0-9])?")
"""Names of roles too; a node's name may have none, since a port would follow it."""


class Computing:
    """One kind of answers, with the name that errors have for them."""

    def __init__(self, name: str) -> None:
        self._name, self._places = name, Places(AT_A_TIME, name)

    async def answer(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> JSONResponse:
        """Return what `work` computes. Raise StatusError."""
        try:
            with self._places.one():
                async with asyncio.timeout(SECONDS):
                    return JSONResponse(await work())
        except WherryError as error:
            raise StatusError(404, "NotFound", str(error)) from error
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise StatusError(502, "BadGateway", "an answer of the API server cannot be read") from error
        except TimeoutError as error:
            raise StatusError(504, "Timeout", f"the {self._name} are not complete after {SECONDS:g} s") from error


def names(request: Request, *wanted: str, optional: str = "", colons: bool = False) -> list[str]:
    """Return parameters that are names of objects or namespaces. Raise StatusError 400 if one is not."""
    pattern = _WITH_COLONS if colons else _NAME
    found = [request.query_params.get(each, "") for each in wanted]
    if any(
        not pattern.fullmatch(value) for name, value in zip(wanted, found, strict=True) if value or name != optional
    ):
        raise StatusError(400, "BadRequest", f"name one object with {' and '.join(wanted)}")
    return found
