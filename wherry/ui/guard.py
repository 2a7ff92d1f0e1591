"""Refuses requests that the page itself did not send, and adds the headers that restrict what the page may do.

A page of another site can send requests to a loopback address, under its own name if its DNS answers with this address (DNS
rebinding). Its requests have another Host, another Origin, or a Sec-Fetch-Site that is not this page's.
"""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wherry.ui.origin import Origin

METHODS = ("GET", "POST")
CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The last two let browsers that know them refuse markup from strings (innerHTML)."""
HEADERS = {
    "content-security-policy": CSP,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), usb=()",
}
_RAW = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Guard:
    """An ASGI application around another one, which is served at an origin."""

    def __init__(self, app: ASGIApp, origin: Origin) -> None:
        self._app, self._origin = app, origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_RAW]
            await send(message)

        if scope["type"] != "http":
            return
        refused = self._refusal(scope)
        app = self._app if refused is None else JSONResponse({"message": refused[1]}, refused[0])
        await app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason for which a request is refused; None for one that is allowed."""
        sent: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            sent.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = sent.get("host", [])
        if len(hosts) != 1 or hosts[0].lower() not in (
            self._origin.authority,
            self._origin.url.removeprefix("http://"),
        ):
            return 403, f"the page is only served under {self._origin.url}"
        if scope["method"] not in METHODS:
            return 405, f"the page reads: {' and '.join(METHODS)} are its only methods"
        origins = sent.get("origin", [])
        if origins != [self._origin.url] and (origins or scope["method"] != "GET"):
            return 403, "the request is not from this page: its Origin is another one"
        # A person's own navigation to the page has no data in its answer, and comes from anywhere.
        if scope["path"] != "/" and set(sent.get("sec-fetch-site", ())) - {"same-origin", "none"}:
            return 403, "the request is not from this page: another site sent it"
        return None
