"""GET /wherry/v1/journal: entries of the journal about one object, for those who may get the object.

Query: group, version, resource (plural name), namespace, name. Answers JSON: `entries`, the oldest first, and `completeSince`,
the time (seconds since 1970) since which there is an entry for everything. Without any of the options that name an object, it
is a list of entries about many (`journal_list.py`). Everybody who is authenticated may use the path
(ClusterRole wherry:journal); then the object is authorized as a GET of it would be.

An object's entries end with the object: the next owner of its name, or of its namespace's name, gets none about a former one.
Denied requests are answered for namespace `(denied)` and name `NAMESPACE/NAME` (or `NAME`, if the kind has no namespaces), to
those who may get such objects in all namespaces.
"""

from __future__ import annotations

import heapq
import math

import msgspec

from control.auth import denial
from control.auth.authorizers import decide
from control.auth.user import Authorizer, AuthzAttributes, Decision
from control.custom.definitions import Definitions
from control.http.exchange import Request, Response
from control.registry.conversion import conversion
from control.registry.registry import Registry
from control.server import journal_list
from kube import errors
from kube.journal import DENIED, Entry, Journal, Page, begin_of, kind_key, of_present, resource_key
from kube.json_object import Object
from kube.owners import owner_of
from kube.resources import Resource, by_path

MOST_BYTES = 1 << 20
"""Memory of the entries of an answer: the newest ones."""
_found = by_path("", "v1", "namespaces")
assert _found is not None
_NAMESPACES = _found


class JournalPage:
    """Handler of the path; `custom` are the custom resources."""

    def __init__(
        self, journal: Journal | None, custom: Definitions, authorizer: Authorizer, registry: Registry
    ) -> None:
        self._journal, self._custom, self._authorizer, self._registry = journal, custom, authorizer, registry

    async def __call__(self, request: Request) -> Response:
        """Answer; raises 400, 403, and 404 if the journal is off."""
        if self._journal is None:
            raise errors.path_not_found()
        options = ("group", "version", "resource", "namespace", "name")
        group, version, plural, namespace, name = map(request.option, options)
        if not (group or version or plural or name):
            begin = await self._begin(self._journal, request.option("namespace"))
            found = await journal_list.listed(self._journal, self._custom, self._authorizer, request, begin)
            return Response(200, msgspec.json.encode(found))
        resource = by_path(group, version, plural) or await self._custom.find_prepared(group, version, plural)
        if resource is None or not name:
            raise errors.bad_request(f"name an object by the query options {', '.join(options)}")
        place = namespace if resource.namespaced or namespace == DENIED else ""
        wanted = AuthzAttributes(
            user=request.user,
            verb="get",
            group=group,
            version=version,
            resource=plural,
            namespace=place if resource.namespaced else "",
            name=name,
        )
        decision, reason = await decide(self._authorizer, wanted, owner_of(request.user.name), request.until_left)
        if decision is not Decision.ALLOW:
            raise denial.denied(wanted, reason)
        keys = (kind_key(group, resource.kind), resource_key(group, plural))
        page = self._page(self._journal, keys, place, name)
        within, _, own = name.rpartition("/") if place == DENIED else (place, "", name)
        metadata = await self._metadata(resource, within, own)
        page.entries = of_present(page.entries, metadata) if metadata is not None else []
        return Response(200, msgspec.json.encode(page))

    async def _begin(self, journal: Journal, namespace: str) -> float:
        """Return the time from which a list has entries of a namespace: it has none about a former namespace of its name."""
        if not namespace:
            return 0.0
        metadata = await self._metadata(_NAMESPACES, "", namespace)
        if metadata is None:
            return math.inf
        own = [entry for _, entry in journal.about(kind_key("", "Namespace"), "", namespace)]
        return begin_of(own, metadata)

    async def _metadata(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """Return the metadata of the present object; None if there is none."""
        served = conversion(resource)
        try:
            entry = await self._registry.get(resource if served is None else served.stored, namespace, name)
        except errors.StatusError as error:
            if error.not_found:
                return None
            raise
        found: Object = entry.obj["metadata"]
        return found

    def _page(self, journal: Journal, keys: tuple[str, str], namespace: str, name: str) -> Page:
        """Return the newest entries about an object."""
        known = [journal.about(key, namespace, name) for key in keys]
        since, left, found = journal.complete_since(namespace), MOST_BYTES, list[Entry]()
        for cost, entry in heapq.merge(*known, key=lambda each: each[1].time, reverse=True):
            left -= cost
            if left < 0:
                since = max(since, entry.time)
                break
            found.append(entry)
        return Page(found[::-1], since)
