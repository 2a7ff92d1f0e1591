"""The chain of authorizers: the first with an opinion decides, nobody's opinion is a refusal with everybody's reasons."""

from __future__ import annotations

from collections.abc import Sequence

from control.auth.user import SYSTEM_MASTERS, Authorizer, AuthzAttributes, Decision


class MastersAuthorizer:
    """Allows members of system:masters everything, also while roles are not there yet."""

    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        if SYSTEM_MASTERS in attributes.user.groups:
            return Decision.ALLOW, ""
        return Decision.NO_OPINION, ""


class UnionAuthorizer:
    """Asks each authorizer in order."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        reasons = []
        for authorizer in self._authorizers:
            decision, reason = authorizer.authorize(attributes)
            if decision is not Decision.NO_OPINION:
                return decision, reason
            if reason:
                reasons.append(reason)
        return Decision.NO_OPINION, "\n".join(reasons)
