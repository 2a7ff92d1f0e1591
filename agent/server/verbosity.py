"""PUT /debug/flags/v: sets the log level of the running agent, as upstream's klog verbosity; 4 and more is debug."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

DEBUGGING = 4


async def set_verbosity(request: Request) -> Response:
    """Take the number in the body."""
    text = (await request.body())[:16].decode(errors="replace").strip()
    if not (text.isascii() and text.isdigit()):
        return PlainTextResponse(f'failed set klog.logging.verbosity {text}: parsing "{text}": invalid syntax\n', 400)
    logging.getLogger().setLevel(logging.DEBUG if int(text) >= DEBUGGING else logging.INFO)
    return PlainTextResponse(f"successfully set klog.logging.verbosity to {text}\n")
