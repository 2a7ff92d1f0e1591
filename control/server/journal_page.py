"""GET /wherry/v1/journal: entries of the journal about one object, for those who may get the object.

Query: group, version, resource (plural name), namespace, name. Answers JSON: `entries`, the oldest first, and `completeSince`,
the time (seconds since 1970) since which there is an entry for everything. Without any of the options that name an object, it
is a list of entries about many (`journal_list.py`). Everybody who is authenticated may use the path
(ClusterRole wherry:journal); then the object is authorized as a GET of it would be.
"""

from __future__ import annotations

import msgspec

from control.auth import denial
from control.auth.authorizers import decide
from control.auth.user import Authorizer, AuthzAttributes, Decision
from control.custom.definitions import Definitions
from control.http.exchange import Request, Response
from control.server import journal_list
from kube import errors
from kube.journal import Entry, Journal, Page, kind_key, resource_key
from kube.owners import owner_of
from kube.resources import by_path

MOST_BYTES = 1 << 20
"""Memory of the entries of an answer: the newest ones."""


class JournalPage:
    """Handler of the path; `custom` are the custom resources."""

    def __init__(self, journal: Journal | None, custom: Definitions, authorizer: Authorizer) -> None:
        self._journal, self._custom, self._authorizer = journal, custom, authorizer

    async def __call__(self, request: Request) -> Response:
        """Answer; raises 400, 403, and 404 if the journal is off."""
        if self._journal is None:
            raise errors.path_not_found()
        options = ("group", "version", "resource", "namespace", "name")
        group, version, plural, namespace, name = map(request.option, options)
        if not (group or version or plural or name):
            found = await journal_list.listed(self._journal, self._custom, self._authorizer, request)
            return Response(200, msgspec.json.encode(found))
        resource = by_path(group, version, plural) or await self._custom.find_prepared(group, version, plural)
        if resource is None or not name:
            raise errors.bad_request(f"name an object by the query options {', '.join(options)}")
        namespace = namespace if resource.namespaced else ""
        wanted = AuthzAttributes(
            user=request.user,
            verb="get",
            group=group,
            version=version,
            resource=plural,
            namespace=namespace,
            name=name,
        )
        decision, reason = await decide(self._authorizer, wanted, owner_of(request.user.name), request.until_left)
        if decision is not Decision.ALLOW:
            raise denial.denied(wanted, reason)
        keys = (kind_key(group, resource.kind), resource_key(group, plural))
        return Response(200, msgspec.json.encode(self._page(self._journal, keys, namespace, name)))

    def _page(self, journal: Journal, keys: tuple[str, str], namespace: str, name: str) -> Page:
        """Return the newest entries about an object."""
        known = [each for key in keys for each in journal.about(key, namespace, name)]
        known.sort(key=lambda each: each[1].time, reverse=True)
        since, left, found = journal.complete_since(namespace), MOST_BYTES, list[Entry]()
        for cost, entry in known:
            left -= cost
            if left < 0:
                since = max(since, entry.time)
                break
            found.append(entry)
        return Page(found[::-1], since)
