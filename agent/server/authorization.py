"""Authorizes requests to the kubelet's API: each is a verb on a subresource of this node, decided by a SubjectAccessReview.

Paths map to subresources as upstream's do, with its fine-grained ones (KEP-2862): for some the narrow subresource is checked
first, then nodes/proxy. Unlike upstream, running something in a container is `create` even if the request is a GET (as of a
WebSocket): read access to nodes/proxy must not be enough for exec.
"""

from __future__ import annotations

import hashlib
import posixpath

import msgspec

from kube.api import authorization_v1
from kube.client import Client
from kube.client_waits import Waiting
from kube.clock import Clock
from kube.delegated_authentication import User
from kube.delegated_reviews import places, reviewed
from kube.expiring_cache import ExpiringCache
from kube.fair_places import FairPlaces
from kube.reviews import Reviews

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COMMANDS = ("/exec", "/attach", "/run", "/portforward")
_SUBRESOURCES = (
    ("/stats", ("stats",)),
    ("/metrics", ("metrics",)),
    ("/logs", ("log",)),
    ("/checkpoint", ("checkpoint",)),
    ("/pods", ("pods", "proxy")),
    ("/runningpods", ("pods", "proxy")),
    ("/healthz", ("healthz", "proxy")),
    ("/configz", ("configz", "proxy")),
    ("/statusz", ("statusz",)),
    ("/flagz", ("configz",)),
)
"""The subresources of paths. /logs are the node's system logs. Paths that are not named, /containerLogs among them, are
nodes/proxy as in upstream (pkg/kubelet/server/auth.go)."""


def attributes(method: str, path: str) -> tuple[str, tuple[str, ...]]:
    """Return the verb and the subresources to check, any of which suffices.

    The path is read as the most generous router would: with repeated slashes and dots resolved, in any case.
    """
    lower = posixpath.normpath("/" + path.lower().lstrip("/"))
    if any(lower == prefix or lower.startswith(prefix + "/") for prefix in _COMMANDS):
        return "create", ("proxy",)
    verb = _VERBS.get(method, "")
    for prefix, subresources in _SUBRESOURCES:
        if lower == prefix or lower.startswith(prefix + "/"):
            return verb, subresources
    return verb, ("proxy",)


def is_plain(path: str) -> bool:
    """Return whether a decoded path has no segments ".", ".." or "", except for a slash at its end.

    Only such a path means the same everywhere: ".." behind a link leads elsewhere in a file system than in text.
    """
    segments = path[1:].removesuffix("/").split("/")
    return path == "/" or (path[:1] == "/" and not {"", ".", ".."}.intersection(segments))


class Authorizer:
    """Asks the API server (SubjectAccessReview) and caches decisions; `client` is None if everything is allowed.

    Times are in seconds; `line` is shared with the authenticator.
    """

    def __init__(
        self,
        client: Client | None,
        node: str,
        clock: Clock,
        *,
        allowed_seconds: float,
        denied_seconds: float,
        line: FairPlaces | None = None,
    ) -> None:
        self._client = client
        self._node = node
        self._reviews: Reviews[bool] = Reviews(line or places())
        self._answers: ExpiringCache[tuple[object, ...], bool] = ExpiringCache(clock)
        self._allowed_seconds = allowed_seconds
        self._denied_seconds = denied_seconds

    async def forbidden(self, user: User, method: str, path: str, connection: Waiting | None = None) -> str:
        """Return why the request is forbidden, "" when it is allowed. Raise StatusError without an answer of the API server."""
        if self._client is None:
            return ""
        verb, subresources = attributes(method, path)
        for subresource in subresources:
            if await self._ask(self._client, user, verb, subresource, connection):
                return ""
        names = " ".join(subresources)
        return f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{names}])"

    async def _ask(self, client: Client, user: User, verb: str, subresource: str, connection: Waiting | None) -> bool:
        key = (user.name, user.groups, user.uid, tuple(sorted(user.extra.items())), verb, subresource)
        answer, found = self._answers.get(key)
        if found:
            return bool(answer)
        return await reviewed(
            self._reviews,
            connection,
            hashlib.sha256(msgspec.json.encode(key)).digest(),
            lambda: self._answers.get(key)[0],
            lambda wanted: self._send(client, user, verb, subresource, key),
        )

    async def _send(self, client: Client, user: User, verb: str, subresource: str, key: tuple[object, ...]) -> bool:
        spec = authorization_v1.SubjectAccessReviewSpec(
            user=user.name,
            groups=list(user.groups),
            uid=user.uid or None,
            extra={name: list(values) for name, values in user.extra.items()},
            resource_attributes=authorization_v1.ResourceAttributes(
                verb=verb, version="v1", resource="nodes", subresource=subresource, name=self._node
            ),
        )
        review = await client.create(authorization_v1.SubjectAccessReview(spec=spec))
        allowed = bool(review.status.allowed)
        self._answers.put(key, allowed, self._allowed_seconds if allowed else self._denied_seconds)
        return allowed
