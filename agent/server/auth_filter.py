"""Authenticates, authorizes, counts and traces every request.

The filter wraps the whole application, so no route can be forgotten; sessions (exec, attach, port-forward) begin as HTTP
requests and are checked like all others.
"""

from __future__ import annotations

import math
import time
from typing import Any

from starlette.types import Receive, Scope, Send

from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.server.authorization import Authorizer, is_plain
from agent.server.request_metrics import RequestMetrics, bucket
from agent.server.sessions import answer
from kube.delegated_authentication import ANONYMOUS, Authenticator
from kube.errors import StatusError
from kube.fair_steps import FairSteps
from kube.step_limit import Limit, limited
from kube.step_shares import Shares
from kube.tracing import spans
from kube.tracing.spans import Attribute, Span
from kube.tracing.tracer import Tracer

STEP_SECONDS = 1.0
"""CPU time for which a request may hold the event loop at once."""
SHARE, PAUSE = 0.2, 10.0
"""Part of all time that the steps of one user's requests may take; seconds until the next request after one was stopped."""
ITERATION_SECONDS = 0.005
"""CPU time of the steps of all requests in one iteration of the event loop, before the next one."""
_MASTERS = "system:masters"
_API_SERVER = "kube-apiserver-kubelet-client"
"""Name of the API server's client certificate, as kubeadm and Wherry issue it."""
_shares = Shares("kubelet requests", STEP_SECONDS, SHARE, PAUSE, FairSteps(ITERATION_SECONDS), every_step=True)


class AuthFilter:
    """Passes authenticated and authorized requests on to the application; counts all requests."""

    def __init__(
        self,
        app: Any,
        authenticator: Authenticator,
        authorizer: Authorizer,
        requests: RequestMetrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._tracer = tracer
        self._requests = requests or RequestMetrics(KubeletMetrics())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate, authorise, pass on."""
        limit = Limit(_shares)
        with self._requests.counted(scope):
            await limited(self._answer(scope, receive, send, limit), limit)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, limit: Limit) -> None:
        if scope["type"] == "http":
            authorization = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"authorization"), "")
            certificate = scope.get("extensions", {}).get("tls", {}).get("client_certificate")
            connection = scope.get("extensions", {}).get("client")
            try:
                user = await self._authenticator.authenticate(certificate, authorization, connection)
                if user is None:
                    await answer(send, 401, "Unauthorized")
                    return
                identified = scope.get("extensions", {}).get("identified")
                if identified is not None and user is not ANONYMOUS:
                    identified(user.name)
                limit.owner = user.name
                limit.every_step = user.name != _API_SERVER  # it forwards requests of many users
                if (delay := _shares.delay(user.name)) and _MASTERS not in user.groups:
                    await answer(send, 429, f"too many requests, please try again in {math.ceil(delay)} seconds")
                    return
                if not is_plain(scope["path"]):
                    await answer(send, 400, "invalid path")
                    return
                refused = await self._authorizer.forbidden(user, scope["method"], scope["path"], connection)
            except StatusError as error:
                if error.code == 429:
                    await answer(send, 429, error.message)
                    return
                await answer(send, 500, f"Authorization error: {error}")
                return
            if refused:
                await answer(send, 403, refused)
                return
            if self._tracer is not None:
                trusted = _MASTERS in user.groups or user.name == _API_SERVER
                with spans.active(_span(self._tracer, scope, trusted=trusted)):
                    await self._app(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _span(tracer: Tracer, scope: Scope, *, trusted: bool) -> Span:
    """Begin the span of a request; only the API server's and an administrator's trace is continued."""
    header = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"traceparent"), "")
    method, path = scope["method"], "/" + bucket(scope["path"])
    attributes: dict[str, Attribute] = {"http.request.method": method, "http.route": path}
    return tracer.accept(f"{method} {path}", header, attributes, time.time_ns(), trusted=trusted)
