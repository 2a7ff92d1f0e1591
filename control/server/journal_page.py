"""GET /wherry/v1/journal: entries of the journal about one object, for those who may get the object.

Query: group, version, resource (plural name), namespace, name. Answers JSON (kube/journal.py: Page). Everybody who is
authenticated may use the path (ClusterRole wherry:journal); then the object is authorized as a GET of it would be. Entries of
the agent of a pod's node, or of a node, are merged into the answer (node_journal.py). Without any of the options that name an
object, it is a list of entries about many (`journal_list.py`).

An object's entries end with the object: the next owner of its name, or of its namespace's name, gets none about a former one.
Denied requests are answered for namespace `(denied)` and name `NAMESPACE/NAME` (or `NAME`, if the kind has no namespaces), to
those who may get such objects in all namespaces.
"""

from __future__ import annotations

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
from control.server.node_journal import NodeJournals
from kube import errors
from kube.journal import DENIED, Journal, begin_of, kind_key, of_present, resource_key
from kube.json_object import Object
from kube.owners import owner_of
from kube.resources import Resource, by_path

_found = by_path("", "v1", "namespaces")
assert _found is not None
_NAMESPACES = _found


class JournalPage:
    """Handler of the path; `custom` are the custom resources, `nodes` the journals of the agents."""

    def __init__(
        self,
        journal: Journal | None,
        custom: Definitions,
        authorizer: Authorizer,
        registry: Registry,
        nodes: NodeJournals,
    ) -> None:
        self._journal, self._custom, self._authorizer = journal, custom, authorizer
        self._registry, self._nodes = registry, nodes

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
        page = self._journal.page(keys, place, name)
        within, _, own = name.rpartition("/") if place == DENIED else (place, "", name)
        obj = await self._present(resource, within, own)
        page.entries = of_present(page.entries, obj["metadata"]) if obj is not None else []
        if obj is not None and place != DENIED:
            page = await self._nodes.merged(page, request, resource, obj)
        return Response(200, msgspec.json.encode(page))

    async def _begin(self, journal: Journal, namespace: str) -> float:
        """Return the time from which a list has entries of a namespace: it has none about a former namespace of its name."""
        if not namespace:
            return 0.0
        obj = await self._present(_NAMESPACES, "", namespace)
        if obj is None:
            return math.inf
        own = journal.page([kind_key("", "Namespace")], "", namespace)
        return begin_of(own.entries, obj["metadata"])

    async def _present(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """Return the present object; None if there is none."""
        served = conversion(resource)
        try:
            return (await self._registry.get(resource if served is None else served.stored, namespace, name)).obj
        except errors.StatusError as error:
            if error.not_found:
                return None
            raise
