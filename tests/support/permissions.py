"""Records what the cluster's own components ask of the authorizers, and what of it is refused.

A link in front of a server's chain of authorizers notes each question, one behind it notes those that nobody allowed. Neither
has an opinion of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from control.auth.authorizers import Link, UnionAuthorizer
from control.auth.service_account_names import split_username
from control.auth.user import AuthzAttributes, Decision
from control.controllers.identities import MANAGER, NAMESPACE, SCHEDULER


class Question(NamedTuple):
    who: str
    verb: str
    target: str
    """The group's resource with its subresource ("pods/status", "deployments.apps/scale"), or a path."""
    namespace: str
    name: str


class Permissions:
    """Questions of controllers, the scheduler and the controller manager; `refused` are those that got a no."""

    def __init__(self, authorizer: UnionAuthorizer) -> None:
        self.received: set[Question] = set()
        self.refused: set[Question] = set()
        links = authorizer.links
        authorizer.replace(
            [Link("", "asked", _Noting(self.received)), *links, Link("", "refused", _Noting(self.refused))]
        )

    def allowed(self, who: str) -> set[tuple[str, str]]:
        """Return the verbs and targets that an account of kube-system was allowed."""
        return {(q.verb, q.target) for q in self.received - self.refused if q.who == who}


class _Noting:
    def __init__(self, found: set[Question]) -> None:
        self._found = found

    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        who = component(attributes.user.name)
        if who:
            a = attributes
            plural = f"{a.resource}.{a.group}" if a.group else a.resource
            target = (f"{plural}/{a.subresource}" if a.subresource else plural) or a.path
            self._found.add(Question(who, a.verb, target, a.namespace, a.name))
        return Decision.NO_OPINION, ""


def component(user: str) -> str:
    """Return how a component of the cluster is called: a service account's name, or the user's; "" for everybody else."""
    if user in (MANAGER.name, SCHEDULER.name):
        return user
    account = split_username(user)
    return account[1] if account is not None and account[0] == NAMESPACE else ""
