"""Stages of every request: authentication, impersonation, authorization, priority and fairness, the handler, the response.

Authentication and authorization come before any other work, also before a body is read. Then a request needs seats in its
priority level (control/fairness), but not before its body is complete: slow clients would hold the seats of others. A watch
needs seats only until it has begun. Long-running requests (watches, logs, proxies, upgrades) are
not timed; all others have a minute. Whatever goes wrong becomes a Status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable

from control.auth import denial, impersonation
from control.auth.audit import Auditor
from control.auth.authenticators import HEALTH_PATHS
from control.auth.authorizers import decide
from control.auth.request_header import Clearing, request_headers
from control.auth.setup import Auth
from control.auth.user import ANONYMOUS, SYSTEM_MASTERS, AuthzAttributes, Credentials, Decision, UserInfo
from control.config import ControlConfig
from control.event_loop import offload
from control.fairness.fairness import Fairness
from control.http.exchange import Answer, Handler, Request, Response, Upgrade, error_response
from control.interfaces.acting import ACTING
from control.interfaces.requestinfo import RequestInfo, with_query
from control.registry.storing import storage_error
from control.server import auditing, authorizing, journaling, query_selectors, request_spans, warnings
from control.server.metrics import RequestMetrics
from control.storage.store import StoreError
from kube import duration, errors
from kube.errors import StatusError
from kube.exceptions import drop_tracebacks
from kube.fair_steps import FairSteps
from kube.journal import Journal
from kube.owners import owner_of
from kube.selectors import FieldSelector
from kube.step_limit import Limit, OwnerStopped, StepTooLong, limited
from kube.step_shares import Shares
from kube.tracing import spans
from kube.tracing.tracer import Tracer
from kube.uid import new_uid

log = logging.getLogger(__name__)

_LONG_SUBRESOURCES = frozenset({"exec", "attach", "portforward", "proxy", "log"})
_READS = frozenset({"get", "list", "watch"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_AS_STORED = (None, b"application/json")
QUEUE_TIME_DIVISOR = 4
"""Divisor of a request's timeout for its maximum time in a queue: a quarter, as upstream's."""
STEP_SECONDS = 1.0
"""CPU time for which a request may hold the event loop at once; an object of 1 MiB takes some hundredths."""
SHARE, PAUSE = 0.2, 10.0
"""Part of all time that long steps of one user's requests may take; seconds until the next request after one was stopped."""
STREAMS_SECONDS, CONTINUED = 0.005, 64
"""Time of the steps of all streams in an iteration of the event loop, after which further steps wait; number of waiting steps
that continue in one, if they are short. A change wakes all watches at once."""


def request_shares() -> Shares:
    """Return the limits of requests."""
    return Shares("requests", STEP_SECONDS, SHARE, PAUSE)


def fairness_of(config: ControlConfig) -> Fairness:
    """Return the seats and the queue time limit of a configuration."""
    return Fairness(
        config.max_readonly_in_flight + config.max_mutating_in_flight, config.request_timeout / QUEUE_TIME_DIVISOR
    )


class Pipeline:
    """Takes requests from any transport. `resources` serves the API's paths, `finite` all others.

    `list_size` says how many objects a list goes through.
    """

    def __init__(
        self,
        config: ControlConfig,
        auth: Auth,
        resources: Handler,
        finite: Handler,
        fairness: Fairness,
        metrics: RequestMetrics,
        list_size: Callable[[RequestInfo], int],
        auditor: Auditor | None = None,
        tracer: Tracer | None = None,
        shares: Shares | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._journal = journal
        self.config, self.auth = config, auth
        self._resources, self._finite = resources, finite
        self.fairness, self.metrics, self.list_size, self.auditor = fairness, metrics, list_size, auditor
        self._tracer = tracer
        self._clearing = Clearing(request_headers(config))
        self._shares = shares or request_shares()
        self._streams = FairSteps(STREAMS_SECONDS, CONTINUED)

    def add_middleware(self, wrap: Callable[[Handler], Handler]) -> None:
        """Put a handler around that of the API's paths, for requests that begin from now on."""
        self._resources = wrap(self._resources)

    async def answer(self, request: Request, credentials: Credentials, user: UserInfo | None = None) -> Answer:
        """Answer a request. `user` is given by the in-process transport, whose callers need no credentials."""
        start = time.perf_counter()
        answer: Answer
        try:
            limit = Limit(self._shares, pauses=True)
            work = self._answer(request, credentials, user, limit, start)
            # What this process asks itself belongs to work that has limits of its own.
            answer = await (limited(work, limit) if user is None else work)
        except Exception as error:
            # Not a variable: with its traceback it would keep this frame, and the request, until a garbage collection.
            answer = await self._refused(request, _as_status_error(request, error))
            drop_tracebacks(error)
        except BaseException as error:
            if request.span is not None:
                request_spans.cancel(request, error)
            raise
        try:
            auditing.end(request, answer)
            if auditing.waits(request):
                await auditing.settled(request)
            if request.span is not None:
                request_spans.end(request, answer)
            code = 101 if isinstance(answer, Upgrade) else answer.status
            self.metrics.observe(request, answer, code, time.perf_counter() - start)
        except BaseException:
            if not isinstance(answer, Response):
                await answer.close()  # nobody gets it
            raise
        return answer

    async def _refused(self, request: Request, error: StatusError) -> Answer:
        journaling.refused(self._journal, request, error)
        return await _refusal(request, error)

    def stream_limit(self, request: Request) -> Limit:
        """Return the limit of the steps that write a request's stream."""
        return Limit(self._shares, owner_of(request.user.name), spread=self._streams)

    def in_flight(self) -> dict[str, int]:
        """Return how many requests are being served, by kind."""
        return self.metrics.in_flight()

    async def _answer(
        self, request: Request, credentials: Credentials, user: UserInfo | None, limit: Limit, start: float
    ) -> Answer:
        in_process = user is not None
        given = request.headers.get(b"audit-id")
        request.audit_id = given.decode("latin-1")[:64] if given else new_uid()
        if user is None:
            user = await self._authenticated(request, credentials)
            limit.owner = owner_of(user.name)
            if self._clearing.wanted:
                _clear(request, self._clearing)
        info = request.info
        if self._tracer is not None:
            request_spans.begin(self._tracer, request, user, time.perf_counter() - start, in_process=in_process)
        if request.query_string and info.verb == "list" and info.is_resource:
            info = request.info = _queried(request, await query_selectors.naming(request, user.name))
        attributes = authorizing.without_selectors(info, user)
        auditing.begin(self.auditor, request, attributes)
        if auditing.waits(request):
            await auditing.settled(request)
        limit.pauses = not _is_exempt(request, user)
        if limit.pauses and (delay := self._shares.delay(limit.owner)):
            raise _too_many_requests(delay)
        if b"impersonate-" in b" ".join(request.headers):  # as a part of some name, which `wanted` looks at
            user = await self._impersonated(request, user)
        request.user = user
        ACTING.set(owner_of(user.name))
        flow = request.flow = self.fairness.flow(user, info)
        if request.query_string or user is not attributes.user:
            attributes = authorizing.attributes(request, info, user)
        request.attributes = attributes
        client = credentials.client
        anybody = client is not None and request.user.name == ANONYMOUS
        handler = self._resources if info.is_resource else self._finite
        authorized = self._authorize(request, attributes, client.who if anybody else limit.owner)
        if request.span is None:
            await authorized
        else:
            await spans.within("authorization", authorized)
            handler = request_spans.handled(handler, info)
        if info.verb != "watch" and _long_running(info):
            return _finish(request, await handler(request))
        if request.collect is not None and request.method in _WITH_BODY:
            await request.collect(self.config.max_body_bytes)
        width, level = 1, flow.level
        if info.verb == "list" and not level.exempt:
            width = self.fairness.width(self.list_size(info))
        if not level.enter(width):
            with spans.child("priorityandfairness"):
                await self.fairness.wait(flow, width, user, info)
        try:
            with self.fairness.executing(flow):
                return await self._in_flight(request, info, handler)
        finally:
            level.leave(width)

    async def _authenticated(self, request: Request, credentials: Credentials) -> UserInfo:
        """Return the user of the request's credentials; a refusal is audited before it is raised."""
        try:
            user = await self.auth.authenticator.authenticate(credentials)
            if user is None:
                user = self.auth.anonymous.user(_health_root(request.path), request.method)
                if user is None:
                    raise errors.unauthorized()
        except StatusError:
            # Selectors are not parsed for nobody: this event has no name from one.
            with contextlib.suppress(StatusError):
                request.info = _queried(request, FieldSelector())
            auditing.begin(self.auditor, request, authorizing.without_selectors(request.info, UserInfo("")))
            await auditing.settled(request)
            raise
        return user

    async def _impersonated(self, request: Request, user: UserInfo) -> UserInfo:
        """Return the user that the request's headers name, if its user may impersonate that one; else the user itself."""
        whom = impersonation.wanted(request.extensions.get("headers") or request.headers.items())
        if whom is None:
            return user
        asked = authorizing.attributes(request, request.info, user)
        acting = await impersonation.impersonate(asked, whom, self.auth.authorizer)
        if request.note is not None:
            request.note.impersonates(acting.user, acting.constraint)
        return acting.user

    async def _authorize(self, request: Request, attributes: AuthzAttributes, asker: str) -> None:
        decision, reason = await decide(self.auth.authorizer, attributes, asker, request.until_left)
        note = request.note
        if note is not None:
            note.decided(allowed=decision is Decision.ALLOW, reason=reason)
        if decision is not Decision.ALLOW:
            error = denial.denied(attributes, reason)
            journaling.denied(self._journal, attributes, error)
            raise error
        if self._journal is not None:
            request.extensions[journaling.AUTHORIZED] = True

    async def _in_flight(self, request: Request, info: RequestInfo, handler: Handler) -> Answer:
        reading, metrics = info.verb in _READS, self.metrics
        if reading:
            metrics.reading += 1
        else:
            metrics.writing += 1
        try:
            limit = self.config.request_timeout
            if request.query_string and b"timeout=" in request.query_string:
                limit = requested_timeout(request, limit)
            elif info.verb == "get" and not info.subresource and request.headers.get(b"accept") in _AS_STORED:
                # As memory holds it. What waits for freshness has a limit of its own; other forms may wait for a turn.
                return _finish(request, await handler(request))
            async with asyncio.timeout(limit):
                return _finish(request, await handler(request))
        finally:
            if reading:
                metrics.reading -= 1
            else:
                metrics.writing -= 1


def _too_many_requests(delay: float) -> StatusError:
    return errors.too_many_requests("too many requests, please try again later", math.ceil(delay))


def _as_status_error(request: Request, error: Exception) -> StatusError:
    """Return the Status of a request that failed; log errors that are not the client's."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, StoreError):
        log.error("%s %s (audit %s): %s", request.method, request.path, request.audit_id, error)
        return storage_error(error)
    if isinstance(error, OwnerStopped):
        return _too_many_requests(PAUSE)
    if isinstance(error, StepTooLong):
        log.error("%s %s (audit %s): %s", request.method, request.path, request.audit_id, error)
    if isinstance(error, TimeoutError | StepTooLong):
        return errors.timeout("request did not complete within the allotted timeout")
    log.error("%s %s (audit %s) failed", request.method, request.path, request.audit_id, exc_info=error)
    return errors.internal(f"{type(error).__name__} while serving the request")


async def _refusal(request: Request, error: StatusError) -> Answer:
    accept = request.header(b"accept")
    if len(error.message) < offload.LARGE:
        return _finish(request, error_response(error, accept, pretty=request.pretty))
    # It repeats much of a body, which takes tens of milliseconds to write as YAML.
    user = getattr(request, "user", None)
    try:
        answer = await offload.apart(
            user.name if user is not None else "", error_response, error, accept, pretty=request.pretty
        )
    except StatusError as timeout:
        answer = error_response(timeout, accept, pretty=request.pretty)
    return _finish(request, answer)


def _clear(request: Request, clearing: Clearing) -> None:
    """Remove the user headers of a front proxy, which any client can send."""
    pairs = request.extensions.get("headers")
    if pairs is not None:
        request.extensions["headers"] = [(name, value) for name, value in pairs if not clearing.clears(name)]
    for name in [name for name in request.headers if clearing.clears(name)]:
        del request.headers[name]


def _queried(request: Request, fields: FieldSelector) -> RequestInfo:
    """Return a request's info, refined by its query."""
    info = request.info
    return (
        with_query(info, watch=bool(request.flag("watch")), fields=fields)
        if info.is_resource and info.verb == "list"
        else info
    )


def requested_timeout(request: Request, limit: float) -> float:
    """Return the timeout of a request in seconds: its `timeout`, at most `limit`; raises 400."""
    text = request.option("timeout")
    if not text:
        return limit
    try:
        seconds = duration.parse(text)
    except ValueError:
        message = f'invalid timeout specified in the request URL: time: invalid duration "{text}"'
        raise errors.bad_request(message) from None
    return min(seconds, limit) if seconds > 0 else limit


def _long_running(info: RequestInfo) -> bool:
    """Return whether a request has neither a timeout nor seats; upstream: BasicLongRunningRequestCheck."""
    return info.is_resource and (info.verb in ("watch", "proxy") or info.subresource in _LONG_SUBRESOURCES)


def _is_exempt(request: Request, user: UserInfo) -> bool:
    """Return whether a request is served however much time its user has taken: an administrator's, or a health check."""
    return SYSTEM_MASTERS in user.groups or _health_root(request.path) in HEALTH_PATHS


def _health_root(path: str) -> str:
    """Return /readyz for /readyz/ping: the checks are as open as the whole."""
    root = "/" + path.split("/", 2)[1] if path.count("/") > 1 else path
    return root if root in HEALTH_PATHS else path


def _finish(request: Request, answer: Answer) -> Answer:
    """Add the headers that every answer carries."""
    if isinstance(answer, Upgrade):
        return answer
    headers = answer.headers
    if request.flow is not None:
        headers += request.flow.headers
    headers.append((b"audit-id", request.audit_id.encode("latin-1", "replace")))
    for name, _ in headers:
        if name == b"cache-control":
            break
    else:
        headers.append((b"cache-control", b"no-cache, private"))
    if request.warnings:
        headers += warnings.headers(request.warnings)
    return answer
