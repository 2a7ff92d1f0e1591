"""Calling a webhook: HTTPS to a URL or to a Service's endpoint, the certificate checked against the webhook's CA bundle.

A Service is dialled at one of its endpoints, and its certificate must be for NAME.NAMESPACE.svc. Redirects are not followed,
and answers are limited, since what is called is somebody else's program. Each webhook has its own number of calls under way, so
that one that does not answer takes no time from the others (upstream: a client for each, apiserver/pkg/util/webhook/client.go).

Users share these fairly, and the timeout starts when a call is sent. A call that is not sent in time is refused (429) whatever
the webhook's failurePolicy: users with many requests could have a webhook ignored otherwise.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from control.admission.webhooks.contexts import Contexts
from control.admission.webhooks.credentials import Credentials
from control.dialing.node_dialer import check_address
from control.dialing.service_backend import backend
from control.interfaces.lookup import Objects
from kube import bounded_answer
from kube.errors import StatusError, too_many_requests
from kube.fair_places import FairPlaces, NoPlace
from kube.json_object import Object
from kube.tracing import spans

if TYPE_CHECKING:
    import aiohttp

ANSWER_LIMIT, PER_BYTE_SENT = 3 * 1024 * 1024, 2
"""Bytes of an answer, and more for each byte that is sent: a page of objects that are converted is sent at once."""
CALLS, CALLS_OF_ONE = 100, 50
"""Calls of one webhook that are under way at a time, in all and for one user."""
MOST_WAITING, LONGEST_WAIT = 1024, 10.0
"""Calls of one webhook that wait for a user's requests; seconds for which they do."""


class CallFailed(Exception):
    """The call of the webhook failed or timed out."""


class Caller:
    """Posts JSON to webhooks. The pool of connections is made when the first one is called."""

    def __init__(self, lookup: Objects, credentials: Credentials | None = None) -> None:
        self._lookup = lookup
        self._session: aiohttp.ClientSession | None = None
        self._places: WeakValueDictionary[str, FairPlaces] = WeakValueDictionary()
        """By URL, for as long as a webhook is called."""
        self._contexts = Contexts()
        self.credentials = credentials or Credentials()

    async def call(self, client: Object, body: Object | msgspec.Raw, timeout: float, owner: str = "") -> bytes:
        """Post to what an admission or conversion webhook's clientConfig names; raises CallFailed, or 429 if it is not sent.

        `owner` is whose share of the webhook's calls it takes (kube/owners.py).
        """
        import aiohttp  # where nobody has a webhook, its 150 ms of start-up are for nothing

        service = client.get("service")
        shown = str(client.get("url") or "")
        if service:
            host = f"{service['name']}.{service['namespace']}.svc"
            port, path = service.get("port") or 443, service.get("path") or "/"
            shown = f"https://{host}:{port}{path if path.startswith('/') else '/' + path}"
        places = self._places.get(shown)
        if places is None:
            places = self._places[shown] = FairPlaces(CALLS, CALLS_OF_ONE, MOST_WAITING, LONGEST_WAIT)
        shown += ("&" if "?" in shown else "?") + f"timeout={int(timeout)}s"
        try:
            async with places.place(owner), asyncio.timeout(timeout):
                return await self._post(shown, service, client.get("caBundle") or "", body)
        except NoPlace as error:
            why = f'too many requests wait for the webhook "{shown}", please try again later: {error}'
            raise too_many_requests(why) from error
        except TimeoutError as error:
            raise CallFailed(f'failed to call webhook: Post "{shown}": context deadline exceeded') from error
        except (aiohttp.ClientError, OSError, StatusError, ValueError) as error:
            raise CallFailed(f'failed to call webhook: Post "{shown}": {error}') from error

    async def _post(self, url: str, service: Object | None, bundle: str, body: Object | msgspec.Raw) -> bytes:
        import aiohttp
        from yarl import URL

        from kube.http_connector import owner

        target, name = URL(url), None
        if service:
            port = str(service.get("port") or 443)
            address, number = await backend(self._lookup, service["namespace"], service["name"], port)
            name, target = target.host, target.with_host(check_address(address)).with_port(number)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if name:
            headers["Host"] = name
        credential = self.credentials.of(f"{URL(url).host}:{URL(url).port}")
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        if (span := spans.current()) is not None:
            headers["traceparent"] = span.traceparent
        context = await self._contexts.get(bundle, credential, owner(name or target.host or ""))
        data = msgspec.json.encode(body)
        async with self._opened().post(
            target,
            data=data,
            headers=headers,
            ssl=context,
            server_hostname=name,
            timeout=aiohttp.ClientTimeout(total=None),
            allow_redirects=False,
        ) as answer:
            read = await bounded_answer.read(answer, ANSWER_LIMIT + PER_BYTE_SENT * len(data))
            if answer.status != 200:
                raise ValueError(f"the server answered {answer.status} {answer.reason}")
            return read

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        from kube.http_connector import Connector

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=Connector(limit=0, keepalive_timeout=30),
                headers={"User-Agent": "wherry-control"},
            )
        return self._session

    async def close(self) -> None:
        self._contexts.close()
        if self._session is not None:
            await self._session.close()
            self._session = None
