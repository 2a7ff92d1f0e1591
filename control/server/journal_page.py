"""GET /wherry/v1/journal: entries of the journal about one object, for those who may get the object.

Query: group, version, resource (plural name), namespace, name. Answers JSON (kube/journal.py: Page). Everybody who is
authenticated may use the path (ClusterRole wherry:journal); then the object is authorized as a GET of it would be. Entries of
the agent of a pod's node, or of a node, are merged into the answer (node_journal.py).
"""

from __future__ import annotations

import msgspec

from control.auth import denial
from control.auth.authorizers import decide
from control.auth.user import Authorizer, AuthzAttributes, Decision
from control.custom.definitions import Definitions
from control.http.exchange import Request, Response
from control.server.node_journal import NodeJournals
from kube import errors
from kube.journal import Journal, kind_key, resource_key
from kube.owners import owner_of
from kube.resources import by_path


class JournalPage:
    """Handler of the path; `custom` are the custom resources, `nodes` the journals of the agents."""

    def __init__(
        self, journal: Journal | None, custom: Definitions, authorizer: Authorizer, nodes: NodeJournals
    ) -> None:
        self._journal, self._custom, self._authorizer, self._nodes = journal, custom, authorizer, nodes

    async def __call__(self, request: Request) -> Response:
        """Answer; raises 400, 403, and 404 if the journal is off."""
        if self._journal is None:
            raise errors.path_not_found()
        options = ("group", "version", "resource", "namespace", "name")
        group, version, plural, namespace, name = map(request.option, options)
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
        page = self._journal.page(keys, namespace, name)
        return Response(200, msgspec.json.encode(await self._nodes.merged(page, request, resource, namespace, name)))
