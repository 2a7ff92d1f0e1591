"""Kinds whose entries of the journal a user may list: each is resolved and authorized once a request.

Entries of denied requests name groups and resources that their users have chosen, and a webhook may decide on each
authorization: all kinds that are not served are one authorization, and there is a limit on the others.
"""

from __future__ import annotations

from control.auth.authorizers import decide
from control.auth.user import Authorizer, AuthzAttributes, Decision
from control.custom.definitions import Definitions
from control.http.exchange import Request
from kube.owners import owner_of
from kube.resources import RESOURCES

ANY = "*"
MOST_KINDS = 150
"""Kinds that are authorized for one request of a user who may not list everything; others are left out."""
_EVERYTHING = (ANY, ANY)
_BUILT_IN = {(each.group, each.kind): each.plural for each in RESOURCES}


class ListableKinds:
    """The kinds that the user of a request may list in a namespace, or in all ("")."""

    def __init__(self, custom: Definitions, authorizer: Authorizer, request: Request, namespace: str) -> None:
        self._custom, self._authorizer, self._request, self._namespace = custom, authorizer, request, namespace
        self._plurals: dict[tuple[str, str], str] = {}
        self._served: set[tuple[str, str]] = set()
        self._by_key: dict[str, bool] = {}
        self._decided: dict[tuple[str, str], bool] = {}
        self.left_out = False
        """True if there were more kinds than are authorized."""

    async def allowed(self, key: str) -> bool:
        """Return whether the user may list the objects of a kind; `key` is that of the journal (kube/journal.py)."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = await self._everything() or await self._kind(self._resolved(key))
        return found

    async def any(self) -> bool:
        """Return whether the user may list one of the kinds, or get the namespace."""
        if any(self._by_key.values()) or await self._everything():
            return True
        return bool(self._namespace) and await self._may("get", "", "namespaces", self._namespace)

    async def _everything(self) -> bool:
        if _EVERYTHING not in self._decided:
            self._decided[_EVERYTHING] = await self._may("list", *_EVERYTHING)
        return self._decided[_EVERYTHING]

    async def _kind(self, resource: tuple[str, str]) -> bool:
        if resource not in self._decided:
            if len(self._decided) > MOST_KINDS:
                self.left_out = True
                return False
            self._decided[resource] = await self._may("list", *resource)
        return self._decided[resource]

    def _resolved(self, key: str) -> tuple[str, str]:
        """Return the group and the plural name of a kind that is served, `_EVERYTHING` for others."""
        if not self._served:
            self._plurals = {(each.group, each.kind): each.plural for each in self._custom.every()} | _BUILT_IN
            self._served = {(group, plural) for (group, _), plural in self._plurals.items()}
        kind, _, group = key.partition(".")
        plural = kind[1:] if kind.startswith("/") else self._plurals.get((group, kind), "")
        return (group, plural) if (group, plural) in self._served else _EVERYTHING

    async def _may(self, verb: str, group: str, plural: str, name: str = "") -> bool:
        user = self._request.user
        wanted = AuthzAttributes(
            user=user, verb=verb, group=group, version=ANY, resource=plural, namespace=self._namespace, name=name
        )
        decision, _ = await decide(self._authorizer, wanted, owner_of(user.name), self._request.until_left)
        return decision is Decision.ALLOW
